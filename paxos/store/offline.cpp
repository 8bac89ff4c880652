#include "paxos/store/offline.hpp"

#include <db.h>

#include <algorithm>

#include "base/check.hpp"
#include "paxos/core/describe.hpp"
#include "paxos/store/store.hpp"

namespace crane::paxos {
namespace {

constexpr size_t kMaxProblems = 100;

// Checks entry after entry against the one before.
class LogCheck {
  public:
    explicit LogCheck(StoreReport& report) : report_(report) {}

    bool visit(const Entry& entry) {
        if (first_) start(entry);
        const std::string name = "entry " + describe(entry.position());
        if (entry.index != last_.index + 1) problem(name + " follows entry " + std::to_string(last_.index));
        if (known_ && entry.chain != chain_hash(last_.chain, entry))
            problem(name + " does not continue " + describe(last_) + ": its hash chain breaks");
        if (entry.view < last_.view) problem(name + " follows " + describe(last_) + " of a later view");
        if (entry.kind == EntryKind::kNewView && entry.view == last_.view && known_)
            problem(name + " begins a view that has begun");
        if (entry.view != last_.view) ++report_.views;
        if (entry.view != last_.view && entry.kind != EntryKind::kNewView && !forced(entry))
            problem(name + " is the first of its view, and should begin it");
        if (entry.kind == EntryKind::kMembership) membership_index_ = entry.index;
        ++report_.entries;
        report_.bytes += entry.size_bytes();
        last_ = entry.position();
        known_ = true;
        return report_.problems.size() < kMaxProblems;
    }

    void finish(const StoredState& state) {
        report_.state = state;
        if (state.end != last_ && report_.entries > 0)
            problem("the log ends at " + describe(last_) + ", its state says " + describe(state.end));
        if (state.view < state.end.view)
            problem("the log ends at " + describe(state.end) + ", behind the promised view " +
                    view_name(state.view));
        const uint64_t stored = state.memberships.empty() ? 0 : state.memberships.back().index;
        if (membership_index_ != 0 && membership_index_ != stored)
            problem("the newest membership is that of entry " + std::to_string(membership_index_) +
                    ", the state says entry " + std::to_string(stored));
    }

    void problem(const std::string& what) { report_.problems.push_back(what); }

  private:
    // The first entry kept: what came before it is known from the state alone, which is checked at its end.
    void start(const Entry& entry) {
        first_ = false;
        last_ = {entry.index - 1, entry.index == 1 ? 0 : entry.view, 0};
        known_ = entry.index == 1;
        if (!known_) ++report_.views;
    }
    // The only entry that begins a view without being its NewView: see force_new_cluster().
    static bool forced(const Entry& entry) { return entry.kind == EntryKind::kMembership; }

    StoreReport& report_;
    LogPosition last_;
    bool first_ = true, known_ = false;
    uint64_t membership_index_ = 0;
};

void verify_pages(const std::string& directory, LogCheck& check) {
    DB* handle = nullptr;
    if (const int code = db_create(&handle, nullptr, 0); code != 0) {
        check.problem(std::string("the pages cannot be checked: ") + db_strerror(code));
        return;
    }
    handle->set_errcall(handle, [](const DB_ENV*, const char*, const char*) {});
    const int code =
        handle->verify(handle, (directory + "/log.db").c_str(), nullptr, nullptr, 0);  // closes it
    if (code != 0) check.problem(std::string("log.db: a page does not hold: ") + db_strerror(code));
}

}  // namespace

StoreReport verify_store(const std::string& directory, FileSystem* files) {
    StoreReport report;
    LogCheck check(report);
    bool opened = false;
    const auto visit = [&](const Entry& entry) {
        opened = true;
        return check.visit(entry);
    };
    try {
        const OfflineLog log = read_offline(directory, 1, visit, files);
        report.cluster_id = log.cluster_id;
        report.replica = log.replica;
        report.recovery = log.recovery;
        check.finish(log.state);
        opened = true;
    } catch (const DamagedStore& error) {
        // The pages are not looked at as well: Berkeley DB can search a damaged tree for minutes.
        check.problem(error.what());
        return report;
    }
    CRANE_CHECK(opened);
    verify_pages(directory, check);
    return report;
}

std::string why_not_forced(ReplicaId replica, const StoredState& state) {
    const std::string who = "replica " + std::to_string(replica);
    if (state.rejoining)
        return who +
               " lost its database and has not caught up since: its log may lack what was decided. Use "
               "another replica's";
    // As long as it is not decided that it votes no more, it may have the only copy of what is.
    const bool votes =
        std::any_of(state.memberships.begin(), state.memberships.end(), [&](const MembershipAt& at) {
            const bool past =
                &at != &state.memberships.back() && state.commit >= state.memberships.back().index;
            return !past && at.membership.voter(replica);
        });
    if (state.memberships.empty() || votes) return "";
    return who + " does not vote: it was a learner, or removed. Use another replica's";
}

ForcedCluster force_new_cluster(const std::string& directory) {
    const OfflineLog log = read_offline(directory, 1, [](const Entry&) { return false; });
    const std::string refusal = why_not_forced(log.replica, log.state);
    if (!refusal.empty()) throw StorageError(directory + ": " + refusal);
    BdbStore store({directory, log.cluster_id, log.replica});
    ForcedCluster forced;
    forced.before = store.load();
    Membership members;
    std::string address;  // whoever is added later looks for it there
    for (const MembershipAt& at : forced.before.memberships)
        if (const Member* own = at.membership.find(log.replica); own != nullptr) address = own->address;
    members.add({log.replica, true, address});
    for (const MembershipAt& at : forced.before.memberships)
        members.highest_id = std::max(members.highest_id, at.membership.highest_id);
    std::string value;
    encode(members, value);
    Entry& entry = forced.entry;
    entry.index = forced.before.end.index + 1;
    entry.view = make_view(view_counter(forced.before.view) + 1, log.replica);
    entry.kind = EntryKind::kMembership;
    entry.value = std::make_shared<const std::string>(std::move(value));
    entry.chain = chain_hash(forced.before.end.chain, entry);
    PersistBatch batch;
    batch.has_view = true;
    batch.view = entry.view;
    batch.append = {entry};
    batch.memberships = {{entry.index, members}};
    batch.commit = entry.index;
    store.persist(batch);
    store.own();
    store.close(entry.index);
    return forced;
}

}  // namespace crane::paxos
