// Checkpoints that are of no use, or of none now: under other names, so that nobody takes them for what is
// wanted.
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "checkpoint/checkpoint_store.hpp"

namespace crane::checkpoint {

namespace fs = std::filesystem;

namespace {

uint64_t index_behind(const char* prefix, const std::string& path) {
    return index_from(fs::path(path).filename().string().substr(strlen(prefix)));
}

}  // namespace

void CheckpointStore::rename_aside(uint64_t index, const char* prefix) {
    const std::string path = path_of(index), aside = unfinished(prefix, index);
    if (!fs::exists(fs::symlink_status(path))) return;  // it is aside already
    remove_tree(aside);
    if (rename(path.c_str(), aside.c_str()) != 0 && errno != ENOENT) throw file_error("rename", path, errno);
}

void CheckpointStore::set_aside(uint64_t index) {
    rename_aside(index, kDamaged);
}

void CheckpointStore::set_aside_refused(uint64_t index) {
    rename_aside(index, kRefused);
    // After what has changed on this host is changed back a server may be restored from them: the newest, and
    // one more, since there may be nothing else. Of the others it is enough to know which they are.
    std::vector<std::string> all = folders_named({kRefused});
    std::sort(all.rbegin(), all.rend());
    for (size_t i = kWholeRefused; i < all.size(); ++i)
        for (const auto& entry : fs::directory_iterator(all[i]))
            if (entry.path().filename() != kManifestName) remove_tree(entry.path());
}

void CheckpointStore::set_aside_unread(uint64_t index) {
    rename_aside(index, kUnread);
}

void CheckpointStore::put_back(const std::string& path, uint64_t index) {
    const std::string place = path_of(index);
    if (fs::exists(fs::symlink_status(place))) return;
    if (rename(path.c_str(), place.c_str()) != 0) throw file_error("rename", path, errno);
}

void CheckpointStore::put_back_unread() {
    for (const std::string& path : folders_named({kUnread})) put_back(path, index_behind(kUnread, path));
}

void CheckpointStore::put_back_refused() {
    for (const std::string& path : folders_named({kRefused})) {
        const uint64_t index = index_behind(kRefused, path);
        if (look_at(path, index).error.empty()) put_back(path, index);
    }
}

void CheckpointStore::give_up_refused(uint64_t from) {
    for (const std::string& path : folders_named({kRefused})) {
        const uint64_t index = index_behind(kRefused, path);
        if (index < from) continue;
        const std::string damaged = unfinished(kDamaged, index);
        remove_tree(damaged);
        if (rename(path.c_str(), damaged.c_str()) != 0) throw file_error("rename", path, errno);
    }
}

std::set<std::string> CheckpointStore::refused() const {
    std::set<std::string> ids;
    for (const std::string& path : folders_named({kRefused}))
        ids.insert(look_at(path, index_behind(kRefused, path)).id);
    return ids;
}

std::vector<SetAside> CheckpointStore::set_aside() const {
    std::vector<SetAside> found;
    for (const char* const prefix : {kDamaged, kRefused, kUnread})
        for (const std::string& path : folders_named({prefix}))
            found.push_back({index_behind(prefix, path), prefix == kDamaged, prefix == kUnread, path});
    return found;
}

}  // namespace crane::checkpoint
