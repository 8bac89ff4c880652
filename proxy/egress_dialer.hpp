// The primary's connections to the outside while they are being made, and its look-ups of names: nothing here
// blocks the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "timebubble/batch.hpp"
#include "timebubble/transport.hpp"

struct event_base;

namespace crane::paxos {
class Lookup;
struct AddressInfo;
}  // namespace crane::paxos

namespace crane::proxy {

class EgressDialer {
  public:
    struct Outcomes {
        /// The socket is connected, and the receiver's.
        std::function<void(uint64_t id, int fd)> connected;
        std::function<void(uint64_t id, int error)> failed;
        /// ResolvedPayload and its addresses.
        std::function<void(uint64_t id, const std::string& answer)> resolved;
    };
    EgressDialer(event_base* base, Outcomes outcomes);
    ~EgressDialer();
    EgressDialer(const EgressDialer&) = delete;
    EgressDialer& operator=(const EgressDialer&) = delete;

    /// The outcome follows from the loop, or at once where it cannot even be begun.
    void dial(uint64_t id, const timebubble::EgressRecord& to);
    void resolve(uint64_t id, const std::string& name);
    /// No outcome follows.
    void give_up(uint64_t id);
    /// Sockets on their way.
    size_t dialing() const { return dials_.size(); }

  private:
    struct Dial;
    void on_writable(uint64_t id);
    void next_lookups();
    void on_found(uint64_t id, const paxos::AddressInfo& info);

    event_base* base_;
    Outcomes outcomes_;
    std::unordered_map<uint64_t, std::unique_ptr<Dial>> dials_;
    std::unordered_map<uint64_t, std::unique_ptr<paxos::Lookup>> lookups_;
    std::deque<std::pair<uint64_t, std::string>> waiting_;  ///< names, for their turn
    std::vector<std::unique_ptr<paxos::Lookup>> done_;      ///< until nothing of theirs runs
};

}  // namespace crane::proxy
