#include "checkpoint/file_identities.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <optional>

#include "base/file_key.hpp"
#include "checkpoint/folder_walk.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kProc[] = "/proc/";

/// Of the file at a path of the container; nothing: it is not there.
std::optional<uint64_t> key_at(const Folder& root, Lookup& files, const std::string& path) {
    if (!path.starts_with(kProc)) {
        const auto info = files.look(path, kFileKeyMask);
        return info ? std::optional(file_key(*info)) : std::nullopt;
    }
    // What a process has open is looked at through its link.
    struct statx info {};
    if (::statx(root.fd(), path.c_str() + 1, 0, kFileKeyMask, &info) != 0) return std::nullopt;
    return file_key(info);
}

void add(const Folder& root, Lookup& files, const std::string& path, std::string* identities) {
    const std::optional<uint64_t> key = key_at(root, files, path);
    if (!key) return;  // removed from a lower layer
    identities->append(reinterpret_cast<const char*>(&*key), sizeof(*key));
    identities->append(path).push_back('\0');
}

void add_folder(const Folder& root, const std::string& folder, const std::string& inside,
                std::string* identities) {
    Lookup files(root);
    add(root, files, inside, identities);
    std::string path;
    walk_folder(Folder(folder), FolderOrder::kFirst, [&](const Walked& one) {
        if (one.path.size() >= PATH_MAX) return;  // no archive has it
        add(root, files, path.assign(inside).append(one.path), identities);
    });
}

void add_open(const Folder& root, std::string* identities) {
    Lookup files(root);
    std::error_code ignored;
    for (const auto& process : fs::directory_iterator(root.path() + kProc, ignored)) {
        const std::string pid = process.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        for (const auto& one : fs::directory_iterator(process.path() / "fd", ignored))
            add(root, files, kProc + pid + "/fd/" + one.path().filename().string(), identities);
    }
}

}  // namespace

std::string file_identities(const std::string& container, const std::vector<LayerPlace>& layers) {
    std::string identities;
    const Folder root(container);
    for (const auto& [folder, inside] : layers) add_folder(root, folder, inside, &identities);
    add_folder(root, container + "/dev/shm", "/dev/shm", &identities);
    add_open(root, &identities);
    return identities;
}

void tell_identities(const std::string& container, const std::string& identities, const Folder& place,
                     const std::string& name) {
    const Folder root(container);
    Lookup files(root);
    std::string pairs;
    for (size_t at = 0; at + sizeof(uint64_t) < identities.size();) {
        FileAgain one{};
        std::memcpy(&one.before, identities.data() + at, sizeof(one.before));
        const std::string path = identities.c_str() + at + sizeof(one.before);
        at += sizeof(one.before) + path.size() + 1;
        const std::optional<uint64_t> now = key_at(root, files, path);
        if (!now) continue;
        one.after = *now;
        pairs.append(reinterpret_cast<const char*>(&one), sizeof(one));
    }
    place.write(name, pairs);
}

}  // namespace crane::checkpoint
