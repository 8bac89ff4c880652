// The ports clients connect to, or send datagrams to: opened when the server listens, closed when it no
// longer does. Found, not configured; the configuration may only move a port (port_map). A port that is taken
// is said so and tried again every second. What the server listens on at its own loopback addresses is not
// shown to other hosts, unless port_map names it.
//
// Clients are served on every address that client_address has. `::` is all IPv6 and all IPv4 addresses; IPv6
// addresses are opened while the server has an IPv6 listener.
// Bound kept: of the clients accepted at a port, only so many are not served yet (no primary, no place in the
// domain); while they are, the others wait in the kernel's queue.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "timebubble/transport.hpp"

struct event;
struct event_base;

namespace crane::paxos {
class Lookup;
struct AddressInfo;
}  // namespace crane::paxos

namespace crane::proxy {

class Listeners {
  public:
    /// Held by a client until it is served, or gone.
    using Place = std::shared_ptr<void>;
    /// A connected non-blocking socket, and the server's port it is for.
    using Accepted = std::function<void(int fd, uint16_t port, Place place)>;
    static constexpr size_t kPlaces = 1024;  ///< a port

    /// A socket has datagrams for the server's port.
    using Readable = std::function<void(int fd, uint16_t port)>;

    struct State {
        uint32_t protocol;  ///< 0: TCP; IPPROTO_UDP
        uint16_t port;
        uint16_t client_port;
        bool open;
        std::string error;
    };

    Listeners(event_base* base, std::string address, std::map<uint16_t, uint16_t> port_map, Accepted accepted,
              Readable readable);
    ~Listeners();

    void listen(const timebubble::ListenRecord& record);
    /// The settings of a port have changed (TCP_DEFER_ACCEPT).
    void change(const timebubble::ListenRecord& record);
    void unlisten(const timebubble::ListenRecord& record);
    /// Opens and closes what has changed since the last time: a server that changes its mind a thousand times
    /// in between costs nobody anything.
    void end_turn();
    void close_all();
    std::vector<State> states() const;
    size_t sockets() const;
    /// Of the server's port for datagrams, that of the address where a client has reached it, opened if that
    /// is still to come. -1: none is open.
    int datagram_socket(uint16_t port, uint16_t family, const uint8_t* address);
    const std::string& address() const { return address_; }

  private:
    struct Port;
    struct Socket;
    struct Gate;
    using Key = std::pair<uint32_t, uint16_t>;  ///< protocol, port
    static Key key_of(const timebubble::ListenRecord& record) { return {record.protocol, record.port}; }
    bool is_private(const timebubble::ListenRecord& record) const;
    static void on_accept(int fd, short what, void* socket);
    static void on_datagrams(int fd, short what, void* socket);
    static void on_retry(int fd, short what, void* port);
    void note_change(Port& port);
    void settle(const Key& key);
    void try_open(Port& port);
    void open(Port& port, const sockaddr_storage& address, std::string& error);
    void accept_some(Socket& socket);
    void look_up();
    void found(const paxos::AddressInfo& info);

    event_base* base_;
    std::string address_;
    std::map<uint16_t, uint16_t> port_map_;
    Accepted accepted_;
    Readable readable_;
    std::vector<sockaddr_storage> addresses_;  ///< those of address_, once they are known
    std::string lookup_error_;
    bool looking_ = false;
    std::unique_ptr<paxos::Lookup> lookup_;
    std::map<Key, std::unique_ptr<Port>> ports_;
    std::vector<Key> changed_;  ///< ports, since the end of the last turn
};

}  // namespace crane::proxy
