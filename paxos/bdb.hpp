// Berkeley DB's C handles, owned: environment, one tree, transactions. Turns return codes into StorageError.
#pragma once

#include <db.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "paxos/store.hpp"

namespace crane::paxos {

class BdbEnvironment {
  public:
    // Takes the directory's lock, recovers, opens the tree. `create` false: fails when there is no database.
    BdbEnvironment(const StoreOptions& options, bool create);
    ~BdbEnvironment();
    BdbEnvironment(const BdbEnvironment&) = delete;
    BdbEnvironment& operator=(const BdbEnvironment&) = delete;

    // A transaction: aborted unless committed.
    class Transaction {
      public:
        explicit Transaction(BdbEnvironment& environment);
        ~Transaction();
        Transaction(const Transaction&) = delete;
        Transaction& operator=(const Transaction&) = delete;
        void put(std::string_view key, std::string_view value);
        void erase(std::string_view key);
        void commit(bool sync);

      private:
        BdbEnvironment& environment_;
        DB_TXN* handle_ = nullptr;
    };

    bool get(std::string_view key, std::string& value) const;
    // The greatest key, or the least key above `after`; false when there is none.
    bool last_key(std::string& key) const;
    bool next_key(std::string_view after, std::string& key) const;

    void maintain();  // see BdbStore
    const std::string& recovery() const { return recovery_; }

    // Throws when an error has been met behind the caller's back: see maintain().
    void check() const;
    [[noreturn]] void fail(const char* what, int code) const;

  private:
    void lock_directory();
    void open_environment(bool create);
    void tell_recovery(const LogTail& before);
    void open_tree(bool create);
    uint64_t messages() const;
    void sync_inherited();
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
    std::string recovery_;          // what recovery has cut off, in words; empty: nothing
    std::string recovery_message_;  // where it found the last record that holds
    int maintenance_error_ = 0;
    mutable bool failed_ = false;
    bool write_failed_ = false;
    mutable std::mutex message_mutex_;

    static void on_recovery(const DB_ENV* env, const char* message);
    static void on_event(DB_ENV* env, u_int32_t event, void* info);
    static void on_message(const DB_ENV* env, const char* prefix, const char* message);
};

}  // namespace crane::paxos
