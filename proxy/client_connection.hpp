// Clients' TCP connections, as endpoints. The pool owns them all; what was sent in one turn of the loop
// leaves in one write at its end, and what has ended is freed there, so that no callback deletes the object
// it runs in.
//
// A connection that its user has let go lingers until its client has taken all, while it goes on taking; what
// lingering ones hold is bounded: beyond it the one that has taken nothing for longest is reset.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "proxy/config.hpp"
#include "proxy/endpoint.hpp"
#include "timebubble/batch.hpp"

struct event;
struct event_base;
struct evbuffer;

namespace crane::proxy {

class ClientPool;

class ClientConnection final : public Endpoint {
  public:
    ClientConnection(ClientPool& pool, uint64_t key, int fd, const timebubble::ConnectPayload& addresses);
    ~ClientConnection();
    ClientConnection(const ClientConnection&) = delete;
    ClientConnection& operator=(const ClientConnection&) = delete;

    const timebubble::ConnectPayload& addresses() const { return addresses_; }
    uint64_t key() const { return key_; }
    /// Held until the client is first read, or gone: what it keeps others from (Listeners::Place).
    void hold(std::shared_ptr<void> place) { place_ = std::move(place); }

    void set_user(EndpointUser* user) override { user_ = user; }
    void allow_input(bool allowed) override;
    void send(std::string_view bytes) override;
    void probe(const timebubble::ProbeRecord& wanted) override;
    void finish() override;
    void close() override;
    void reset() override;

  private:
    friend class ClientPool;
    static void on_readable(int fd, short what, void* self);
    static void on_writable(int fd, short what, void* self);
    void read_some();
    void flush();
    void after_flush();
    void fail();
    void start_lingering();
    void count_lingering();
    void stop_lingering();
    void want_input(bool wanted);
    void mark_dirty();
    void doom();

    ClientPool& pool_;
    uint64_t key_;
    int fd_;
    timebubble::ProbeRecord probes_{};  ///< what the server has set
    timebubble::ConnectPayload addresses_;
    EndpointUser* user_ = nullptr;
    event* read_event_;
    event* write_event_;
    evbuffer* output_;
    bool reading_ = false;
    bool input_ended_ = false;
    bool finish_wanted_ = false;
    bool finished_ = false;  ///< FIN sent
    bool closing_ = false;   ///< let go by its user
    bool dirty_ = false;
    bool doomed_ = false;
    uint64_t linger_since_ns_ = 0;  ///< 0: it does not; else when its client last took something
    uint64_t linger_bytes_ = 0;     ///< counted in the pool
    std::list<ClientConnection*>::iterator linger_place_;
    std::shared_ptr<void> place_;
};

class ClientPool {
  public:
    ClientPool(event_base* base, const KeepAlive& keepalive, uint64_t lingering_limit_bytes)
        : base_(base), keepalive_(keepalive), lingering_limit_bytes_(lingering_limit_bytes) {}

    /// Takes over a connected non-blocking socket.
    ClientConnection* adopt(int fd, const timebubble::ConnectPayload& addresses);
    /// Writes what was queued and frees what has ended; at the end of each turn of the loop.
    void end_turn();
    /// Ends lingering connections that have had their time, and lets go of clients that have reset theirs and
    /// are not read; call now and then.
    void reap(uint64_t now_ns);

    /// Ends every connection, as if all clients had reset theirs.
    void fail_all();

    size_t size() const { return all_.size(); }
    size_t lingering() const { return lingering_.size(); }
    uint64_t lingering_bytes() const { return lingering_bytes_; }
    event_base* base() const { return base_; }
    const KeepAlive& keepalive() const { return keepalive_; }
    uint64_t bytes_in() const { return bytes_in_; }
    uint64_t bytes_out() const { return bytes_out_; }

  private:
    friend class ClientConnection;
    void look_for_gone();
    event_base* base_;
    KeepAlive keepalive_;
    uint64_t next_key_ = 1;
    std::unordered_map<uint64_t, std::unique_ptr<ClientConnection>> all_;
    std::vector<uint64_t> dirty_;
    std::vector<uint64_t> doomed_;
    std::list<ClientConnection*> lingering_;  ///< the one that took something last is last
    uint64_t lingering_bytes_ = 0;
    uint64_t lingering_limit_bytes_;
    uint64_t next_look_ns_ = 0;
    uint64_t bytes_in_ = 0;
    uint64_t bytes_out_ = 0;
    char scratch_[128 * 1024];
};

/// The addresses of a connected socket, in the log's form.
bool socket_addresses(int fd, uint16_t listen_port, timebubble::ConnectPayload& out);
std::string address_text(uint16_t family, const uint8_t* address, uint16_t port);

}  // namespace crane::proxy
