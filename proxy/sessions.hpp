// The primary's clients: turns what they do into client socket calls for the log, and what the server does on
// their connections into bytes for them. Only connections accepted while this replica leads, in its present
// view, are here; output of all others is another primary's to deliver.
//
// Bounds kept, for clients here and at other replicas alike: a client is connected when the domain has a
// place for it (DomainAccount), and waits unread until then; it is read only as far as the domain has room
// for its input; the server is given windows only as far as the stock of output lasts (OutputWindows; kWindow
// moves them by decision).
//
// A connection's id is unique in the log for ever: view counter (20 bits), replica (8), number (36).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "proxy/batcher.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/endpoint.hpp"
#include "proxy/output_windows.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

/// A connection's id: view counter (20 bits), primary (8 bits), number within its view (36 bits).
constexpr unsigned kConnectionNumberBits = 36;
constexpr uint64_t connection_prefix(uint64_t view_counter, uint32_t replica) {
    return ((view_counter & 0xfffff) << 8 | (replica & 0xff)) << kConnectionNumberBits;
}

class Sessions {
  public:
    /// `output_bytes`: the stock of output that clients have not taken.
    Sessions(Batcher& batcher, DomainAccount& account, uint64_t output_bytes);
    ~Sessions();

    void lead(uint64_t view_counter, uint32_t replica);
    /// Resets every client: the next primary closes their connections by decision.
    void stop_leading();
    /// The server has ended: what was sent is delivered, then the clients' connections end.
    void close_all();

    bool leading() const { return leading_; }
    void open(Endpoint* endpoint, const timebubble::ConnectPayload& addresses);
    /// The account has seen it already.
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);
    /// What clients have not taken yet of connections that the server has closed.
    void set_closing(uint64_t bytes) { windows_.set_closing(bytes); }

    size_t size() const { return live_.size(); }
    size_t held_back() const;
    uint64_t output_bytes() const { return windows_.used(); }
    uint64_t bytes_sent() const { return bytes_sent_; }

  private:
    struct Session;
    using Map = std::unordered_map<uint64_t, std::unique_ptr<Session>>;
    void connect(Session& session);
    void connect_waiting();
    void raise_window(Session& session);
    void steer_input(Session& session);
    Map take_all();
    void remove(uint64_t connection);

    Batcher& batcher_;
    DomainAccount& account_;
    OutputWindows windows_;
    Map live_;
    std::map<uint16_t, std::set<uint64_t>>
        held_back_;  ///< by the server's port; no place for them yet, oldest first
    uint64_t prefix_ = 0;
    uint64_t next_ = 1;
    uint64_t bytes_sent_ = 0;
    bool leading_ = false;
};

}  // namespace crane::proxy
