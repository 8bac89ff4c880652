// Berkeley DB's C handles, owned: environment, one tree, transactions. Turns return codes into StorageError.
#pragma once

#include <db.h>

#include <atomic>
#include <compare>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/store/store.hpp"

namespace crane::paxos {

/// Where a record begins in the write-ahead log.
struct LogPlace {
    uint32_t file = 0;
    uint32_t offset = 0;
    auto operator<=>(const LogPlace&) const = default;
};

struct LogScan;
struct LogScans;

/// What to do about damage.
constexpr const char* kRebuildAdvice =
    "Rebuild this replica: move the directory away and start with rejoin = true under [consensus], while the "
    "others run";

class BdbEnvironment {
  public:
    /// Takes the directory's lock, recovers, opens the tree. `create` false: fails when there is no database.
    BdbEnvironment(const StoreOptions& options, bool create);
    ~BdbEnvironment();
    BdbEnvironment(const BdbEnvironment&) = delete;
    BdbEnvironment& operator=(const BdbEnvironment&) = delete;

    /// A transaction: aborted unless committed.
    class Transaction {
      public:
        explicit Transaction(BdbEnvironment& environment);
        ~Transaction();
        Transaction(const Transaction&) = delete;
        Transaction& operator=(const Transaction&) = delete;
        void put(std::string_view key, std::string_view value);
        void erase(std::string_view key);
        /// Puts a record of our own (segment.hpp) into the write-ahead log. It is on disk when a commit that
        /// follows is; without one nothing refers to it.
        LogPlace log(std::string_view record);
        void commit(bool sync);

      private:
        BdbEnvironment& environment_;
        DB_TXN* handle_ = nullptr;
    };

    bool get(std::string_view key, std::string& value) const;
    /// The greatest key, or the least one from `least` on, and what it holds; false when there is none.
    bool last_key(std::string& key) const;
    bool seek(std::string_view least, std::string& key, std::string& value) const;

    /// Reads what Transaction::log() has put. Keep it no longer than one reading takes: it may hold a file
    /// open.
    class LogCursor {
      public:
        explicit LogCursor(const BdbEnvironment& environment);
        ~LogCursor();
        LogCursor(const LogCursor&) = delete;
        LogCursor& operator=(const LogCursor&) = delete;
        /// Valid until the next call. Throws DamagedStore when there is no such record.
        std::string_view read(const LogPlace& place);

      private:
        const BdbEnvironment& environment_;
        DB_LOGC* handle_ = nullptr;
        DBT record_{};
    };

    /// The log is on disk up to here, as far as this process has waited for it.
    const LogPlace& synced() const { return synced_; }

    /// Being made: it was not there, or a process ended before set_complete().
    bool is_new() const { return new_; }
    void set_complete();

    void maintain();  ///< see BdbStore
    /// Nothing in the files of the write-ahead log before this one is referred to any more: the next
    /// maintain() removes them.
    void release_log(uint32_t before_file) { released_ = before_file; }
    const std::string& recovery() const { return recovery_; }

    /// Throws when an error has been met behind the caller's back: see maintain().
    void check() const;
    [[noreturn]] void fail(const char* what, int code) const;
    /// Berkeley DB has complained since `messages` was asked for, whatever it returned.
    void check_complaints(const char* what, uint64_t messages);

  private:
    void lock_directory();
    void reread_newest();
    void open_environment(bool create);
    void check_complete(bool create, const LogScans& logs);
    std::string mark_of_new() const { return directory_ + "/unfinished"; }
    std::string mark_of_unwritten() const { return directory_ + "/unwritten"; }
    void tell_recovery(const LogScan& before);
    void note_synced();
    void open_tree(bool create);
    uint64_t messages() const;
    struct LogFile {
        std::string path;
        uint32_t number = 0;
    };
    int list_log_files(uint32_t flags, std::vector<LogFile>& files) const;
    int remove_log_files(uint32_t before_file);
    void sync_inherited();
    void check_pages();
    bool system_complained() const;
    void check_kind(bool unusable) const;
    void close_handles();

    const std::string directory_;
    const bool durable_;
    const DatabaseSizes sizes_;
    FileSystem& files_;
    int lock_ = -1;
    DB_ENV* env_ = nullptr;
    DB* tree_ = nullptr;
    mutable std::string last_message_;
    uint64_t messages_ = 0;
    std::string recovery_;          ///< what recovery has cut off, in words; empty: nothing
    std::string recovery_message_;  ///< where it found the last record that holds
    int maintenance_error_ = 0;
    bool new_ = false;
    LogPlace synced_;
    std::atomic<bool> maintaining_ = false;
    std::atomic<uint32_t> released_ = 0;
    uint32_t removed_ = 0;  ///< the thread that maintains
    mutable bool failed_ = false;
    bool write_failed_ = false;
    int system_error_ = 0;  ///< the first that Berkeley DB complained of
    mutable std::mutex message_mutex_;

    static void on_recovery(const DB_ENV* env, const char* message);
    static void on_event(DB_ENV* env, u_int32_t event, void* info);
    static void on_message(const DB_ENV* env, const char* prefix, const char* message);
};

}  // namespace crane::paxos
