// What a replica's platter must hold: kept from what the store acknowledged, and compared with what the store
// finds there at every start and every look at the platter.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "paxos/core/storage.hpp"

namespace crane::sim {

class Shadow {
  public:
    /// Whether the batch continues what is there.
    bool fits(const paxos::PersistBatch& batch) const;
    /// The batch is on the platter.
    void apply(const paxos::PersistBatch& batch);
    /// The log's front was cut, which may or may not be on the platter.
    void cut_front(const paxos::LogPosition& start);
    void restart_at(const paxos::LogPosition& start, const paxos::MembershipAt& membership,
                    const paxos::Incarnations& starts);
    void created(bool rejoining);

    bool holds(const paxos::LogPosition& position) const;
    uint64_t last_index() const { return start_.index + log_.size(); }
    paxos::LogPosition end() const { return log_.empty() ? start_ : log_.back(); }
    paxos::View view() const { return view_; }
    bool rejoining() const { return rejoining_; }
    uint64_t cut() const { return cut_.index; }
    bool exists() const { return exists_; }
    const paxos::Incarnations& starts() const { return starts_.table; }
    const std::vector<paxos::MembershipAt>& memberships() const { return memberships_; }

    /// Empty when `found` is what must be there; else what differs. Where the front may be is then known.
    std::string compare(const paxos::StoredState& found);

  private:
    bool exists_ = false;
    bool rejoining_ = false;
    paxos::View view_ = 0;
    paxos::LogPosition start_;  ///< the least that the log may start after
    paxos::LogPosition cut_;    ///< the most
    std::deque<paxos::LogPosition> log_;
    std::vector<paxos::MembershipAt> memberships_;
    paxos::StartsAt starts_;

    void drop_front(const paxos::LogPosition& start);
};

}  // namespace crane::sim
