#include "paxos/bdb.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "paxos/check.hpp"
#include "paxos/storage.hpp"

namespace crane::paxos {
namespace {

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

void make_directories(FileSystem& files, const std::string& path) {
    for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
        const std::string part = path.substr(0, slash);
        const int error = files.make_directory(part);
        if (error != 0)
            throw StorageError("cannot create database directory " + part + ": " + std::strerror(error));
        if (slash == std::string::npos) return;
    }
}

}  // namespace

BdbEnvironment::BdbEnvironment(const StoreOptions& options, bool create)
    : directory_(options.directory),
      durable_(options.durable),
      sizes_(options.sizes),
      files_(options.files != nullptr ? *options.files : host_files()) {
    if (create) make_directories(files_, directory_);
    try {
        lock_directory();
        open_environment(create);
        open_tree(create);
        sync_inherited();
    } catch (...) {
        close_handles();
        throw;
    }
}

BdbEnvironment::~BdbEnvironment() {
    if (!failed_ && maintenance_error_ == 0) env_->txn_checkpoint(env_, 0, 0, DB_FORCE);
    close_handles();
}

void BdbEnvironment::close_handles() {
    // After an error nothing more is written: pages could reach the disk that the log knows nothing of. The
    // next start recovers.
    if (env_ != nullptr && (failed_ || maintenance_error_ != 0))
        env_->set_flags(env_, DB_PANIC_ENVIRONMENT, 1);
    if (tree_ != nullptr) tree_->close(tree_, DB_NOSYNC);
    if (env_ != nullptr) env_->close(env_, 0);
    if (lock_ >= 0) files_.unlock(lock_);
    tree_ = nullptr;
    env_ = nullptr;
    lock_ = -1;
}

void BdbEnvironment::fail(const char* what, int code) const {
    failed_ = true;
    bool write_failed = false;
    std::string text = "database " + directory_ + ": " + what + ": " + db_strerror(code);
    {
        std::lock_guard<std::mutex> guard(message_mutex_);
        if (!last_message_.empty()) text += " (" + last_message_ + ")";
        write_failed = write_failed_ || maintenance_error_ != 0;
    }
    const bool full = code == ENOSPC || files_.free_bytes(directory_) < full_disk_bytes;
    if (full)
        text += ". The disk is full: free some space there and start this replica again; nothing is lost";
    if (!full && write_failed)
        text += ". The disk could not be written: mend it and start this replica again; nothing is lost";
    else if (!full && (code == DB_RUNRECOVERY || code == DB_VERIFY_BAD || code == DB_PAGE_NOTFOUND))
        throw DamagedStore(
            text + ". The database is damaged: restore this replica from a checkpoint of another one");
    throw StorageError(text);
}

// When the write of a commit fails, Berkeley DB 5.3 goes on to turn the commit into an abort, where it may
// take what it has not written for a record and write past its memory. An environment in panic refuses
// before.
void BdbEnvironment::on_event(DB_ENV* env, u_int32_t event, void*) {
    if (event != DB_EVENT_WRITE_FAILED) return;
    auto* self = static_cast<BdbEnvironment*>(env->app_private);
    {
        std::lock_guard<std::mutex> guard(self->message_mutex_);
        self->write_failed_ = true;
    }
    env->set_flags(env, DB_PANIC_ENVIRONMENT, 1);
}

void BdbEnvironment::on_message(const DB_ENV* env, const char*, const char* message) {
    auto* self = static_cast<BdbEnvironment*>(const_cast<DB_ENV*>(env)->app_private);
    std::lock_guard<std::mutex> guard(self->message_mutex_);
    self->last_message_ = message;
    ++self->messages_;
}

void BdbEnvironment::on_recovery(const DB_ENV* env, const char* message) {
    auto* self = static_cast<BdbEnvironment*>(const_cast<DB_ENV*>(env)->app_private);
    if (std::strstr(message, "last valid log LSN") != nullptr) self->recovery_message_ = message;
}

// Recovery itself cuts in silence what lies behind the last record that holds.
void BdbEnvironment::tell_recovery(const LogTail& before) {
    const size_t colon = recovery_message_.find("file: ");
    unsigned file = 0;
    unsigned long offset = 0;
    if (before.file == 0 || colon == std::string::npos) return;
    if (std::sscanf(recovery_message_.c_str() + colon, "file: %u offset %lu", &file, &offset) != 2) return;
    if (file != before.file || before.bytes <= offset) return;
    recovery_ =
        "database " + directory_ + ": dropped the last " + std::to_string(before.bytes - offset) +
        " bytes of the write-ahead log, from byte " + std::to_string(offset) + " of file " +
        std::to_string(file) +
        " on: a write that was under way when the process or the machine ended, and that the disk had "
        "not confirmed";
}

void BdbEnvironment::lock_directory() {
    const std::string path = directory_ + "/lock";
    lock_ = files_.lock(path);
    if (lock_ < 0 && lock_ != -EWOULDBLOCK)
        throw StorageError("cannot open and lock " + path + ": " + std::strerror(-lock_));
    if (lock_ < 0)
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
    env_->set_event_notify(env_, on_event);
    env_->set_cachesize(env_, 0, sizes_.cache_bytes, 1);
    env_->set_lg_bsize(env_, sizes_.log_buffer_bytes);
    env_->set_lg_max(env_, sizes_.log_file_bytes);
    env_->log_set_config(env_, DB_LOG_AUTO_REMOVE, 1);
    const uint32_t flags =
        DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_PRIVATE | DB_THREAD | DB_CREATE | DB_RECOVER;
    if (!create && !files_.exists(directory_ + "/log.db"))
        throw StorageError("there is no database in " + directory_);
    const LogTail before = files_.log_tail(directory_);
    env_->set_verbose(env_, DB_VERB_RECOVERY, 1);
    env_->set_msgcall(env_, on_recovery);
    code = env_->open(env_, directory_.c_str(), flags, 0600);
    if (code != 0) fail("open and recover", code);
    env_->set_verbose(env_, DB_VERB_RECOVERY, 0);
    tell_recovery(before);
}

void BdbEnvironment::open_tree(bool create) {
    int code = db_create(&tree_, env_, 0);
    if (code != 0) {
        tree_ = nullptr;
        fail("create handle", code);
    }
    tree_->set_pagesize(tree_, sizes_.page_bytes);
    tree_->set_flags(tree_, DB_CHKSUM);
    const uint32_t flags = DB_AUTO_COMMIT | DB_THREAD | (create ? DB_CREATE : 0);
    code = tree_->open(tree_, nullptr, "log.db", nullptr, DB_BTREE, flags, 0600);
    if (code != 0) fail("open log.db", code);
}

// What recovery has found may have been written by a process that died before its sync: it is then in the
// operating system's memory alone, and recovery, which takes its end for synced, does not always write more.
// Nobody may be told of it before it is on disk: a checkpoint is one record more, and a sync of all before
// it.
void BdbEnvironment::sync_inherited() {
    const int code = env_->txn_checkpoint(env_, 0, 0, DB_FORCE);
    if (code != 0) fail("write what was recovered", code);
}

void BdbEnvironment::maintain() {
    const int code = env_->txn_checkpoint(env_, sizes_.checkpoint_kbytes, 0, 0);
    if (code == 0) return;
    std::lock_guard<std::mutex> guard(message_mutex_);
    maintenance_error_ = code;
}

// A sync that fails may have thrown away what it could not write, and the next one then succeeds: so an error
// is final, wherever it was met.
void BdbEnvironment::check() const {
    int code = 0;
    {
        std::lock_guard<std::mutex> guard(message_mutex_);
        code = maintenance_error_;
    }
    if (code != 0) fail("write back", code);
}

uint64_t BdbEnvironment::messages() const {
    std::lock_guard<std::mutex> guard(message_mutex_);
    return messages_;
}

BdbEnvironment::Transaction::Transaction(BdbEnvironment& environment) : environment_(environment) {
    environment_.check();
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
    const uint64_t messages = environment_.messages();
    const int code =
        handle->commit(handle, sync && environment_.durable_ ? DB_TXN_SYNC : DB_TXN_WRITE_NOSYNC);
    if (code != 0) environment_.fail("commit", code);
    // Where the log goes on in a new file and that one cannot be written, Berkeley DB 5.3 complains and
    // reports success: it takes a commit in any but the file that it has synced last for one that is on disk.
    if (environment_.messages() != messages) environment_.fail("commit", EIO);
    environment_.check();
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
