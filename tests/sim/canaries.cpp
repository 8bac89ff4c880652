#include <algorithm>
#include <map>

#include "canary.hpp"
#include "paxos/core/describe.hpp"

namespace crane::paxos {

// The core's inside, for planting bugs.
struct Tamper {
    static void append_membership(Core& core, const Membership& membership) {
        std::string value;
        encode(membership, value);
        core.append(EntryKind::kMembership, std::move(value));
    }
    static void forget_that_it_rejoins(Core& core) { core.rejoining_ = false; }
    // As if a majority with entries of an older view were as good as one with the leader's own.
    static void decide_older_views(Core& core) {
        if (core.role_ != Role::kLeader || core.view_start_ <= core.commit_ + 1) return;
        std::vector<Entry> inherited;
        for (uint64_t index = core.commit_ + 1; index < core.view_start_; index = inherited.back().index + 1)
            core.log_.copy(index, core.view_start_ - 1, SIZE_MAX >> 1, SIZE_MAX, inherited);
        for (const Entry& entry : inherited) core.uncommitted_bytes_ += entry.size_bytes();
        core.view_start_ = core.commit_ + 1;
    }
    // As if what one holds, a majority did.
    static void trust_one_checkpoint(Core& core) {
        core.common_checkpoint_ = std::max(core.common_checkpoint_, core.checkpoint_);
    }
    // As if whatever lies behind a leader's message had to go.
    static void truncate_behind(Core& core, uint64_t index) {
        if (index < core.log_.start().index || index < core.membership_index() ||
            index >= core.log_.last_index())
            return;
        core.log_.truncate_from(index + 1);
        core.matched_ = std::min(core.matched_, index);
        core.commit_ = std::min(core.commit_, index);
        if (index >= core.durable_) return;
        core.durable_ = index;
        core.truncate_from_ = core.truncate_from_ == 0 ? index + 1 : std::min(core.truncate_from_, index + 1);
    }
};

}  // namespace crane::paxos

namespace crane::sim {

using namespace paxos;

namespace {

ReplicaId other_voter(const Core& core, ReplicaId than, ReplicaId self) {
    for (const Member& member : core.membership().members)
        if (member.voter && member.id != than && member.id != self) return member.id;
    return kNoReplica;
}

struct AcknowledgeBeforePersist : Canary {
    void outbox(Outbox& out) override {
        for (Message& message : out.send_after) out.send_now.push_back(std::move(message));
        out.send_after.clear();
    }
};

struct ForgetTheView : Canary {
    void loaded(Replica&, StoredState& stored) override { stored.view = stored.end.view; }
};

struct CountAVoteTwice : Canary {
    void arriving(Core& core, Message& message) override {
        const bool vote =
            message.type == MessageType::kViewChangeReply || message.type == MessageType::kPreVoteReply;
        if (!vote || !message.ok) return;
        Message again = message;
        again.from = other_voter(core, message.from, message.to);
        if (again.from != kNoReplica) core.step(again);
    }
};

struct TruncateDecided : Canary {
    void arriving(Core& core, Message& message) override {
        if (message.type == MessageType::kPrepare && message.view == core.view() &&
            core.role() == Role::kFollower)
            Tamper::truncate_behind(core, message.index);
    }
};

struct DecideOlderViews : Canary {
    void before_turn(Core& core) override { Tamper::decide_older_views(core); }
    void arriving(Core& core, Message&) override { Tamper::decide_older_views(core); }
};

struct RejoinUnannounced : Canary {
    bool forgets_loss() const override { return true; }
};

struct RejoinAtOnce : Canary {
    void before_turn(Core& core) override { Tamper::forget_that_it_rejoins(core); }
    void arriving(Core& core, Message&) override { Tamper::forget_that_it_rejoins(core); }
};

struct LyingDisk : Canary {
    void disk(Disk& disk) override { disk.faults.lying = true; }
};

struct BelieveTheCache : Canary {
    void disk(Disk& disk) override { disk.faults.keeps_showing = true; }
};

struct ChangeTwoVoters : Canary {
    bool change_membership(Core& core, const MembershipChange& change) override {
        Membership next = core.membership();
        if (change.kind != ChangeKind::kAdd || next.voters() + 2 > kMaxVoters || core.decided_index() == 0 ||
            core.membership_index() > core.decided_index())
            return false;
        next.add({change.id, true, change.address});
        next.add({change.id + 1, true, change.address});
        Tamper::append_membership(core, next);
        return true;
    }
};

struct CountALearner : Canary {
    void arriving(Core& core, Message& message) override {
        if (message.type != MessageType::kAck || core.membership().voter(message.from)) return;
        Message counted = message;
        counted.from = other_voter(core, kNoReplica, message.to);
        if (counted.from != kNoReplica) core.step(counted);
    }
};

struct VoteForAShorterLog : Canary {
    void arriving(Core&, Message& message) override {
        if (message.type == MessageType::kViewChange || message.type == MessageType::kPreVote)
            message.index_view = UINT64_MAX;
    }
};

struct DropTheSuffix : Canary {
    void loaded(Replica& replica, StoredState& stored) override {
        if (stored.end.index <= std::max(stored.start.index, stored.commit) || stored.memberships.empty() ||
            stored.memberships.back().index == stored.end.index)
            return;
        PersistBatch batch;
        batch.truncate_from = stored.end.index;
        replica.store->persist(batch);
        stored = replica.store->load();
    }
};

struct SkipADelivery : Canary {
    void outbox(Outbox& out) override {
        if (out.decided.size() > 2) out.decided.erase(out.decided.begin() + 1);
    }
};

struct CutBehindOnesOwn : Canary {
    void before_turn(Core& core) override { Tamper::trust_one_checkpoint(core); }
};

struct CountNoStarts : Canary {
    void loaded(Replica&, StoredState& stored) override {
        stored.database = stored.starts = 0;
        stored.known_starts = StartsAt{};
    }
    bool counts_no_starts() const override { return true; }
};

template <typename Kind>
std::unique_ptr<Canary> make() {
    return std::make_unique<Kind>();
}

}  // namespace

const std::vector<NamedCanary>& canaries() {
    static const std::vector<NamedCanary> all = {
        {"acknowledge before persist", 20, make<AcknowledgeBeforePersist>},
        {"forget the view on restart", 20, make<ForgetTheView>},
        {"count a vote twice", 1000, make<CountAVoteTwice>},
        {"truncate what is decided", 50, make<TruncateDecided>},
        {"decide entries of older views by counting", 100, make<DecideOlderViews>},
        {"a lost disk that nobody is told of", 100, make<RejoinUnannounced>},
        {"a rejoining replica counts at once", 50, make<RejoinAtOnce>},
        {"a disk that lies about syncs", 20, make<LyingDisk>},
        {"believe what a failed sync has left in memory", 100, make<BelieveTheCache>},
        {"change two voters at once", 50, make<ChangeTwoVoters>},
        {"count a learner", 100, make<CountALearner>},
        {"vote for a shorter log", 100, make<VoteForAShorterLog>},
        {"drop the end of the log on restart", 50, make<DropTheSuffix>},
        {"leave out a delivery", 20, make<SkipADelivery>},
        {"cut behind a checkpoint of one's own", 50, make<CutBehindOnesOwn>},
        {"believe whatever start of a database", 50, make<CountNoStarts>},
    };
    return all;
}

}  // namespace crane::sim
