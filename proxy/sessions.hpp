// The primary's clients: turns what they do into client socket calls for the log, and what the server does on
// their connections into bytes for them. Only connections accepted while this replica leads, in its present
// view, are here; output of all others is another primary's to deliver.
//
// Bounds kept: input proposed and not yet read by the server (256 KiB a connection, 128 MiB in all: above,
// the client is not read); output that a client has not taken (the decided send window: kWindow moves it as
// the client takes).
//
// A connection's id is unique in the log for ever: view counter (20 bits), replica (4), sequence (40).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "proxy/batcher.hpp"
#include "proxy/endpoint.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

constexpr uint64_t kInputPerConnectionBytes = 256 * 1024;
constexpr uint64_t kInputTotalBytes = 128 * 1024 * 1024;
constexpr uint64_t kWindowStepBytes = 1024 * 1024;

/// A connection's id: view counter (20 bits), primary (8 bits), number within its view (36 bits).
constexpr unsigned kConnectionNumberBits = 36;
constexpr uint64_t connection_prefix(uint64_t view_counter, uint32_t replica) {
    return ((view_counter & 0xfffff) << 8 | (replica & 0xff)) << kConnectionNumberBits;
}

class Sessions {
  public:
    explicit Sessions(Batcher& batcher);
    ~Sessions();

    void lead(uint64_t view_counter, uint32_t replica);
    /// Resets every client: the next primary closes their connections by decision.
    void stop_leading();
    /// The server has ended: what was sent is delivered, then the clients' connections end.
    void close_all();

    bool leading() const { return leading_; }
    void open(Endpoint* endpoint, const timebubble::ConnectPayload& addresses);
    void on_output(const timebubble::OutputHeader& header, std::string_view payload);
    bool owns(uint64_t connection) const { return live_.count(connection) != 0; }

    size_t size() const { return live_.size(); }
    uint64_t unconsumed_bytes() const { return unconsumed_; }
    uint64_t bytes_sent() const { return bytes_sent_; }

  private:
    struct Session;
    using Map = std::unordered_map<uint64_t, std::unique_ptr<Session>>;
    void remove(uint64_t connection);
    void steer_input(Session& session);
    void resume_paused();

    Batcher& batcher_;
    Map live_;
    std::set<uint64_t> paused_;
    uint64_t prefix_ = 0;
    uint64_t next_ = 1;
    uint64_t unconsumed_ = 0;
    uint64_t bytes_sent_ = 0;
    bool leading_ = false;
};

}  // namespace crane::proxy
