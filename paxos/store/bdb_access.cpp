// What is done with an open environment: transactions and reading.
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.hpp"
#include "paxos/store/bdb.hpp"

namespace crane::paxos {
namespace {

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

/// Of a tree of which pages are missing Berkeley DB says that it was asked for what cannot be.
int as_damage(int code) {
    return code == EINVAL ? DB_VERIFY_BAD : code;
}

}  // namespace

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

LogPlace BdbEnvironment::Transaction::log(std::string_view record) {
    CRANE_CHECK(handle_ != nullptr);
    DBT record_dbt = make_dbt(record);
    DB_LSN place{};
    const uint64_t messages = environment_.messages();
    const int code = environment_.env_->log_put(environment_.env_, &place, &record_dbt, 0);
    if (code != 0) environment_.fail("log", code);
    environment_.check_complaints("log", messages);
    return {place.file, place.offset};
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
    environment_.check_complaints("commit", messages);
    environment_.check();
    if (sync) environment_.note_synced();
}

bool BdbEnvironment::get(std::string_view key, std::string& value) const {
    DBT key_dbt = make_dbt(key);
    OwnedDbt found;
    const int code = tree_->get(tree_, nullptr, &key_dbt, &found.dbt, 0);
    if (code == DB_NOTFOUND) return false;
    if (code != 0) fail("read", as_damage(code));
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
    if (code != 0) fail("read last", as_damage(code));
    key.assign(found.bytes());
    return true;
}

bool BdbEnvironment::seek(std::string_view least, std::string& key, std::string& value) const {
    DBC* cursor = nullptr;
    int code = tree_->cursor(tree_, nullptr, &cursor, 0);
    if (code != 0) fail("open cursor", code);
    OwnedDbt found, content;
    void* given = std::malloc(least.size());
    CRANE_CHECK(given != nullptr);
    std::memcpy(given, least.data(), least.size());
    found.dbt.data = given;
    found.dbt.size = static_cast<uint32_t>(least.size());
    code = cursor->get(cursor, &found.dbt, &content.dbt, DB_SET_RANGE);
    cursor->close(cursor);
    if (found.dbt.data != given) std::free(given);
    if (code == DB_NOTFOUND) return false;
    if (code != 0) fail("seek", as_damage(code));
    key.assign(found.bytes());
    value.assign(content.bytes());
    return true;
}

BdbEnvironment::LogCursor::LogCursor(const BdbEnvironment& environment) : environment_(environment) {
    const int code = environment_.env_->log_cursor(environment_.env_, &handle_, 0);
    if (code != 0) environment_.fail("open log cursor", code);
    record_.flags = DB_DBT_REALLOC;
}

BdbEnvironment::LogCursor::~LogCursor() {
    if (handle_ != nullptr) handle_->close(handle_, 0);
    std::free(record_.data);
}

std::string_view BdbEnvironment::LogCursor::read(const LogPlace& place) {
    DB_LSN lsn{};
    lsn.file = place.file;
    lsn.offset = place.offset;
    const int code = handle_->get(handle_, &lsn, &record_, DB_SET);
    const std::string what =
        "read byte " + std::to_string(place.offset) + " of log." + std::to_string(place.file);
    // A file that is not there, or has nothing like a record in this place: of one that begins in the midst
    // of another Berkeley DB says EIO, though the disk has read well.
    const bool no_record = code == EIO && !environment_.system_complained();
    if (code == ENOENT || code == EINVAL || code == DB_NOTFOUND || no_record)
        environment_.fail(what.c_str(), DB_VERIFY_BAD);
    if (code != 0) environment_.fail(what.c_str(), code);
    return {static_cast<const char*>(record_.data), record_.size};
}

}  // namespace crane::paxos
