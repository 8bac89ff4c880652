#include "paxos/bdb.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "paxos/check.hpp"
#include "paxos/storage.hpp"

namespace crane::paxos {
namespace {

constexpr uint32_t cache_bytes = 16u << 20;
constexpr uint32_t log_buffer_bytes = 2u << 20;
constexpr uint32_t log_file_bytes = 16u << 20;
constexpr uint32_t page_bytes =
    8192;  // entries up to about 2 KB stay in the tree, larger ones get pages of their own
constexpr uint32_t checkpoint_kbytes = 8192;
constexpr auto checkpoint_interval = std::chrono::seconds(1);
constexpr uint64_t full_disk_bytes = 1u << 20;

DBT make_dbt(std::string_view bytes) {
    DBT dbt{};
    dbt.data = const_cast<char*>(bytes.data());
    dbt.size = static_cast<uint32_t>(bytes.size());
    dbt.ulen = dbt.size;
    dbt.flags = DB_DBT_USERMEM;
    return dbt;
}

// A DBT that Berkeley DB allocates.
struct OwnedDbt {
    DBT dbt{};
    OwnedDbt() { dbt.flags = DB_DBT_MALLOC; }
    ~OwnedDbt() { std::free(dbt.data); }
    OwnedDbt(const OwnedDbt&) = delete;
    OwnedDbt& operator=(const OwnedDbt&) = delete;
    std::string_view bytes() const { return {static_cast<const char*>(dbt.data), dbt.size}; }
};

void make_directories(const std::string& path) {
    for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
        const std::string part = path.substr(0, slash);
        if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
            throw StorageError("cannot create database directory " + part + ": " + std::strerror(errno));
        if (slash == std::string::npos) return;
    }
}

}  // namespace

BdbEnvironment::BdbEnvironment(const std::string& directory, bool create, bool durable)
    : directory_(directory), durable_(durable) {
    if (create) make_directories(directory);
    try {
        lock_directory();
        open_environment(create);
        open_tree(create);
    } catch (...) {
        close_handles();
        throw;
    }
    checkpointer_ = std::thread([this] { checkpoint_loop(); });
}

BdbEnvironment::~BdbEnvironment() {
    {
        std::lock_guard<std::mutex> guard(stop_mutex_);
        stopping_ = true;
    }
    stop_signal_.notify_all();
    checkpointer_.join();
    env_->txn_checkpoint(env_, 0, 0, DB_FORCE);
    close_handles();
}

void BdbEnvironment::close_handles() {
    if (tree_ != nullptr) tree_->close(tree_, DB_NOSYNC);
    if (env_ != nullptr) env_->close(env_, 0);
    if (lock_fd_ >= 0) ::close(lock_fd_);
    tree_ = nullptr;
    env_ = nullptr;
    lock_fd_ = -1;
}

void BdbEnvironment::fail(const char* what, int code) const {
    std::string text = "database " + directory_ + ": " + what + ": " + db_strerror(code);
    {
        std::lock_guard<std::mutex> guard(message_mutex_);
        if (!last_message_.empty()) text += " (" + last_message_ + ")";
    }
    struct statvfs space {};
    const bool full = code == ENOSPC || (statvfs(directory_.c_str(), &space) == 0 &&
                                         space.f_bavail * uint64_t{space.f_frsize} < full_disk_bytes);
    if (full)
        text += ". The disk is full: free some space there and start this replica again; nothing is lost";
    if (!full && (code == DB_RUNRECOVERY || code == DB_VERIFY_BAD || code == DB_PAGE_NOTFOUND))
        throw DamagedStore(
            text + ". The database is damaged: restore this replica from a checkpoint of another one");
    throw StorageError(text);
}

void BdbEnvironment::on_message(const DB_ENV* env, const char*, const char* message) {
    auto* self = static_cast<BdbEnvironment*>(const_cast<DB_ENV*>(env)->app_private);
    std::lock_guard<std::mutex> guard(self->message_mutex_);
    self->last_message_ = message;
}

void BdbEnvironment::lock_directory() {
    const std::string path = directory_ + "/lock";
    lock_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_fd_ < 0) throw StorageError("cannot open " + path + ": " + std::strerror(errno));
    if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0)
        throw StorageError("database " + directory_ +
                           " is in use by another process: is this replica already running?");
}

void BdbEnvironment::open_environment(bool create) {
    int code = db_env_create(&env_, 0);
    if (code != 0) {
        env_ = nullptr;
        fail("create environment", code);
    }
    env_->app_private = this;
    env_->set_errcall(env_, on_message);
    env_->set_cachesize(env_, 0, cache_bytes, 1);
    env_->set_lg_bsize(env_, log_buffer_bytes);
    env_->set_lg_max(env_, log_file_bytes);
    env_->log_set_config(env_, DB_LOG_AUTO_REMOVE, 1);
    const uint32_t flags =
        DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_PRIVATE | DB_THREAD | DB_CREATE | DB_RECOVER;
    if (!create && access((directory_ + "/log.db").c_str(), F_OK) != 0)
        throw StorageError("there is no database in " + directory_);
    code = env_->open(env_, directory_.c_str(), flags, 0600);
    if (code != 0) fail("open and recover", code);
}

void BdbEnvironment::open_tree(bool create) {
    int code = db_create(&tree_, env_, 0);
    if (code != 0) {
        tree_ = nullptr;
        fail("create handle", code);
    }
    tree_->set_pagesize(tree_, page_bytes);
    tree_->set_flags(tree_, DB_CHKSUM);
    const uint32_t flags = DB_AUTO_COMMIT | DB_THREAD | (create ? DB_CREATE : 0);
    code = tree_->open(tree_, nullptr, "log.db", nullptr, DB_BTREE, flags, 0600);
    if (code != 0) fail("open log.db", code);
}

void BdbEnvironment::checkpoint_loop() {
    std::unique_lock<std::mutex> guard(stop_mutex_);
    while (!stop_signal_.wait_for(guard, checkpoint_interval, [this] { return stopping_; })) {
        guard.unlock();
        // Errors show up again in the next transaction, which reports them.
        env_->txn_checkpoint(env_, checkpoint_kbytes, 0, 0);
        guard.lock();
    }
}

BdbEnvironment::Transaction::Transaction(BdbEnvironment& environment) : environment_(environment) {
    const int code = environment_.env_->txn_begin(environment_.env_, nullptr, &handle_, 0);
    if (code != 0) environment_.fail("begin transaction", code);
}

BdbEnvironment::Transaction::~Transaction() {
    if (handle_ != nullptr) handle_->abort(handle_);
}

void BdbEnvironment::Transaction::put(std::string_view key, std::string_view value) {
    CRANE_CHECK(handle_ != nullptr);
    DBT key_dbt = make_dbt(key), value_dbt = make_dbt(value);
    const int code = environment_.tree_->put(environment_.tree_, handle_, &key_dbt, &value_dbt, 0);
    if (code != 0) environment_.fail("write", code);
}

void BdbEnvironment::Transaction::erase(std::string_view key) {
    CRANE_CHECK(handle_ != nullptr);
    DBT key_dbt = make_dbt(key);
    const int code = environment_.tree_->del(environment_.tree_, handle_, &key_dbt, 0);
    if (code != 0 && code != DB_NOTFOUND) environment_.fail("delete", code);
}

void BdbEnvironment::Transaction::commit(bool sync) {
    CRANE_CHECK(handle_ != nullptr);
    DB_TXN* handle = handle_;
    handle_ = nullptr;  // freed by commit whatever it returns
    const int code =
        handle->commit(handle, sync && environment_.durable_ ? DB_TXN_SYNC : DB_TXN_WRITE_NOSYNC);
    if (code != 0) environment_.fail("commit", code);
}

bool BdbEnvironment::get(std::string_view key, std::string& value) const {
    DBT key_dbt = make_dbt(key);
    OwnedDbt found;
    const int code = tree_->get(tree_, nullptr, &key_dbt, &found.dbt, 0);
    if (code == DB_NOTFOUND) return false;
    if (code != 0) fail("read", code);
    value.assign(found.bytes());
    return true;
}

bool BdbEnvironment::last_key(std::string& key) const {
    DBC* cursor = nullptr;
    int code = tree_->cursor(tree_, nullptr, &cursor, 0);
    if (code != 0) fail("open cursor", code);
    OwnedDbt found, value;
    code = cursor->get(cursor, &found.dbt, &value.dbt, DB_LAST);
    cursor->close(cursor);
    if (code == DB_NOTFOUND) return false;
    if (code != 0) fail("read last", code);
    key.assign(found.bytes());
    return true;
}

bool BdbEnvironment::next_key(std::string_view after, std::string& key) const {
    DBC* cursor = nullptr;
    int code = tree_->cursor(tree_, nullptr, &cursor, 0);
    if (code != 0) fail("open cursor", code);
    OwnedDbt found, value;
    std::string least(after);
    least.push_back('\0');
    found.dbt.data = std::malloc(least.size());
    CRANE_CHECK(found.dbt.data != nullptr);
    std::memcpy(found.dbt.data, least.data(), least.size());
    found.dbt.size = static_cast<uint32_t>(least.size());
    void* given = found.dbt.data;
    code = cursor->get(cursor, &found.dbt, &value.dbt, DB_SET_RANGE);
    cursor->close(cursor);
    if (found.dbt.data != given) std::free(given);
    if (code == DB_NOTFOUND) return false;
    if (code != 0) fail("seek", code);
    key.assign(found.bytes());
    return true;
}

}  // namespace crane::paxos
