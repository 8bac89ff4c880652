// Berkeley DB's C handles, owned: environment, one tree, transactions. Turns return codes into StorageError.
#pragma once

#include <db.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace crane::paxos {

class BdbEnvironment {
  public:
    // Takes the directory's lock, recovers, opens the tree. `create` false: fails when there is no database.
    BdbEnvironment(const std::string& directory, bool create, bool durable);
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

    [[noreturn]] void fail(const char* what, int code) const;

  private:
    void lock_directory();
    void open_environment(bool create);
    void open_tree(bool create);
    void checkpoint_loop();
    void close_handles();

    const std::string directory_;
    const bool durable_;
    int lock_fd_ = -1;
    DB_ENV* env_ = nullptr;
    DB* tree_ = nullptr;
    mutable std::string last_message_;
    mutable std::mutex message_mutex_;
    std::thread checkpointer_;
    std::mutex stop_mutex_;
    std::condition_variable stop_signal_;
    bool stopping_ = false;

    static void on_message(const DB_ENV* env, const char* prefix, const char* message);
};

}  // namespace crane::paxos
