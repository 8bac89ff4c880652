#include "paxos/core/incarnation.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/wire.hpp"

namespace crane::paxos {

std::string describe(Copy copy) {
    switch (copy) {
        case Copy::kCurrent:
            return "is the current one";
        case Copy::kOlder:
            return "is an older copy: this replica has spoken from a newer one since";
        case Copy::kSecond:
            return "is a copy: this replica speaks, or has spoken, from another one with the same past";
        case Copy::kUnannounced:
            return "is not the one that this replica had, and does not know that it replaces it";
    }
    return "?";
}

Copy Incarnation::judge(const Origin& origin) const {
    if (origin.database != database) {
        if (std::find(before.begin(), before.end(), origin.database) != before.end()) return Copy::kOlder;
        return origin.replaces ? Copy::kCurrent : Copy::kUnannounced;
    }
    if (origin.start < start) return Copy::kOlder;
    if (origin.start == start) return origin.run == run ? Copy::kCurrent : Copy::kSecond;
    const uint64_t back = origin.start - start - 1;
    return back < origin.previous_runs.size() && origin.previous_runs[back] != run ? Copy::kOlder
                                                                                   : Copy::kCurrent;
}

const Incarnation* Incarnations::find(ReplicaId replica) const {
    for (const Incarnation& one : known_)
        if (one.replica == replica) return &one;
    return nullptr;
}

Incarnation& Incarnations::place(ReplicaId replica) {
    auto at = std::find_if(known_.begin(), known_.end(),
                           [&](const Incarnation& one) { return one.replica >= replica; });
    if (at == known_.end() || at->replica != replica) {
        Incarnation fresh;
        fresh.replica = replica;
        at = known_.insert(at, std::move(fresh));
    }
    return *at;
}

Copy Incarnations::judge(ReplicaId replica, const Origin& origin) const {
    const Incarnation* known = origin.database != 0 ? find(replica) : nullptr;
    return known != nullptr ? known->judge(origin) : Copy::kCurrent;
}

bool Incarnations::replaces(ReplicaId replica, const Origin& origin) const {
    const Incarnation* known = find(replica);
    return known != nullptr && known->database != origin.database;
}

bool Incarnations::names(ReplicaId replica, const Origin& origin) const {
    const Incarnation* known = find(replica);
    return known != nullptr && known->is(origin);
}

bool Incarnations::record(ReplicaId replica, const Origin& origin) {
    if (origin.database == 0 || names(replica, origin) || judge(replica, origin) != Copy::kCurrent)
        return false;
    Incarnation& known = place(replica);
    if (known.database != 0 && known.database != origin.database) {
        if (known.before.size() == kMaxDatabasesBefore) known.before.erase(known.before.begin());
        known.before.push_back(known.database);
    }
    known.database = origin.database;
    known.start = origin.start;
    known.run = origin.run;
    return true;
}

bool Incarnations::learn(const Incarnations& decided) {
    bool all = true;
    for (const Incarnation& theirs : decided.known_) {
        Incarnation& mine = place(theirs.replica);
        const auto& replaced = mine.before;
        const bool older = mine.database == theirs.database ? theirs.start < mine.start
                                                            : std::find(replaced.begin(), replaced.end(),
                                                                        theirs.database) != replaced.end();
        if (older)
            all = false;
        else
            mine = theirs;
    }
    return all && decided.known_.size() == known_.size();
}

void Incarnations::keep_only(const std::vector<ReplicaId>& replicas) {
    std::erase_if(known_, [&](const Incarnation& one) {
        return std::find(replicas.begin(), replicas.end(), one.replica) == replicas.end();
    });
}

void encode(const Incarnations& table, std::string& out) {
    CRANE_CHECK(!table.known_.empty() && table.known_.size() <= kMaxIncarnations);
    put_int(out, static_cast<uint8_t>(table.known_.size()));
    for (const Incarnation& one : table.known_) {
        put_int(out, one.replica);
        for (const uint64_t word : {one.database, one.start, one.run}) put_int(out, word);
        put_int(out, static_cast<uint8_t>(one.before.size()));
        for (const uint64_t database : one.before) put_int(out, database);
    }
}

bool decode(std::string_view bytes, Incarnations& table) {
    WireReader in(bytes);
    table.known_.clear();
    const uint8_t count = in.get_int<uint8_t>();
    if (in.bad() || count == 0 || count > kMaxIncarnations) return false;
    ReplicaId previous = kNoReplica;
    for (uint8_t i = 0; i < count; ++i) {
        Incarnation one;
        one.replica = in.get_int<uint32_t>();
        for (uint64_t* word : {&one.database, &one.start, &one.run}) *word = in.get_int<uint64_t>();
        const uint8_t before = in.get_int<uint8_t>();
        if (in.bad() || one.replica <= previous || one.replica > kMaxReplicaId || one.database == 0 ||
            one.run == 0 || before > kMaxDatabasesBefore)
            return false;
        previous = one.replica;
        for (uint8_t j = 0; j < before; ++j) one.before.push_back(in.get_int<uint64_t>());
        table.known_.push_back(std::move(one));
    }
    return in.finished();
}

std::string describe(const Incarnations& table) {
    std::string text;
    for (const Incarnation& one : table.known())
        text += (text.empty() ? "" : ", ") + std::string("start ") + std::to_string(one.start) +
                " of replica " + std::to_string(one.replica);
    return text;
}

}  // namespace crane::paxos
