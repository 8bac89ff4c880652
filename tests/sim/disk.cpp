#include "disk.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "disk_registry.hpp"

namespace crane::sim {
namespace {

// Unsynced writes to one file, kept one by one; Berkeley DB syncs long before.
constexpr size_t kMaxUnsynced = 1 << 16;

}  // namespace

Disk::Disk(std::string root, uint64_t seed, uint64_t sector_bytes)
    : root_(std::move(root)), random_(seed), sector_bytes_(sector_bytes) {}

void Disk::put(const Write& write, std::string& content) {
    if (write.truncates) {
        content.resize(write.offset);
        return;
    }
    if (content.size() < write.offset + write.bytes.size()) content.resize(write.offset + write.bytes.size());
    content.replace(write.offset, write.bytes.size(), write.bytes);
}

bool Disk::operate() {
    if (cut_) return true;
    ++operations_;
    if (operations_ >= cut_at_) cut(cut_power_);
    return !cut_;
}

void Disk::cut_after(uint64_t operations, bool power) {
    cut_at_ = operations == 0 ? UINT64_MAX : operations_ + operations;
    cut_power_ = power;
}

Disk::FileRef Disk::find(const std::string& path) const {
    const auto found = names_.find(path);
    return found == names_.end() ? nullptr : found->second;
}

std::vector<std::string> Disk::names() const {
    std::vector<std::string> names;
    for (const auto& [path, file] : names_) names.push_back(path.substr(root_.size() + 1));
    return names;
}

int Disk::open(const std::string& path, bool create, bool exclusive, bool truncates, FileRef& file) {
    file = find(path);
    if (file != nullptr && create && exclusive) return EEXIST;
    if (file == nullptr) {
        if (!create) return ENOENT;
        operate();
        if (!cut_ && faults.full) return ENOSPC;
        file = std::make_shared<File>();
        file->number = next_file_++;
        file->is_log = path.find("/log.0") != std::string::npos;
        names_[path] = file;
        name_changes_.push_back({path, file});
    } else if (truncates) {
        return truncate(*file, 0);
    }
    return 0;
}

int Disk::write(File& file, uint64_t offset, const char* bytes, size_t count) {
    operate();
    ++counts_.writes;
    if (!cut_ && faults.write_error > 0 && random_.chance(faults.write_error)) {
        ++counts_.errors;
        return EIO;
    }
    if (!cut_ && faults.full && random_.chance(0.5)) {
        ++counts_.errors;
        return ENOSPC;
    }
    if (file.unsynced.size() >= kMaxUnsynced) return EIO;
    file.unsynced.push_back({offset, std::string(bytes, count), false, run_});
    put(file.unsynced.back(), file.live);
    return 0;
}

int Disk::truncate(File& file, uint64_t size) {
    operate();
    file.unsynced.push_back({size, "", true, run_});
    put(file.unsynced.back(), file.live);
    return 0;
}

int Disk::sync(File& file) {
    operate();
    ++counts_.syncs;
    if (faults.lying) return 0;
    if (!cut_ && faults.sync_error > 0 && random_.chance(faults.sync_error)) {
        ++counts_.errors;
        const uint64_t done = random_.below(file.unsynced.size() + 1);
        for (uint64_t i = 0; i < done; ++i) put(file.unsynced[i], file.synced);
        file.unsynced.erase(file.unsynced.begin(), file.unsynced.begin() + static_cast<std::ptrdiff_t>(done));
        if (random_.chance(0.5)) {
            counts_.forgotten += file.unsynced.size();
            for (Write& write : file.unsynced) write.forgotten = true;
        }
        return EIO;
    }
    for (const Write& write : file.unsynced)
        if (!write.forgotten) put(write, file.synced);
    std::erase_if(file.unsynced, [](const Write& write) { return !write.forgotten; });
    for (const NameChange& change : name_changes_) rename_in(synced_names_, change);
    name_changes_.clear();
    return 0;
}

void Disk::rename_in(Names& names, const NameChange& change) const {
    if (change.file == nullptr)
        names.erase(change.name);
    else
        names[change.name] = change.file;
}

int Disk::rename(const std::string& from, const std::string& to) {
    operate();
    const FileRef file = find(from);
    if (file == nullptr) return ENOENT;
    names_.erase(from);
    names_[to] = file;
    name_changes_.push_back({to, file});
    name_changes_.push_back({from, nullptr});
    return 0;
}

int Disk::unlink(const std::string& path) {
    operate();
    if (names_.erase(path) == 0) return ENOENT;
    ++counts_.removed;
    name_changes_.push_back({path, nullptr});
    return 0;
}

int Disk::reread(const std::string& path) {
    const FileRef file = find(path);
    if (file == nullptr) return ENOENT;
    if (faults.keeps_showing) return 0;
    if (const int error = sync(*file); error != 0) return error;
    if (faults.lying) return 0;
    file->unsynced.clear();
    file->live = file->synced;
    return 0;
}

int Disk::lock(const std::string& path) {
    if (locks_ > 0) return -EWOULDBLOCK;
    FileRef file;
    const int error = open(path, true, false, false, file);
    if (error != 0) return -error;
    ++locks_;
    return 0;
}

void Disk::unlock(int) {
    locks_ = 0;
}

bool Disk::log_synced(uint64_t before_run) const {
    return std::all_of(names_.begin(), names_.end(), [before_run](const auto& each) {
        const File& file = *each.second;
        return !file.is_log ||
               std::none_of(file.unsynced.begin(), file.unsynced.end(),
                            [before_run](const Write& write) { return write.run < before_run; });
    });
}

// Of each sector's writes, some of the oldest.
void Disk::keep_some(const File& file, File& left) {
    enum { nothing, everything, oldest_writes, any_sectors } how;
    how = static_cast<decltype(how)>(random_.below(4));
    const uint64_t kept_writes = how == everything      ? file.unsynced.size()
                                 : how == nothing       ? 0
                                 : how == oldest_writes ? random_.below(file.unsynced.size() + 1)
                                                        : file.unsynced.size();
    std::set<uint64_t> stale;  // sectors that have missed a write
    for (uint64_t i = 0; i < kept_writes; ++i) {
        const Write& write = file.unsynced[i];
        const bool last = how == oldest_writes && i + 1 == kept_writes;  // the one that was under way
        if (write.truncates || (how != any_sectors && !last)) {
            put(write, left.synced);
            continue;
        }
        for (uint64_t done = 0; done < write.bytes.size();) {
            const uint64_t at = write.offset + done, sector = at / sector_bytes_;
            const uint64_t piece = std::min(write.bytes.size() - done, (sector + 1) * sector_bytes_ - at);
            if (stale.count(sector) > 0 || random_.chance(0.4)) {
                stale.insert(sector);
                ++counts_.torn;
            } else {
                put({at, write.bytes.substr(done, piece)}, left.synced);
            }
            done += piece;
        }
    }
    counts_.lost_writes += file.unsynced.size() - kept_writes;
    left.live = left.synced;
}

Disk::FileRef Disk::survivor(const File& file, bool power) {
    auto left = std::make_shared<File>(file);
    if (!power) return left;
    File due = file;
    std::erase_if(due.unsynced, [](const Write& write) { return write.forgotten; });
    left->unsynced.clear();
    if (due.unsynced.empty())
        left->live = left->synced;
    else
        keep_some(due, *left);
    return left;
}

void Disk::cut(bool power) {
    if (cut_) return;
    cut_ = true;
    ++counts_.cuts;
    std::map<const File*, FileRef> survivors;
    auto take = [&](const Names& names, Names& into) {
        into.clear();
        for (const auto& [path, file] : names) {
            FileRef& left = survivors[file.get()];
            if (left == nullptr) left = survivor(*file, power);
            into[path] = left;
        }
    };
    if (!power) {  // name changes stay due: as if synced, which only hides a rare loss
        take(names_, left_);
        left_synced_ = left_;
        return;
    }
    const uint64_t kept = random_.below(name_changes_.size() + 1);
    Names names = synced_names_;
    for (uint64_t i = 0; i < kept; ++i) rename_in(names, name_changes_[i]);
    counts_.lost_names += name_changes_.size() - kept;
    take(names, left_);
    left_synced_ = left_;
}

void Disk::restart() {
    if (cut_) {
        names_ = std::move(left_);
        synced_names_ = std::move(left_synced_);
        name_changes_.clear();
    }
    ++run_;
    cut_ = false;
    cut_at_ = UINT64_MAX;
    locks_ = 0;
}

void Disk::erase() {
    restart();
    names_.clear();
    synced_names_.clear();
    name_changes_.clear();
}

std::unique_ptr<Disk> Disk::platter(const std::string& root) const {
    auto copy = std::make_unique<Disk>(root, 1, sector_bytes_);
    for (const auto& [path, file] : synced_names_) {
        auto left = std::make_shared<File>(*file);
        left->unsynced.clear();
        left->live = left->synced;
        copy->names_[root + path.substr(root_.size())] = left;
    }
    copy->synced_names_ = copy->names_;
    return copy;
}

std::string Disk::describe() const {
    std::string text;
    for (const auto& [path, file] : names_) {
        text += path + " " + std::to_string(file->live.size()) + " bytes";
        for (const Write& write : file->unsynced)
            text += ", unsynced " + std::to_string(write.offset) + "+" + std::to_string(write.bytes.size()) +
                    (write.truncates ? " (cut)" : "") + " by run " + std::to_string(write.run) + " of " +
                    std::to_string(run_);
        text += "\n";
    }
    return text;
}

uint64_t Disk::shape_hash() const {
    uint64_t hash = 0;
    for (const auto& [path, file] : names_) {
        // Berkeley DB names what it has not finished by a file's id, which is another one in each process.
        const size_t named = std::min(path.size(), path.find("/__db."));
        hash = XXH64(path.data(), named, hash);
        const std::array<uint64_t, 3> known = {file->live.size(), file->unsynced.size(), operations_};
        hash = XXH64(known.data(), sizeof known, hash);
    }
    return hash;
}

}  // namespace crane::sim
