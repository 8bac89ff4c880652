// Clients' datagrams: what comes to any replica is said to the primary and becomes a call in the log; what
// the server sends to a client leaves from the replica that it has sent to. Pure but for what it is given.
//
// As with UDP anywhere nothing is promised: what finds no primary, no place in the queue or no link is
// dropped and counted. Rules kept here:
//   - a server that replays sends nothing again: a client is answered from the entry on with which it was
//     first heard in this life of this daemon;
//   - whoever has not sent a datagram gets none from here: that goes to the outside, or nowhere;
//   - who is remembered, and what waits to be proposed, is bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "proxy/batcher.hpp"
#include "timebubble/batch.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

class Datagrams {
  public:
    static constexpr size_t kMostQueuedBytes = 4 * 1024 * 1024;  ///< in the batcher, of whatever kind
    static constexpr size_t kRemembered = 32768;                 ///< clients, of late; as many of before that

    struct Ways {
        /// Whether this replica leads, and takes calls now.
        std::function<bool()> proposes;
        /// To the primary, if there is another. False: not now.
        std::function<bool(std::string payload)> relay;
        /// From this replica to the client. False: it could not be sent.
        std::function<bool(const timebubble::DatagramPayload& client, std::string_view bytes)> send;
        std::function<void(const std::string&)> tell;  ///< for the log
        /// To one who has sent none. False: it is not let out.
        std::function<bool(const timebubble::DatagramRecord& to, std::string_view bytes)> outward = nullptr;
    };
    /// `life`: of this daemon, unlike any other one's.
    Datagrams(uint64_t life, Batcher& batcher, Ways ways);

    /// One has come here (receive_datagrams).
    void received(std::string payload);
    /// One has come back from the outside, where the server had sent to: its sender is no client.
    void answered(std::string payload);
    /// One has come to another replica, which is not believed.
    void relayed(std::string_view payload);
    /// Whether one was proposed for another replica since this was last asked.
    bool take_relayed() { return std::exchange(relayed_, false); }
    /// A call of any kind in the log.
    void on_decided(uint64_t index, const timebubble::Call& call);
    /// DatagramRecord and the bytes, put out after the entry `admitted`. `serves`: this replica speaks to
    /// clients.
    void on_output(std::string_view payload, uint64_t admitted, bool serves);
    /// {"received", "proposed", "sent", "dropped", "unasked"}
    nlohmann::json json() const;

  private:
    struct Caller {
        uint64_t receiver = 0;
        uint64_t since = 0;
        timebubble::DatagramPayload call{};
    };
    /// The server's port, the client's family, address and port.
    using Key = std::tuple<uint16_t, uint16_t, uint16_t, std::string>;
    static constexpr uint16_t kAnyPort = 0;  ///< as last heard at any of the server's
    using Callers = std::map<Key, Caller>;

    void propose(std::string_view payload);
    Caller* find(const Key& key);

    uint64_t life_;
    Batcher& batcher_;
    Ways ways_;
    Callers callers_, earlier_;
    bool relayed_ = false;
    uint64_t received_ = 0, proposed_ = 0, sent_ = 0, dropped_ = 0, unasked_ = 0;
    uint64_t next_told_ = 1;  ///< so many unasked are said in the log
};

}  // namespace crane::proxy
