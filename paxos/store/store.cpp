#include "paxos/store/store.hpp"

#include <algorithm>
#include <random>

#include "base/check.hpp"
#include "paxos/store/bdb.hpp"
#include "paxos/store/record.hpp"
#include "paxos/store/segment.hpp"

namespace crane::paxos {
namespace {

// The commit index is only a head start for the next run: worth a write of its own only now and then.
constexpr uint64_t kCommitLag = 256;
constexpr uint64_t kVerifiedAtOpen = 256;        // newest entries
constexpr uint64_t kDeletionsPerCall = 1024;     // segments
constexpr size_t kMaxSegmentBytes = 256u << 10;  // of values, unless one alone is larger

std::string_view view_of(const RecordKey& key) {
    return {key.data(), key.size()};
}

uint64_t random_number() {
    std::random_device device;
    return (uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

class BdbStore::Impl {
  public:
    Impl(const StoreOptions& options, bool create)
        : directory_(options.directory),
          durable_(options.durable),
          segment_bytes_(std::min<size_t>(kMaxSegmentBytes, options.sizes.log_file_bytes / 4)),
          environment_(options, create) {
        std::string bytes;
        if (!environment_.get(view_of(make_key(0)), bytes)) {
            if (!create || !environment_.is_new()) damaged("it has no state record");
            initialise(options);
            environment_.set_complete();
            return;
        }
        if (!decode_state(bytes, state_)) damaged("the checksum of its state record does not hold");
        if (state_.version < kOldestRecordVersion || state_.version > kRecordVersion)
            throw StorageError("database " + directory_ + " has format version " +
                               std::to_string(state_.version) + "; this program reads version " +
                               std::to_string(kRecordVersion));
        if (create) check_identity(options);
        environment_.set_complete();
    }

    [[noreturn]] void damaged(const std::string& how) const {
        std::string text = "database " + directory_ + " is damaged: " + how;
        if (!environment_.recovery().empty()) text += " (" + environment_.recovery() + ")";
        throw DamagedStore(text + ". " + kRebuildAdvice);
    }

    StoredState load() const {
        StoredState stored;
        stored.view = state_.view;
        stored.commit = state_.commit;
        stored.rejoining = state_.rejoining;
        stored.database = state_.database;
        stored.starts = state_.starts;
        stored.replaces = state_.replaces;
        if (!state_.runs.empty()) stored.previous_runs.assign(state_.runs.begin() + 1, state_.runs.end());
        stored.known_starts = state_.known_starts;
        stored.memberships = state_.memberships;
        stored.start = stored.end = state_.start;
        std::string key;
        if (!environment_.last_key(key)) damaged("it has no last key");
        const uint64_t last = index_of(key);
        if (last > state_.start.index) stored.end = verify_tail(last);
        if (stored.end.view > stored.view) damaged("its log is ahead of its view");
        if (stored.commit > stored.end.index)
            damaged("its log ends at entry " + std::to_string(stored.end.index) + ", and entry " +
                    std::to_string(stored.commit) + " was known to be decided");
        stored.commit = std::max(stored.commit, stored.start.index);
        return stored;
    }

    void persist(const PersistBatch& batch) {
        CRANE_CHECK(!batch.empty());
        BdbEnvironment::Transaction transaction(environment_);
        if (batch.truncate_from != 0) truncate_tail(transaction, batch);
        append(transaction, batch.append);
        if (batch.has_view || batch.rejoined || !batch.memberships.empty() || batch.has_starts ||
            batch.commit >= state_.commit + kCommitLag) {
            CRANE_CHECK(!batch.has_view || batch.view > state_.view);
            if (batch.has_view) state_.view = batch.view;
            if (batch.rejoined) state_.rejoining = false;
            if (!batch.memberships.empty()) state_.memberships = batch.memberships;
            if (batch.has_starts) state_.known_starts = batch.starts;
            state_.commit = std::max(state_.commit, batch.commit);
            put_state(transaction);
        }
        transaction.commit(true);
        ++syncs_;
    }

    void begin_run(uint64_t run) {
        if (state_.disowned)
            throw DisownedStore("database " + directory_ +
                                " was found to be an old or a second copy. Rebuild this replica: move the "
                                "directory away and start with rejoin = true under [consensus], while the "
                                "others run");
        if (state_.database == 0) state_.database = random_number();  // made before they were counted
        ++state_.starts;
        state_.version = kRecordVersion;
        state_.runs.insert(state_.runs.begin(), run);
        if (state_.runs.size() > kMaxStoredRuns) state_.runs.pop_back();
        save_state();
    }

    void set_disowned(bool disowned) {
        state_.disowned = disowned;
        save_state();
    }

    void save_state() {
        BdbEnvironment::Transaction transaction(environment_);
        put_state(transaction);
        transaction.commit(true);
        ++syncs_;
    }

    void restart_at(const LogPosition& start, const MembershipAt& membership, const Incarnations& starts) {
        if (start.index <= state_.start.index || holds(start)) return;
        // `start` is decided and not in this log, so nothing that follows here can be decided: dropping it
        // forgets nothing. What lies before is deleted by the next truncate_front().
        BdbEnvironment::Transaction transaction(environment_);
        for (Segment segment; find(start.index + 1, segment);)
            transaction.erase(view_of(make_key(segment.last)));
        state_.start = start;
        state_.commit = std::max(state_.commit, start.index);
        state_.view = std::max(state_.view, start.view);
        if (!membership.membership.members.empty()) state_.memberships = {membership};
        state_.known_starts.table.learn(starts);
        state_.known_starts.index = 0;  // no entry of this log has them
        put_state(transaction);
        transaction.commit(true);
        ++syncs_;
    }

    bool truncate_front(const LogPosition& start) {
        BdbEnvironment::Transaction transaction(environment_);
        if (start.index > state_.start.index) {
            state_.start = start;
            put_state(transaction);
        }
        uint64_t deleted = 0;
        Segment segment;
        bool found = find(1, segment);
        for (; found && segment.last <= state_.start.index && deleted < kDeletionsPerCall; ++deleted) {
            transaction.erase(view_of(make_key(segment.last)));
            found = find(segment.last + 1, segment);
        }
        transaction.commit(false);  // lost in a crash: cut again later
        if (found || newest_.file != 0) environment_.release_log(found ? segment.place.file : newest_.file);
        return deleted == kDeletionsPerCall;
    }

    void read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const {
        CRANE_CHECK(first > state_.start.index && first <= last);
        BdbEnvironment::LogCursor cursor(environment_);
        size_t bytes = 0;
        uint64_t index = first;
        while (index <= last) {
            Segment segment;
            if (!find(index, segment) || segment.first > index) missing(index);
            SegmentReader in(cursor.read(segment.place));
            uint64_t found = 0;
            for (std::string_view record; index <= std::min(last, segment.last) && in.next(found, record);) {
                if (found < index) continue;
                Entry entry;
                if (found > index) missing(index);
                if (!decode_entry(index, record, entry))
                    damaged("the checksum of entry " + std::to_string(index) + " does not hold");
                bytes += entry.size_bytes();
                if (index > first && bytes > max_bytes) return;
                out.push_back(std::move(entry));
                ++index;
            }
            if (index <= std::min(last, segment.last)) missing(index);
        }
    }

    void save_commit(uint64_t commit) {
        if (commit <= state_.commit) return;
        state_.commit = commit;
        BdbEnvironment::Transaction transaction(environment_);
        put_state(transaction);
        transaction.commit(true);
    }

    void maintain() { environment_.maintain(); }

    const StateRecord& state() const { return state_; }
    uint64_t syncs() const { return durable_ ? syncs_ : 0; }
    const std::string& recovery() const { return environment_.recovery(); }

  private:
    uint64_t index_of(const std::string& bytes) const {
        RecordKey key;
        if (bytes.size() != key.size()) damaged("a key of its tree is unreadable");
        std::copy(bytes.begin(), bytes.end(), key.begin());
        return key_index(key);
    }

    // The segment that has entry `index`, or else the first one behind it.
    bool find(uint64_t index, Segment& segment) const {
        std::string key, value;
        if (!environment_.seek(view_of(make_key(index)), key, value)) return false;
        const uint64_t last = index_of(key);
        if (!decode_segment(last, value, segment))
            damaged("what it knows of entry " + std::to_string(last) + " is unreadable");
        return true;
    }

    [[noreturn]] void missing(uint64_t index) const {
        damaged("entry " + std::to_string(index) + " is missing");
    }

    bool holds(const LogPosition& position) const {
        Segment segment;
        if (!find(position.index, segment) || segment.first > position.index) return false;
        std::vector<Entry> entries;
        read(position.index, position.index, 1, entries);
        return entries.front().position() == position;
    }

    void append(BdbEnvironment::Transaction& transaction, const std::vector<Entry>& entries) {
        for (const Entry& entry : entries) {
            if (!writer_.empty() && writer_.record().size() + entry.size_bytes() > segment_bytes_)
                put_segment(transaction);
            writer_.add(entry);
        }
        if (!writer_.empty()) put_segment(transaction);
    }

    void put_segment(BdbEnvironment::Transaction& transaction) {
        writer_.set_synced(environment_.synced());
        newest_ = transaction.log(writer_.record());
        encode_segment({writer_.first(), writer_.last(), newest_}, buffer_);
        transaction.put(view_of(make_key(writer_.last())), buffer_);
        writer_.clear();
    }

    void initialise(const StoreOptions& options) {
        CRANE_CHECK(!options.cluster_id.empty() && options.cluster_id.size() <= kMaxClusterIdBytes);
        state_.cluster_id = options.cluster_id;
        state_.replica = options.replica;
        state_.rejoining = state_.replaces = options.rejoin;
        state_.database = options.database != 0 ? options.database : random_number();
        BdbEnvironment::Transaction transaction(environment_);
        put_state(transaction);
        transaction.commit(true);
        ++syncs_;
    }

    void check_identity(const StoreOptions& options) const {
        if (state_.cluster_id != options.cluster_id)
            throw StorageError("database " + directory_ + " belongs to cluster " + state_.cluster_id +
                               ", not to " + options.cluster_id +
                               ": check cluster_id and state_dir, or use an empty directory");
        if (state_.replica != options.replica)
            throw StorageError("database " + directory_ + " belongs to replica " +
                               std::to_string(state_.replica) + ", not to replica " +
                               std::to_string(options.replica) + ": check replica_id and state_dir");
    }

    void put_state(BdbEnvironment::Transaction& transaction) {
        encode_state(state_, buffer_);
        transaction.put(view_of(make_key(0)), buffer_);
    }

    void truncate_tail(BdbEnvironment::Transaction& transaction, const PersistBatch& batch) {
        CRANE_CHECK(batch.truncate_from > state_.commit && batch.truncate_from > state_.start.index);
        for (Segment segment; find(batch.truncate_from, segment);) {
            transaction.erase(view_of(make_key(segment.last)));
            if (segment.first >= batch.truncate_from) continue;
            encode_segment(segment, buffer_);
            transaction.put(view_of(make_key(batch.truncate_from - 1)), buffer_);
        }
    }

    LogPosition verify_tail(uint64_t last) const {
        const uint64_t oldest = state_.start.index + 1;
        const uint64_t first = last - oldest >= kVerifiedAtOpen ? last - kVerifiedAtOpen + 1 : oldest;
        LogPosition position = state_.start;
        uint64_t index = first;
        while (index <= last) {
            std::vector<Entry> entries;
            read(index, last, kMaxSegmentBytes, entries);
            for (const Entry& entry : entries) {
                if ((index > first || first == oldest) && entry.chain != chain_hash(position.chain, entry))
                    damaged("entry " + std::to_string(index) + " does not continue the one before it");
                position = entry.position();
                ++index;
            }
        }
        return position;
    }

    const std::string directory_;
    const bool durable_;
    const size_t segment_bytes_;
    BdbEnvironment environment_;
    StateRecord state_;
    uint64_t syncs_ = 0;
    SegmentWriter writer_;
    LogPlace newest_;  // of what this process wrote
    std::string buffer_;
};

BdbStore::BdbStore(const StoreOptions& options) : impl_(std::make_unique<Impl>(options, true)) {}
BdbStore::~BdbStore() = default;

StoredState BdbStore::load() {
    return impl_->load();
}
void BdbStore::persist(const PersistBatch& batch) {
    impl_->persist(batch);
}
bool BdbStore::truncate_front(const LogPosition& start) {
    return impl_->truncate_front(start);
}
void BdbStore::restart_at(const LogPosition& start, const MembershipAt& membership,
                          const Incarnations& starts) {
    impl_->restart_at(start, membership, starts);
}
void BdbStore::begin_run(uint64_t run) {
    impl_->begin_run(run);
}
void BdbStore::disown() {
    impl_->set_disowned(true);
}
void BdbStore::own() {
    impl_->set_disowned(false);
}
const std::string& BdbStore::recovery() const {
    return impl_->recovery();
}
uint64_t BdbStore::syncs() const {
    return impl_->syncs();
}

void BdbStore::read(uint64_t first, uint64_t last, size_t max_bytes, std::vector<Entry>& out) const {
    impl_->read(first, last, max_bytes, out);
}

void BdbStore::maintain() {
    impl_->maintain();
}

void BdbStore::close(uint64_t commit) {
    try {
        impl_->save_commit(commit);
    } catch (const StorageError&) {
        // Only a head start is lost.
    }
}

OfflineLog read_offline(const std::string& directory, uint64_t first,
                        const std::function<bool(const Entry&)>& visit, FileSystem* files) {
    StoreOptions options;
    options.directory = directory;
    options.files = files;
    const BdbStore::Impl store(options, false);
    OfflineLog log;
    log.cluster_id = store.state().cluster_id;
    log.replica = store.state().replica;
    log.state = store.load();
    log.recovery = store.recovery();
    uint64_t index = std::max(first, log.state.start.index + 1);
    while (index <= log.state.end.index) {
        std::vector<Entry> entries;
        store.read(index, log.state.end.index, kMaxSegmentBytes, entries);
        index += entries.size();
        for (const Entry& entry : entries)
            if (!visit(entry)) return log;
    }
    return log;
}

}  // namespace crane::paxos
