#include "paxos/core/lineage.hpp"

#include <algorithm>

namespace crane::paxos {
namespace {

constexpr size_t kMaxKnown = 256;  // replicas; with more, all is forgotten, which only makes this see less

}  // namespace

Copy Lineages::judge(const Known& known, const Origin& origin, bool decided) {
    const Origin& newest = known.origin;
    if (origin.same_start(newest)) return Copy::kCurrent;
    if (!decided) {
        const Copy copy =
            Incarnation{kNoReplica, newest.database, newest.start, newest.run, {}}.judge(origin);
        if (copy != Copy::kCurrent) return copy;
    }
    const bool has_less =
        origin.view < known.promised ||
        (origin.view == known.promised && known.acked_view == known.promised && origin.index < known.acked);
    return origin.start != newest.start && has_less ? Copy::kOlder : Copy::kCurrent;
}

bool Lineages::believed(ReplicaId replica, uint64_t run) const {
    const auto known = known_.find(replica);
    return known != known_.end() && (known->second.origin.run == run || known->second.previous_run == run);
}

Copy Lineages::hear(const Message& message, bool decided) {
    const Origin& origin = message.origin;
    if (origin.database == 0) return Copy::kCurrent;  // a storage that counts no starts
    if (known_.size() >= kMaxKnown && known_.count(message.from) == 0) known_.clear();
    Known& known = known_[message.from];
    if (known.origin.database == origin.database) {
        // Late, or from one of two; what a later start said is kept apart from it.
        if (decided && origin.start < known.origin.start) return Copy::kCurrent;
        const Copy copy = judge(known, origin, decided);
        if (copy != Copy::kCurrent) return copy;
    } else {
        const uint64_t before = known.origin.run;
        known = Known{};
        known.origin.run = before;
    }
    if (known.origin.run != origin.run) known.previous_run = known.origin.run;
    known.origin = origin;
    known.promised = std::max(known.promised, message.promised);
    if (message.type != MessageType::kAck || !message.ok || message.view < known.acked_view)
        return Copy::kCurrent;
    known.acked = message.view == known.acked_view ? std::max(known.acked, message.index) : message.index;
    known.acked_view = message.view;
    return Copy::kCurrent;
}

}  // namespace crane::paxos
