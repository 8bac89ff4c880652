#include "paxos/store/bdb.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.hpp"
#include "paxos/core/storage.hpp"
#include "paxos/store/log_scan.hpp"
#include "paxos/store/page_scan.hpp"

namespace crane::paxos {
namespace {

constexpr uint64_t kFullDiskBytes = 1u << 20;

void make_directories(FileSystem& files, const std::string& path) {
    for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
        const std::string part = path.substr(0, slash);
        const int error = files.make_directory(part);
        if (error != 0)
            throw StorageError("cannot create database directory " + part + ": " + std::strerror(error));
        if (slash == std::string::npos) return;
    }
}

// What a system may refuse to a sound database.
constexpr std::array kRefusals = {EIO, ENOSPC, EDQUOT, EMFILE, ENFILE, EACCES, EPERM, EROFS, ENOMEM};

// By the message that Berkeley DB makes of it; 0: nothing.
int system_error_in(const char* message) {
    const auto found = std::find_if(kRefusals.begin(), kRefusals.end(), [&](int error) {
        return std::strstr(message, strerrordesc_np(error)) != nullptr;
    });
    return found == kRefusals.end() ? 0 : *found;
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
        if (durable_) reread_newest();
        open_environment(create);
        open_tree(create);
        sync_inherited();
        check_pages();
    } catch (...) {
        close_handles();
        throw;
    }
}

BdbEnvironment::~BdbEnvironment() {
    if (!failed_ && maintenance_error_ == 0) {
        const uint64_t before = messages();
        failed_ = env_->txn_checkpoint(env_, 0, 0, DB_FORCE) != 0 || messages() != before;
        if (failed_ && durable_) files_.make(mark_of_unwritten());
    }
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
    int refused = 0;
    std::string text = "database " + directory_ + ": " + what + ": " + db_strerror(code);
    {
        std::lock_guard<std::mutex> guard(message_mutex_);
        if (!last_message_.empty()) text += " (" + last_message_ + ")";
        write_failed = write_failed_ || maintenance_error_ != 0;
        const bool told = std::find(kRefusals.begin(), kRefusals.end(), code) != kRefusals.end();
        refused = told ? code : system_error_;
    }
    const bool damaged = code == DB_RUNRECOVERY || code == DB_VERIFY_BAD || code == DB_PAGE_NOTFOUND;
    if (damaged && refused == 0 && !write_failed)
        throw DamagedStore(text + ". The database is damaged: " + kRebuildAdvice);
    const bool no_space = refused == ENOSPC || refused == EDQUOT;
    if (write_failed && durable_)
        files_.make(mark_of_unwritten());  // if it can be; lost with what it is about
    if (no_space || (write_failed && files_.free_bytes(directory_) < kFullDiskBytes))
        text += ". The disk is full: free some space there and start this replica again; nothing is lost";
    else if (write_failed)
        text += ". The disk could not be written: mend it and start this replica again; nothing is lost";
    else if (refused == EIO)
        text += ". The disk could not be read: mend it and start this replica again, or rebuild it";
    else if (refused != 0)
        text += std::string(". The system refused it: ") + std::strerror(refused) +
                ": put that right and start this replica again; nothing is lost";
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
    if (std::strstr(message, "fsync") != nullptr) self->write_failed_ = true;  // there is no event for it
    ++self->messages_;
    if (self->system_error_ == 0) self->system_error_ = system_error_in(message);
}

void BdbEnvironment::on_recovery(const DB_ENV* env, const char* message) {
    auto* self = static_cast<BdbEnvironment*>(const_cast<DB_ENV*>(env)->app_private);
    if (std::strstr(message, "last valid log LSN") != nullptr) self->recovery_message_ = message;
}

// Recovery itself cuts in silence what lies behind the last record that holds.
void BdbEnvironment::tell_recovery(const LogScan& before) {
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
        throw StoreInUse("database " + directory_ +
                         " is in use by another process: is this replica already running?");
}

// A system that could not write what a process gave it may drop it, and show it to the next process all the
// same, as long as the machine runs; what the last one had not synced may be of that kind, whether it lived
// to learn of it or not. So of what it may have written last nothing is believed that does not come from the
// disk.
void BdbEnvironment::reread_newest() {
    constexpr size_t kLastFiles = 3;
    std::vector<std::string> names, logs;
    if (files_.list(directory_, names) != 0) return;  // will be said by whoever needs it
    for (std::string& name : names)
        if (name.rfind("log.0", 0) == 0) logs.push_back(std::move(name));
    std::sort(logs.begin(), logs.end());
    if (logs.size() > kLastFiles) logs.erase(logs.begin(), logs.end() - kLastFiles);
    logs.emplace_back("log.db");
    const bool doubtful = files_.exists(mark_of_unwritten());
    for (const std::string& name : logs) {
        const int error = files_.reread(directory_ + "/" + name);
        if (error == 0 || error == ENOENT || (error == EBUSY && !doubtful)) continue;
        if (error == EBUSY)
            throw StorageError(
                "database " + directory_ + ": a write has failed before, and the system does not tell " +
                "what of " + name +
                " is on the disk and what in its memory alone. Restart the "
                "machine, or rebuild this replica: move the directory away and start with rejoin = "
                "true under [consensus], while the others run");
        throw StorageError("database " + directory_ + ": cannot write and read back " + name + ": " +
                           std::strerror(error) +
                           ". Mend the disk and start this replica again; nothing is lost");
    }
    if (doubtful) files_.remove(mark_of_unwritten());
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
    // The log has the entries themselves: files of it go by release_log(). Recovery meets them, and has
    // nothing to do for them.
    env_->set_app_dispatch(env_, [](DB_ENV*, DBT*, DB_LSN*, db_recops) { return 0; });
    const uint32_t flags =
        DB_INIT_MPOOL | DB_INIT_TXN | DB_INIT_LOG | DB_PRIVATE | DB_THREAD | DB_CREATE | DB_RECOVER;
    const LogScans logs = scan_logs(files_, directory_);
    if (logs.error != 0)
        throw StorageError("database " + directory_ + ": cannot read " + logs.unreadable + ": " +
                           std::strerror(logs.error) +
                           ". Put that right (its owner and mode, or the disk) and start this replica again");
    const LogScan before = logs.newest.empty() ? LogScan{} : logs.newest.front();
    check_complete(create, logs);
    env_->set_verbose(env_, DB_VERB_RECOVERY, 1);
    env_->set_msgcall(env_, on_recovery);
    code = env_->open(env_, directory_.c_str(), flags, 0600);
    if (code != 0) fail("open and recover", code);
    env_->set_verbose(env_, DB_VERB_RECOVERY, 0);
    tell_recovery(before);
}

// What is partly there must not be made anew: it would have forgotten what it promised. So a database that is
// being made is marked until it is whole.
void BdbEnvironment::check_complete(bool create, const LogScans& logs) {
    const bool tree = files_.exists(directory_ + "/log.db");
    new_ = files_.exists(mark_of_new()) || (create && !tree && logs.newest.empty());
    const std::string is_damaged = "database " + directory_ + " is damaged: ";
    if (!new_ && !tree && logs.newest.empty()) throw StorageError("there is no database in " + directory_);
    if (!new_ && !tree) throw DamagedStore(is_damaged + "log.db is missing. " + kRebuildAdvice);
    if (!new_ && logs.newest.empty())
        throw DamagedStore(is_damaged + "its log files are missing. " + kRebuildAdvice);
    // Its first page was on disk before the mark was taken away. Recovery would write over what is there.
    if (!new_) check_kind(false);
    const std::optional<LogPlace> lost = find_damage(logs);
    if (lost)
        throw DamagedStore(is_damaged + "what is at byte " + std::to_string(lost->offset) + " of log." +
                           std::to_string(lost->file) +
                           " does not hold, though it was on disk before more was written. " +
                           kRebuildAdvice);
    if (!new_ || files_.exists(mark_of_new())) return;
    int error = files_.make(mark_of_new());
    if (error == 0) error = files_.sync(directory_);
    if (error != 0) throw StorageError("cannot make " + mark_of_new() + ": " + std::strerror(error));
}

void BdbEnvironment::set_complete() {
    if (!new_) return;
    int error = files_.remove(mark_of_new());
    if (error == 0 || error == ENOENT) error = files_.sync(directory_);
    if (error != 0) fail("unmark the new database", error);
    new_ = false;
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
    if (code == EINVAL) check_kind(true);
    if (code != 0) fail("open log.db", code);
}

// Of a file that is none of its own Berkeley DB says EINVAL, or that it should be recovered, and hardly more.
void BdbEnvironment::check_kind(bool unusable) const {
    constexpr size_t kEnough = 512;
    std::string beginning;
    const auto see = [&](std::string_view bytes) {
        beginning = bytes.substr(0, kEnough);
        return false;
    };
    if (files_.read_through(directory_ + "/log.db", see) != 0) return;
    std::string found = other_than_a_tree(beginning);
    if (found.empty() && unusable) found = "is no tree that Berkeley DB can open";
    if (found.empty()) return;
    failed_ = true;
    throw DamagedStore("database " + directory_ + " is damaged: log.db " + found + ". " + kRebuildAdvice);
}

// What recovery has found may have been written by a process that died before its sync: it is then in the
// operating system's memory alone, and recovery, which takes its end for synced, does not always write more.
// Nobody may be told of it before it is on disk: a checkpoint is one record more, and a sync of all before
// it. But where that record begins a new file, the one before stays as it is, and what recovery has wiped
// out behind its end could come back.
void BdbEnvironment::sync_inherited() {
    constexpr size_t kLastFiles = 3;
    int code = env_->txn_checkpoint(env_, 0, 0, DB_FORCE);
    if (code != 0) fail("write what was recovered", code);
    std::vector<LogFile> files;
    code = list_log_files(DB_ARCH_LOG, files);
    if (files.size() > kLastFiles) files.erase(files.begin(), files.end() - kLastFiles);
    for (const LogFile& file : files)
        if (code == 0 && durable_) code = files_.sync(file.path);
    if (code != 0) fail("write what was recovered", code);
    note_synced();
}

// What recovery has left is on disk now, every page of it.
void BdbEnvironment::check_pages() {
    PageScan scan;
    const auto see = [&](std::string_view bytes) { return scan.add(bytes); };
    const int error = files_.read_through(directory_ + "/log.db", see);
    if (error != 0) fail("read log.db", error);
    const std::optional<uint64_t> page = scan.misplaced();
    if (!page) return;
    failed_ = true;
    throw DamagedStore("database " + directory_ + " is damaged: page " + std::to_string(*page) +
                       " of log.db is not what was written there. " + kRebuildAdvice);
}

// After a sync: nothing can lie behind it but what maintain() writes, and has not written to its end.
void BdbEnvironment::note_synced() {
    DB_LOG_STAT* found = nullptr;
    const int code = env_->log_stat(env_, &found, 0);
    if (code != 0) fail("ask for the end of the log", code);
    const std::unique_ptr<DB_LOG_STAT, decltype(&std::free)> owner(found, std::free);
    if (durable_ && !maintaining_) synced_ = {found->st_cur_file, found->st_cur_offset};
}

// In order. `flags`: 0 for those that recovery does not need, DB_ARCH_LOG for all.
int BdbEnvironment::list_log_files(uint32_t flags, std::vector<LogFile>& files) const {
    char** names = nullptr;
    const int code = env_->log_archive(env_, &names, flags);
    if (code != 0 || names == nullptr) return code;
    const std::unique_ptr<char*, decltype(&std::free)> owner(names, std::free);
    for (; *names != nullptr; ++names) {
        unsigned number = 0;
        if (std::sscanf(*names, "log.%u", &number) == 1) files.push_back({directory_ + "/" + *names, number});
    }
    return 0;
}

void BdbEnvironment::maintain() {
    {
        // After a write-back that failed the next one finds nothing to write, and would say so in the log.
        std::lock_guard<std::mutex> guard(message_mutex_);
        if (maintenance_error_ != 0 || write_failed_) return;
    }
    const uint32_t released = released_;
    const bool remove = released > removed_;
    // What released them may not be on disk yet: a checkpoint that is forced puts it there.
    maintaining_ = true;
    int code = env_->txn_checkpoint(env_, sizes_.checkpoint_kbytes, 0, remove ? DB_FORCE : 0);
    maintaining_ = false;
    if (code == 0 && remove) code = remove_log_files(released);
    if (code == 0) {
        removed_ = released;
        return;
    }
    std::lock_guard<std::mutex> guard(message_mutex_);
    maintenance_error_ = code;
}

// Removes, oldest first, what neither recovery nor an entry needs.
int BdbEnvironment::remove_log_files(uint32_t before_file) {
    std::vector<LogFile> files;
    if (const int code = list_log_files(0, files); code != 0) return code;
    for (const LogFile& file : files) {
        if (file.number >= before_file) break;
        if (const int error = files_.remove(file.path); error != 0 && error != ENOENT) return error;
    }
    return 0;
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

void BdbEnvironment::check_complaints(const char* what, uint64_t messages_before) {
    {
        std::lock_guard<std::mutex> guard(message_mutex_);
        if (messages_ == messages_before) return;
        write_failed_ = true;
    }
    fail(what, EIO);
}

bool BdbEnvironment::system_complained() const {
    std::lock_guard<std::mutex> guard(message_mutex_);
    return system_error_ != 0;
}

uint64_t BdbEnvironment::messages() const {
    std::lock_guard<std::mutex> guard(message_mutex_);
    return messages_;
}

}  // namespace crane::paxos
