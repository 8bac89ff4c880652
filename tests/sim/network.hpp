// The links between replicas. A link is one direction of a pair; whether it keeps order is the life's choice.
//
// Loss is of single messages, or of a connection with all that was under way on it, after which the sender is
// told that the link is there again, as the transport does. A clogged link delivers nothing for a while, then
// everything.
#pragma once

#include <cstdint>
#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "counts.hpp"
#include "paxos/core/message.hpp"
#include "random.hpp"

namespace crane::sim {

struct NetworkFaults {
    double loss = 0, duplication = 0;
    uint64_t min_delay_us = 100, max_delay_us = 2'000;
    bool ordered = true;
};

struct Packet {
    uint64_t at_us = 0;
    uint64_t sequence = 0;
    bool link_up = false;  ///< no message: `to` learns that its link to `message.from` is up again
    uint64_t connection = 0;
    paxos::Message message;
    bool operator<(const Packet& other) const {  ///< a heap's top is its greatest
        return std::tie(other.at_us, other.sequence) < std::tie(at_us, sequence);
    }
};

class Network {
  public:
    using Id = paxos::ReplicaId;

    Network(Random& random, Counts& counts) : random_(random), counts_(counts) {}

    NetworkFaults faults;
    void send(uint64_t now_us, const paxos::Message& message);
    uint64_t next_us() const { return packets_.empty() ? UINT64_MAX : packets_.front().at_us; }
    bool pop(Packet& packet);  ///< false: it was lost on the way

    void cut(Id from, Id to) { cut_.insert({from, to}); }
    void reconnect() { cut_.clear(); }
    void clog(Id from, Id to, uint64_t until_us) { links_[{from, to}].clogged_until_us = until_us; }
    void unclog(uint64_t now_us);
    /// Everything under way is lost; `to` hears of it, and `from` may send again, after a while.
    void break_connection(Id from, Id to, uint64_t now_us);
    bool anything_cut() const { return !cut_.empty(); }

  private:
    struct Link {
        uint64_t connection = 0;
        uint64_t down_until_us = 0;
        uint64_t clogged_until_us = 0;
        uint64_t last_at_us = 0;
    };
    void push(Packet packet);

    Random& random_;
    Counts& counts_;
    std::map<std::pair<Id, Id>, Link> links_;
    std::set<std::pair<Id, Id>> cut_;
    std::vector<Packet> packets_;  ///< a heap
    uint64_t sequence_ = 0;
};

}  // namespace crane::sim
