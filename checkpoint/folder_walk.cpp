#include "checkpoint/folder_walk.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/descriptor.hpp"

namespace crane::checkpoint {
namespace {

struct Entry {
    std::string name;
    unsigned char type;
};

/// Nothing: errno says why.
std::optional<std::vector<Entry>> entries_of(int folder) {
    const int again = ::openat(folder, ".", kFolderFlags);
    DIR* stream = again >= 0 ? ::fdopendir(again) : nullptr;
    if (stream == nullptr) {
        const int error = errno;
        if (again >= 0) ::close(again);
        errno = error;
        return std::nullopt;
    }
    std::vector<Entry> found;
    errno = 0;
    while (const dirent* entry = ::readdir(stream)) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") found.push_back({entry->d_name, entry->d_type});
        errno = 0;
    }
    const int error = errno;
    ::closedir(stream);
    errno = error;
    if (error != 0) return std::nullopt;
    return found;
}

/// A walk: one descriptor, however deep it is, and what is left to be visited of each folder on the way.
class Walk {
  public:
    Walk(const Folder& top, FolderOrder order, const std::function<void(const Walked&)>& visit)
        : top_(top), order_(order), visit_(visit), here_(::openat(top.fd(), ".", kFolderFlags)) {
        if (here_.get() < 0) fail_at("reading", top.path());
        const struct stat info = look_here();
        device_ = info.st_dev;
        begin_level("", info);
    }
    void go() {
        while (true) {
            Level& level = levels_.back();
            if (!level.left.empty()) {
                const Entry entry = std::move(level.left.back());
                level.left.pop_back();
                meet(entry);
            } else if (levels_.size() > 1) {
                leave();
            } else {
                return;
            }
        }
    }

  private:
    struct Level {
        std::vector<Entry> left;
        std::string name;  ///< in the folder above
        ino_t inode;
    };

    std::string whole() const { return top_.path() + path_; }
    struct stat look_here() const {
        struct stat info {};
        if (::fstat(here_.get(), &info) != 0) fail_at("looking at", whole());
        return info;
    }
    void visit(const std::string& name, bool is_folder) {
        const size_t before = path_.size();
        path_ += "/" + name;
        visit_({here_.get(), name.c_str(), path_, is_folder});
        path_.resize(before);
    }
    void meet(const Entry& entry) {
        bool is_folder = entry.type == DT_DIR;
        if (entry.type == DT_UNKNOWN) {
            struct stat info {};
            if (::fstatat(here_.get(), entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
                fail_at("looking at", whole() + "/" + entry.name);
            is_folder = S_ISDIR(info.st_mode);
        }
        if (!is_folder || order_ == FolderOrder::kFirst) visit(entry.name, is_folder);
        if (is_folder) enter(entry.name);
    }
    void begin_level(const std::string& name, const struct stat& info) {
        std::optional<std::vector<Entry>> entries = entries_of(here_.get());
        if (!entries) fail_at("reading", whole());
        levels_.push_back({std::move(*entries), name, info.st_ino});
    }
    void enter(const std::string& name) {
        Descriptor below(::openat(here_.get(), name.c_str(), kFolderFlags | O_NOFOLLOW));
        if (below.get() < 0) fail_at("reading", whole() + "/" + name);
        struct stat info {};
        if (::fstat(below.get(), &info) != 0) fail_at("looking at", whole() + "/" + name);
        if (info.st_dev != device_) {
            if (order_ == FolderOrder::kLast) visit(name, true);
            return;
        }
        here_.reset(below.release());
        path_ += "/" + name;
        begin_level(name, info);
    }
    void leave() {
        const std::string name = std::move(levels_.back().name);
        levels_.pop_back();
        here_.reset(::openat(here_.get(), "..", kFolderFlags));
        if (here_.get() < 0) fail_at("reading the folder above", whole());
        path_.resize(path_.size() - name.size() - 1);
        const struct stat info = look_here();
        if (info.st_ino != levels_.back().inode || info.st_dev != device_)
            throw std::runtime_error(short_path(whole()) + " was moved while it was looked through");
        if (order_ == FolderOrder::kLast) visit(name, true);
    }

    const Folder& top_;
    const FolderOrder order_;
    const std::function<void(const Walked&)>& visit_;
    Descriptor here_;
    dev_t device_ = 0;
    std::string path_;
    std::vector<Level> levels_;
};

}  // namespace

struct stat Walked::look() const {
    struct stat info {};
    if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) fail_at("looking at", path);
    return info;
}

void walk_folder(const Folder& top, FolderOrder order, const std::function<void(const Walked&)>& visit) {
    Walk(top, order, visit).go();
}

void remove_tree(const std::string& path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return;
        fail_at("removing", path);
    }
    if (S_ISDIR(info.st_mode))
        walk_folder(Folder(path), FolderOrder::kLast, [&](const Walked& one) {
            if (::unlinkat(one.folder, one.name, one.is_folder ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
                fail_at("removing", path + one.path);
        });
    if (::unlinkat(AT_FDCWD, path.c_str(), S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
        fail_at("removing", path);
}

}  // namespace crane::checkpoint
