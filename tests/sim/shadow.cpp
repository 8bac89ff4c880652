#include "shadow.hpp"

#include "base/check.hpp"
#include "paxos/core/describe.hpp"

namespace crane::sim {

using namespace paxos;

bool Shadow::fits(const PersistBatch& batch) const {
    const uint64_t cut = batch.truncate_from;
    if (cut != 0 && (cut <= cut_.index || cut > last_index())) return false;
    return batch.append.empty() || batch.append.front().index == (cut != 0 ? cut : last_index() + 1);
}

void Shadow::apply(const PersistBatch& batch) {
    exists_ = true;
    drop_front(cut_);
    if (batch.has_view) view_ = batch.view;
    if (batch.rejoined) rejoining_ = false;
    if (!batch.memberships.empty()) memberships_ = batch.memberships;
    if (batch.has_starts) starts_ = batch.starts;
    if (batch.truncate_from != 0) {
        CRANE_CHECK(batch.truncate_from > start_.index && batch.truncate_from <= last_index());
        log_.resize(batch.truncate_from - start_.index - 1);
    }
    for (const Entry& entry : batch.append) {
        CRANE_CHECK(entry.index == last_index() + 1);
        log_.push_back(entry.position());
    }
}

void Shadow::created(bool rejoining) {
    exists_ = true;
    rejoining_ = rejoining;
}

void Shadow::drop_front(const LogPosition& start) {
    while (start_.index < start.index && !log_.empty()) {
        start_ = log_.front();
        log_.pop_front();
    }
    start_ = start;
}

void Shadow::cut_front(const LogPosition& start) {
    if (start.index > cut_.index) cut_ = start;
}

void Shadow::restart_at(const LogPosition& start, const MembershipAt& membership,
                        const Incarnations& starts) {
    if (start.index <= cut_.index) return;
    if (start.index <= last_index() && log_[start.index - start_.index - 1] == start) return;
    log_.clear();
    start_ = cut_ = start;
    if (!membership.membership.members.empty()) memberships_ = {membership};
    view_ = std::max(view_, start.view);
    starts_.table.learn(starts);
    starts_.index = 0;
}

bool Shadow::holds(const LogPosition& position) const {
    if (position.index <= start_.index) return true;  // cut after it was decided
    return position.index <= last_index() && log_[position.index - start_.index - 1] == position;
}

std::string Shadow::compare(const StoredState& found) {
    if (found.view != view_) return "view " + view_name(found.view) + " instead of " + view_name(view_);
    if (found.rejoining != rejoining_) return found.rejoining ? "rejoining" : "not rejoining";
    if (found.end != end())
        return "its log ends at " + describe(found.end) + " instead of " + describe(end());
    if (found.start.index < start_.index || found.start.index > cut_.index || !holds(found.start))
        return "its log starts after " + describe(found.start);
    if (found.memberships.size() != memberships_.size()) return "another number of memberships";
    for (size_t i = 0; i < memberships_.size(); ++i)
        if (found.memberships[i].index != memberships_[i].index ||
            found.memberships[i].membership != memberships_[i].membership)
            return "another membership";
    if (found.known_starts.table != starts_.table) return "other starts";
    drop_front(found.start);
    cut_ = found.start;
    return "";
}

}  // namespace crane::sim
