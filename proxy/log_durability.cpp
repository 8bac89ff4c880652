#include "proxy/log_durability.hpp"

#include <errno.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <string.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "checkpoint/file_sum.hpp"
#include "paxos/store/file_system.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;

namespace {

std::string mark_path(const std::string& state_dir) {
    return state_dir + "/log-in-memory";
}

[[noreturn]] void failed(const std::string& what, const std::string& path, int error) {
    throw std::runtime_error("cannot " + what + " " + path + ": " + strerror(error));
}

void sync_path(const std::string& path) {
    if (const int error = paxos::host_files().sync(path); error != 0) failed("write to disk", path, error);
}

/// The boot that a mark names. Nothing: there is none. An unreadable or torn one names none that there ever
/// was.
std::optional<std::string> marked_boot(const std::string& state_dir) {
    const std::string path = mark_path(state_dir);
    if (!paxos::host_files().exists(path)) return std::nullopt;
    std::string text;
    if (const int error = paxos::host_files().read(path, text); error != 0) failed("read", path, error);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

}  // namespace

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string text;
    if (!std::getline(file, text) || text.empty())
        throw std::runtime_error("/proc/sys/kernel/random/boot_id tells nothing: is /proc mounted?");
    return text;
}

LogDurability::LogDurability(const std::string& state_dir, bool in_memory, std::string boot)
    : state_dir_(state_dir), in_memory_(in_memory), boot_(std::move(boot)) {
    const std::optional<std::string> marked = marked_boot(state_dir_);
    if (!marked) {
        if (in_memory_) mark();
        return;
    }
    if (*marked == boot_) {
        if (in_memory_) return;
        sync_database();
        unmark();
        return;
    }
    lost_ = true;
    const fs::path database = state_dir_ + "/db", aside = state_dir_ + "/db.lost";
    if (!fs::exists(database)) return;
    std::error_code error;
    fs::remove_all(aside, error);
    if (!error) fs::rename(database, aside, error);
    if (error) failed("move aside", database, error.value());
    sync_path(state_dir_);
    spdlog::warn(
        "the log was in memory (durability = \"memory\") when this host last stopped: what it acknowledged "
        "may be "
        "missing from {}, which is {} now. This replica rejoins: all is copied from the others",
        database.string(), aside.string());
}

void LogDurability::opened() {
    if (!lost_) return;
    if (in_memory_) {
        mark();
    } else {
        unmark();
    }
}

void LogDurability::closed() {
    if (!in_memory_) return;
    try {
        sync_database();
        unmark();
    } catch (const std::exception& error) {
        spdlog::error("{}: should this host stop before craned runs again, this replica has lost its log",
                      error.what());
    }
}

void LogDurability::mark() const {
    const std::string path = mark_path(state_dir_), fresh = path + ".new";
    checkpoint::write_synced(fresh, boot_ + "\n");
    if (rename(fresh.c_str(), path.c_str()) != 0) failed("make", path, errno);
    sync_path(state_dir_);
}

void LogDurability::unmark() const {
    const std::string path = mark_path(state_dir_);
    if (const int error = paxos::host_files().remove(path); error != 0 && error != ENOENT)
        failed("remove", path, error);
    sync_path(state_dir_);
}

void LogDurability::sync_database() const {
    const std::string directory = state_dir_ + "/db";
    if (!paxos::host_files().exists(directory)) return;
    std::vector<std::string> names;
    if (const int error = paxos::host_files().list(directory, names); error != 0)
        failed("read", directory, error);
    for (const std::string& name : names) {
        const std::string path = directory + "/" + name;
        if (fs::is_regular_file(path)) sync_path(path);
    }
    sync_path(directory);
    sync_path(state_dir_);
}

bool is_lost_with_memory(const std::string& state_dir) {
    const std::optional<std::string> marked = marked_boot(state_dir);
    return marked && *marked != boot_id();
}

void accept_database(const std::string& state_dir) {
    std::error_code ignored;
    fs::remove(mark_path(state_dir), ignored);
}

}  // namespace crane::proxy
