#include "checkpoint/file_identities.hpp"

#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>

#include "base/file_key.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

/// Of the file at a path of the container; nothing: it is not there.
std::optional<uint64_t> key_at(const std::string& root, const std::string& path) {
    // What a process has open is looked at through its link.
    const bool open = path.starts_with("/proc/");
    struct statx info {};
    const std::string at = root + (path.empty() ? "/" : path);
    if (::statx(AT_FDCWD, at.c_str(), open ? 0 : AT_SYMLINK_NOFOLLOW, kFileKeyMask, &info) != 0)
        return std::nullopt;
    return file_key(info);
}

void add(const std::string& root, const std::string& path, std::string* identities) {
    const std::optional<uint64_t> key = key_at(root, path);
    if (!key) return;  // removed from a lower layer
    identities->append(reinterpret_cast<const char*>(&*key), sizeof(*key));
    identities->append(path).push_back('\0');
}

void add_folder(const std::string& root, const std::string& folder, const std::string& inside,
                std::string* identities) {
    char* const roots[] = {const_cast<char*>(folder.c_str()), nullptr};
    const std::unique_ptr<FTS, int (*)(FTS*)> walk(
        ::fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV | FTS_NOSTAT, nullptr), ::fts_close);
    if (!walk) throw std::runtime_error("reading " + folder + ": " + std::strerror(errno));
    while (const FTSENT* entry = ::fts_read(walk.get()))
        if (entry->fts_info != FTS_DP) add(root, inside + (entry->fts_path + folder.size()), identities);
}

void add_open(const std::string& root, std::string* identities) {
    std::error_code ignored;
    for (const auto& process : fs::directory_iterator(root + "/proc", ignored)) {
        const std::string pid = process.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        for (const auto& one : fs::directory_iterator(process.path() / "fd", ignored))
            add(root, "/proc/" + pid + "/fd/" + one.path().filename().string(), identities);
    }
}

}  // namespace

std::string file_identities(const std::string& root, const std::vector<LayerPlace>& layers) {
    std::string identities;
    for (const auto& [folder, inside] : layers) add_folder(root, folder, inside, &identities);
    add_folder(root, root + "/dev/shm", "/dev/shm", &identities);
    add_open(root, &identities);
    return identities;
}

void tell_identities(const std::string& root, const std::string& identities, const std::string& again) {
    std::ofstream out(again, std::ios::trunc | std::ios::binary);
    for (size_t at = 0; at + sizeof(uint64_t) < identities.size();) {
        FileAgain one{};
        std::memcpy(&one.before, identities.data() + at, sizeof(one.before));
        const std::string path = identities.c_str() + at + sizeof(one.before);
        at += sizeof(one.before) + path.size() + 1;
        const std::optional<uint64_t> now = key_at(root, path);
        if (!now) continue;
        one.after = *now;
        out.write(reinterpret_cast<const char*>(&one), sizeof(one));
    }
    out.close();
    std::error_code error;
    fs::permissions(again, fs::perms(0644), error);
    if (!out || error) throw std::runtime_error("writing " + again + " failed: is the disk full?");
}

}  // namespace crane::checkpoint
