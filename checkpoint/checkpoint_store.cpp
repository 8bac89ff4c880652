#include "checkpoint/checkpoint_store.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "checkpoint/arriving_checkpoint.hpp"
#include "checkpoint/fail_point.hpp"

namespace crane::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr char kNew[] = ".new-";
constexpr char kOld[] = ".old-";
constexpr mode_t kOwnerOnly = 0700;

void remove_quietly(const std::string& path) noexcept {
    std::error_code ignored;
    fs::remove_all(path, ignored);
}

/// The names of the regular files in a folder that is to become a checkpoint, in order.
std::vector<std::string> data_files(const std::string& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename();
        if (entry.is_symlink() || !entry.is_regular_file() || !is_file_name(name))
            throw std::runtime_error(entry.path().string() + " cannot be part of a checkpoint");
        names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// Empty when the files are there, in their sizes. Throws where nobody can tell.
std::string missing(const std::string& folder, const Manifest& manifest) {
    for (const CheckpointFile& file : manifest.files) {
        struct stat info {};
        const std::string path = folder + "/" + file.name;
        if (lstat(path.c_str(), &info) != 0) {
            if (errno != ENOENT) throw file_error("look at", path, errno);
            return path + " is missing";
        }
        if (!S_ISREG(info.st_mode)) return path + " is no regular file";
        if (static_cast<uint64_t>(info.st_size) != file.bytes)
            return path + " has " + std::to_string(info.st_size) + " bytes instead of " +
                   std::to_string(file.bytes);
    }
    return "";
}

}  // namespace

std::string index_text(uint64_t index) {
    const std::string digits = std::to_string(index);
    return std::string(kIndexDigits - digits.size(), '0') + digits;
}

uint64_t index_from(std::string_view digits) {
    uint64_t index = 0;
    if (digits.size() != kIndexDigits) return 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    return error == std::errc() && end == digits.data() + digits.size() ? index : 0;
}

std::string CheckpointStore::path_of(uint64_t index) const {
    return folder_ + "/" + index_text(index);
}

std::string CheckpointStore::unfinished(const char* prefix, uint64_t index) const {
    return folder_ + "/" + prefix + index_text(index);
}

void CheckpointStore::make() const {
    if (mkdir(folder_.c_str(), kOwnerOnly) != 0) {
        if (errno != EEXIST) throw file_error("make", folder_, errno);
        return;
    }
    sync_folder(fs::path(folder_).parent_path());
}

// --- taking one

std::string CheckpointStore::begin(uint64_t index) {
    make();
    std::string path = unfinished(kNew, index);
    remove_tree(path);
    if (mkdir(path.c_str(), kOwnerOnly) != 0) throw file_error("make", path, errno);
    return path;
}

StoredCheckpoint CheckpointStore::complete(uint64_t index, const nlohmann::json& state, const Stop& stop) {
    const std::string path = unfinished(kNew, index);
    try {
        Manifest manifest;
        manifest.index = index;
        manifest.state = state;
        for (const std::string& name : data_files(path)) {
            if (stop()) throw Stopped();
            const File file(path + "/" + name, O_RDONLY);
            file.sync();
            const uint64_t bytes = file.bytes();
            manifest.files.push_back({name, bytes, sum_of_file(file, stop, sums_)});
            if (file.bytes() != bytes)
                throw std::runtime_error(file.path() + " was still written to when the checkpoint was to be");
        }
        write_synced(path + "/" + kManifestName, encode_manifest(manifest));
        if (stop()) throw Stopped();
        publish(path, index);
    } catch (const fs::filesystem_error& error) {
        remove_quietly(path);
        throw file_error("look through", path, error.code().value());
    } catch (...) {
        remove_quietly(path);
        throw;
    }
    return look(index);
}

void CheckpointStore::publish(const std::string& path, uint64_t index) {
    const std::string target = path_of(index);
    sync_folder(path);
    fail_point("checkpoint.publish");
    bool exchanged = false;
    if (renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) != 0) {
        if (errno == EEXIST)
            exchanged = renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0;
        if (!exchanged) {  // a file system that knows neither
            if (fs::exists(fs::symlink_status(target))) remove(index);
            if (rename(path.c_str(), target.c_str()) != 0) throw file_error("rename to", target, errno);
        }
    }
    try {
        sync_folder(folder_);
    } catch (...) {
        // Whether it will be there after a power cut, nobody knows: so it is not there now either.
        remove_quietly(target);
        throw;
    }
    fail_point("checkpoint.published");
    if (exchanged) remove_quietly(path);
}

void CheckpointStore::abandon(uint64_t index) {
    remove_tree(unfinished(kNew, index));
}

// --- what there is

std::vector<uint64_t> CheckpointStore::indexes() const {
    std::vector<uint64_t> out;
    std::error_code error;
    for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
        if (const uint64_t index = index_from(entry->path().filename().string())) out.push_back(index);
    if (error && error != std::errc::no_such_file_or_directory)
        throw file_error("look through", folder_, error.value());
    std::sort(out.rbegin(), out.rend());
    return out;
}

StoredCheckpoint CheckpointStore::look(uint64_t index) const {
    return look_at(path_of(index), index);
}

StoredCheckpoint CheckpointStore::look_at(const std::string& path, uint64_t index) const {
    StoredCheckpoint out;
    out.index = index;
    out.path = path;
    try {
        const File file(out.path + "/" + kManifestName, O_RDONLY);
        out.manifest_bytes = file.bytes();
        struct stat info {};
        if (fstat(file.fd(), &info) == 0) out.since = info.st_mtime;
        DecodedManifest decoded = decode_manifest(file.read(0, kMaxManifestBytes + 1));
        out.id = std::move(decoded.id);
        out.manifest = std::move(decoded.manifest);
        if (!decoded.error.empty())
            out.error = file.path() + ": " + decoded.error;
        else if (out.manifest.index != index)
            out.error = file.path() + " is of entry " + std::to_string(out.manifest.index);
        else
            out.error = missing(out.path, out.manifest);
        out.damaged = !out.error.empty() && (decoded.error.empty() || decoded.damaged);
    } catch (const std::runtime_error& error) {
        out.error = error.what();
        struct stat info {};
        const std::string manifest = out.path + "/" + kManifestName;
        out.damaged = lstat(manifest.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
    }
    return out;
}

std::vector<StoredCheckpoint> CheckpointStore::survey() const {
    std::vector<StoredCheckpoint> out;
    for (const uint64_t index : indexes()) out.push_back(look(index));
    return out;
}

std::vector<StoredCheckpoint> CheckpointStore::list(size_t most) const {
    std::vector<StoredCheckpoint> out;
    for (const uint64_t index : indexes()) {
        if (out.size() >= most) break;
        StoredCheckpoint one = look(index);
        if (one.error.empty()) out.push_back(std::move(one));
    }
    return out;
}

std::optional<StoredCheckpoint> CheckpointStore::newest() const {
    std::vector<StoredCheckpoint> one = list(1);
    if (one.empty()) return std::nullopt;
    return std::move(one.front());
}

std::optional<StoredCheckpoint> CheckpointStore::find(uint64_t index) const {
    StoredCheckpoint one = look(index);
    if (!one.error.empty()) return std::nullopt;
    return one;
}

StoredCheckpoint CheckpointStore::checked(uint64_t index, const Stop& stop) const {
    StoredCheckpoint one = look(index);
    if (!one.error.empty()) return one;
    try {
        for (const CheckpointFile& expected : one.manifest.files) {
            const File file(one.path + "/" + expected.name, O_RDONLY);
            if (sum_of_file(file, stop, sums_) == expected.xxh128) continue;
            one.error = file.path() + " is not what was written: its sum differs from the manifest's";
            one.damaged = true;
            break;
        }
    } catch (const Stopped&) {
        throw;
    } catch (const std::runtime_error& error) {
        one.error = error.what();
    }
    return one;
}

// --- removing

void CheckpointStore::remove_tree(const std::string& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw file_error("remove", path, error.value());
}

void CheckpointStore::remove(uint64_t index) {
    const std::string path = path_of(index), gone = unfinished(kOld, index);
    remove_tree(gone);
    if (rename(path.c_str(), gone.c_str()) != 0) {
        if (errno == ENOENT) return;
        throw file_error("rename", path, errno);
    }
    remove_tree(gone);
}

void CheckpointStore::prune(size_t keep, const std::set<uint64_t>& held) {
    size_t kept = 0;
    uint64_t newest_kept = 0;
    for (const StoredCheckpoint& one : survey()) {
        if (one.error.empty()) newest_kept = std::max(newest_kept, one.index);
        if (kept < keep)
            kept += one.error.empty();
        else if (held.count(one.index) == 0)
            remove(one.index);
    }
    for (const SetAside& one : set_aside())
        if (one.damaged || (!one.unread && one.index < newest_kept)) remove_tree(one.path);
}

std::vector<std::string> CheckpointStore::folders_named(const std::vector<std::string>& prefixes) const {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename();
        for (const std::string& prefix : prefixes)
            if (name.starts_with(prefix) && index_from(name.substr(prefix.size())) != 0)
                found.push_back(entry->path());
    }
    return found;
}

void CheckpointStore::remove_unfinished() {
    std::vector<std::string> left = folders_named({kNew, kOld});
    const auto newest_one = newest();
    for (const CheckpointName& one : list_arriving(*this))
        if (newest_one && one.index <= newest_one->index) left.push_back(arriving_path(*this, one));
    for (const std::string& path : left) remove_tree(path);
}

void CheckpointStore::check_room(uint64_t wanted_bytes, uint64_t reserve_bytes) const {
    struct statvfs info {};
    if (statvfs(folder_.c_str(), &info) != 0) throw file_error("look at", folder_, errno);
    const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
    if (free_bytes > reserve_bytes && free_bytes - reserve_bytes >= wanted_bytes) return;
    throw std::runtime_error("a checkpoint of " + std::to_string(wanted_bytes >> 20) +
                             " MiB cannot come to " + folder_ + ": " + std::to_string(free_bytes >> 20) +
                             " MiB are free, of which " + std::to_string(reserve_bytes >> 20) +
                             " are kept: free some space");
}

void CheckpointStore::check_reserve(uint64_t reserve_bytes, const std::string& beside) const {
    for (const std::string& path : {folder_, beside}) {
        struct statvfs info {};
        if (statvfs(path.c_str(), &info) != 0) throw file_error("look at", path, errno);
        const uint64_t block = info.f_frsize;
        const uint64_t kept_bytes = std::min(reserve_bytes, info.f_blocks * block / 20);
        if (info.f_bavail * block >= kept_bytes) continue;
        throw std::runtime_error("the disk filled while a checkpoint was taken: less than " +
                                 std::to_string(kept_bytes >> 20) + " MiB are left where " + path +
                                 " is: free some space");
    }
}

}  // namespace crane::checkpoint
