// What a disk that is going bad does to what was synced long ago.
#include "base/check.hpp"
#include "disk.hpp"

namespace crane::sim {

std::unique_ptr<Disk> Disk::image(const std::string& root) const {
    auto copy = std::make_unique<Disk>(root, 1, sector_bytes_);
    for (const auto& [path, file] : names_) {
        auto same = std::make_shared<File>(*file);
        for (const Write& write : same->unsynced)
            if (!write.forgotten) put(write, same->synced);
        same->unsynced.clear();
        same->live = same->synced;
        copy->names_[root + path.substr(root_.size())] = same;
    }
    copy->synced_names_ = copy->names_;
    return copy;
}

void Disk::put_back(const Disk& copy) {
    erase();
    for (const auto& [path, file] : copy.names_) names_[path] = std::make_shared<File>(*file);
    synced_names_ = names_;
}

void Disk::damage(const std::string& path, uint64_t offset, const std::string& bytes) {
    File& file = *names_.at(path);
    CRANE_CHECK(offset + bytes.size() <= file.synced.size());
    file.synced.replace(offset, bytes.size(), bytes);
    file.live = file.synced;
    for (const Write& write : file.unsynced) put(write, file.live);
}

void Disk::lose(const std::string& path) {
    names_.erase(path);
    synced_names_.erase(path);
    std::erase_if(name_changes_, [&](const NameChange& change) { return change.name == path; });
}

}  // namespace crane::sim
