#include "checkpoint/mounts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "checkpoint/processes.hpp"

namespace crane::checkpoint {
namespace {

constexpr char kTable[] = "/proc/self/mountinfo";

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(const std::string& word) {
    std::string out;
    for (size_t i = 0; i < word.size(); ++i) {
        if (word[i] == '\\' && i + 3 < word.size()) {
            out += static_cast<char>(std::stoi(word.substr(i + 1, 3), nullptr, 8));
            i += 3;
        } else {
            out += word[i];
        }
    }
    return out;
}

bool is_directory(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

std::vector<Mount> parse_mountinfo(const std::string& text) {
    std::vector<Mount> mounts;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t separator = line.find(" - ");
        if (separator == std::string::npos) continue;
        std::istringstream left(line), right(line.substr(separator + 3));
        std::string id, parent, device, root, point, type, source;
        left >> id >> parent >> device >> root >> point;
        right >> type >> source;
        point = unescape(point);
        std::erase_if(mounts, [&](const Mount& earlier) { return earlier.point == point; });
        mounts.push_back({point, type, source});
    }
    return mounts;
}

std::vector<Mount> disk_mounts_below_root(const std::vector<Mount>& mounts) {
    static const std::set<std::string> kDisk = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs"};
    std::vector<Mount> found;
    for (const Mount& mount : mounts) {
        if (mount.point == "/" || kDisk.count(mount.type) == 0 || !is_directory(mount.point)) continue;
        // These start empty in every domain, or are made by the container.
        const bool own =
            std::ranges::any_of(std::initializer_list<const char*>{"/run", "/tmp", "/proc", "/sys", "/dev"},
                                [&](const char* top) { return is_below(mount.point, top); });
        // Characters that the option strings of overlay and LXC cannot carry.
        if (!own && mount.point.find_first_of(" \t\n\\:,\"") == std::string::npos) found.push_back(mount);
    }
    std::ranges::sort(found, {}, &Mount::point);  // a folder before what is mounted below it
    return found;
}

Mount mount_of(const std::vector<Mount>& mounts, const std::string& path) {
    Mount best{"/", "", ""};
    for (const Mount& mount : mounts)
        if (is_below(path, mount.point) && mount.point.size() >= best.point.size()) best = mount;
    return best;
}

bool is_below(const std::string& path, const std::string& folder) {
    if (folder == "/") return !path.empty() && path[0] == '/';
    return path.compare(0, folder.size(), folder) == 0 &&
           (path.size() == folder.size() || path[folder.size()] == '/');
}

std::vector<Mount> read_mounts() {
    return parse_mountinfo(read_text_file(kTable));
}

MountWatch::MountWatch() : table_(::open(kTable, O_RDONLY | O_CLOEXEC)) {}

bool MountWatch::changed() const {
    pollfd since_opened{table_.get(), POLLPRI, 0};
    return ::poll(&since_opened, 1, 0) == 1;
}

}  // namespace crane::checkpoint
