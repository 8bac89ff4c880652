// What must hold at every step of a life; the first violation is kept and ends it.
//
//   - one value per index: what a leader decides goes into the ledger, at its end, once; whatever anybody
//     delivers is what the ledger has there, and comes in order and without a hole;
//   - a leader decides what is on the synced disks of a majority of those who vote, and nobody but a leader
//     decides; later too it is on a majority (lost disks, one at a time, excepted). Entries of older views
//     it decides only together with one of its own;
//   - an acknowledgement or a promise is sent only when it is on the sender's synced disk;
//   - log matching: (index, view) names one entry and all before it, in every log;
//   - views never go back, not even over a restart; a new leader has all that was decided in lower views;
//   - values of one view are decided in the order in which they were accepted, none left out;
//   - memberships that follow each other differ in at most one voter;
//   - a log is cut only behind a checkpoint that a majority of those who vote have held;
//   - what the store finds on a disk is what it once acknowledged, or that with what was under way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "counts.hpp"
#include "random.hpp"
#include "replica.hpp"

namespace crane::sim {

using Replicas = std::map<paxos::ReplicaId, std::unique_ptr<Replica>>;

class Checks {
  public:
    Checks(const Replicas& replicas, const paxos::Membership& founders, Counts& counts);

    const std::string& violation() const { return violation_; }
    void violate(const std::string& what);

    void sending(const Replica& replica, const paxos::Message& message);
    void persisting(const Replica& replica, const paxos::PersistBatch& batch);
    void observe(Replica& replica);  ///< after anything happened in its core
    void delivering(Replica& replica, const paxos::Entry& entry);
    void recovered(Replica& replica, const paxos::StoredState& found);
    void audit(Random& random);

    uint64_t decided() const { return ledger_.size(); }
    paxos::LogPosition position(uint64_t index) const;
    const paxos::MembershipAt& membership_at(uint64_t index) const;
    const paxos::MembershipAt& membership() const { return memberships_.back(); }
    /// Whether a majority of those who vote in it has the entry on its disk.
    bool on_majority(const paxos::LogPosition& position, const paxos::Membership& membership) const;

  private:
    struct Seen {
        uint64_t chain = 0;
        paxos::EntryKind kind = paxos::EntryKind::kValue;
        uint64_t number = 0;  // of the value within its view
        std::shared_ptr<const std::string> membership;
    };
    struct Decided {
        paxos::LogPosition position;
        paxos::View by = 0;
        std::shared_ptr<const paxos::MembershipAt> with;  // those who were counted
    };
    using Place = std::pair<uint64_t, paxos::View>;
    struct PlaceHash {
        size_t operator()(const Place& place) const {
            return place.first * 0x9e3779b97f4a7c15ull ^ place.second * 0xc2b2ae3d27d4eb4full;
        }
    };

    void extend(const Replica& replica);
    void decide(Decided decided);
    void new_leader(const Replica& replica);
    void cutting(const Replica& replica);

    const Replicas& replicas_;
    Counts& counts_;
    std::string violation_;
    std::shared_ptr<const paxos::MembershipAt> counted_;
    std::vector<Decided> ledger_;  ///< [i] has index i + 1
    std::vector<paxos::MembershipAt> memberships_;
    std::unordered_map<Place, Seen, PlaceHash> seen_;
    std::map<paxos::View, uint64_t> last_value_;
    uint64_t common_checkpoint_ = 0;
};

/// A value's text says in which view it was accepted, and as which.
std::string make_value(paxos::View view, uint64_t number, size_t padding);

}  // namespace crane::sim
