// Directories, read whole and sorted by name: the order that a file system gives depends on its history.
//
// A DIR made here is ours from end to end. glob, ftw and fts read directories inside libc, by getdents64
// (directory_entries.cpp).
#include "interpose/directories.hpp"

#include <fcntl.h>
#include <limits.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/shown_files.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_identity.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/uncancelled.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

Directory* ours(DIR* directory) {
    auto* own = reinterpret_cast<Directory*>(directory);
    return own && own->magic == kDirectoryMagic ? own : nullptr;
}

/// All bytes of the directory. Returns their number or -errno.
long read_all(int fd, char** place) {
    size_t room = 16 * 1024, used = 0;
    auto* bytes = static_cast<char*>(malloc(room));
    while (bytes) {
        const long got = raw(SYS_getdents64, fd, bytes + used, room - used);
        if (got < 0) {
            free(bytes);
            return got;
        }
        if (got == 0) {
            *place = bytes;
            return static_cast<long>(used);
        }
        used += static_cast<size_t>(got);
        if (room - used >= 4096) continue;
        auto* larger = static_cast<char*>(realloc(bytes, room *= 2));
        if (!larger) free(bytes);
        bytes = larger;
    }
    return -ENOMEM;
}

void make_stable(Directory& d, const char* path) {
    char above[PATH_MAX];
    strcpy(above, path);
    if (char* slash = strrchr(above, '/')) slash[slash == above] = 0;
    for (size_t i = 0; i < d.count; ++i) {
        struct dirent64* entry = entry_at(d, i);
        entry->d_off = static_cast<off64_t>(i + 1);
        if (strcmp(entry->d_name, ".") == 0) {
            entry->d_ino = inode_for_path(path, nullptr);
        } else if (strcmp(entry->d_name, "..") == 0) {
            entry->d_ino = inode_for_path(above, nullptr);
        } else {
            entry->d_ino = inode_for_path(path, entry->d_name);
        }
    }
}

bool is_number(std::string_view name) {
    return name.find_first_not_of("0123456789") == std::string_view::npos;
}

/// An orphan that has ended may be forgotten by the kernel at any time: also since the folder was read.
bool is_of_process(const char* name) {
    const int pid = atoi(name);
    return is_number(name) && !is_ended_orphan(pid) && raw(SYS_kill, pid, 0) != -ESRCH;
}

/// Which files there are besides in the kernel's own folders is its version's and its modules'.
bool is_shown(std::string_view folder, const char* entry) {
    const std::string_view name = entry;
    const auto among = [&](const auto& names) {
        return name.front() == '.' || std::ranges::count(names, name) != 0;
    };
    if (!folder.starts_with("/proc")) return true;
    if (folder == "/proc") return is_of_process(entry) || among(crane::kShownInProc);
    if (folder.ends_with("/net")) return among(crane::kShownOfNetwork);
    return !is_number(folder.substr(folder.rfind('/') + 1)) || among(crane::kShownOfProcess);
}

}  // namespace

int crane::interpose::load_directory(Directory& d) {
    char* bytes = nullptr;
    const long length = read_all(d.fd, &bytes);
    if (length < 0) return static_cast<int>(length);
    char path[PATH_MAX] = "";
    path_of_descriptor(d.fd, path, sizeof(path));
    size_t count = 0;
    const auto entry = [&](long at) { return reinterpret_cast<struct dirent64*>(bytes + at); };
    const auto next = [&](long at) { return at + entry(at)->d_reclen; };
    for (long at = 0; at < length; at = next(at)) ++count;
    auto* offsets = static_cast<uint32_t*>(malloc((count + 1) * sizeof(uint32_t)));
    if (!offsets) {
        free(bytes);
        return -ENOMEM;
    }
    size_t index = 0;
    for (long at = 0; at < length; at = next(at))
        if (is_shown(path, entry(at)->d_name)) offsets[index++] = static_cast<uint32_t>(at);
    count = index;
    free(d.bytes);
    free(d.offsets);
    d.bytes = bytes;
    d.offsets = offsets;
    d.count = count;
    d.at = 0;
    d.unread = false;
    std::sort(offsets, offsets + count, [&](uint32_t a, uint32_t b) {
        const auto name = [&](uint32_t at) {
            return reinterpret_cast<const struct dirent64*>(bytes + at)->d_name;
        };
        return strcmp(name(a), name(b)) < 0;
    });
    make_stable(d, path);
    return 0;
}

namespace {

/// Null, with errno set: there is no memory.
DIR* directory_over(int fd) {
    auto* d = static_cast<Directory*>(calloc(1, sizeof(Directory)));
    if (!d) return nullptr;
    d->magic = kDirectoryMagic;
    d->fd = fd;
    d->unread = true;
    return reinterpret_cast<DIR*>(d);
}

DIR* open_directory(int at_fd, const char* path) {
    SharedOperation turn(Op::kFile, files_key());
    const long fd = raw(SYS_openat, at_fd, path, O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) {
        errno = static_cast<int>(-fd);
        return nullptr;
    }
    drop_entry(static_cast<int>(fd));
    DIR* directory = directory_over(static_cast<int>(fd));
    if (!directory) raw(SYS_close, fd);
    return directory;
}

/// False, with errno set: it cannot be read.
bool read_if_unread(Directory& d) {
    if (!d.unread) return true;
    const SharedOperation turn(Op::kFile, descriptor_key(d.fd));
    const int error = load_directory(d);
    if (error) errno = -error;
    return error == 0;
}

/// Null at the end, and if it cannot be read.
struct dirent64* next_entry(Directory& d) {
    return read_if_unread(d) && d.at < d.count ? entry_at(d, d.at++) : nullptr;
}

/// readdir_r: to the caller's memory.
template <typename Entry>
int next_entry_into(DIR* directory, Entry* place, Entry** result) {
    const int saved = errno;
    errno = 0;
    const struct dirent64* entry = ::readdir64(directory);
    const int error = entry ? 0 : errno;
    errno = saved;
    *result = nullptr;
    if (!entry) return error;
    std::memcpy(place, entry, entry->d_reclen);
    *result = place;
    return 0;
}

}  // namespace

CRANE_EXPORT DIR* opendir(const char* path) {
    return active() ? open_directory(AT_FDCWD, path) : real.opendir(path);
}

CRANE_EXPORT DIR* fdopendir(int fd) {
    if (!active()) return resolve_real(), real.fdopendir(fd);
    struct stat64 info;
    if (::fstat64(fd, &info) != 0) return nullptr;
    const long flags = raw(SYS_fcntl, fd, F_GETFL);
    if (!S_ISDIR(info.st_mode) || (flags & O_ACCMODE) == O_WRONLY) {
        errno = S_ISDIR(info.st_mode) ? EINVAL : ENOTDIR;
        return nullptr;
    }
    DIR* directory = directory_over(fd);
    if (directory) raw(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
    return directory;
}

CRANE_EXPORT struct dirent* readdir(DIR* directory) {
    Directory* own = ours(directory);
    return own ? reinterpret_cast<struct dirent*>(next_entry(*own)) : real.readdir(directory);
}

CRANE_EXPORT struct dirent64* readdir64(DIR* directory) {
    Directory* own = ours(directory);
    return own ? next_entry(*own) : real.readdir64(directory);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
CRANE_EXPORT int readdir_r(DIR* directory, struct dirent* place, struct dirent** result) {
    return next_entry_into(directory, place, result);
}
CRANE_EXPORT int readdir64_r(DIR* directory, struct dirent64* place, struct dirent64** result) {
    return next_entry_into(directory, place, result);
}
#pragma GCC diagnostic pop

CRANE_EXPORT void rewinddir(DIR* directory) noexcept {
    Directory* own = ours(directory);
    if (!own) return real.rewinddir(directory);
    raw(SYS_lseek, own->fd, 0, SEEK_SET);
    own->at = own->count = 0;
    own->unread = true;
}

CRANE_EXPORT long telldir(DIR* directory) noexcept {
    Directory* own = ours(directory);
    return own ? static_cast<long>(own->at) : real.telldir(directory);
}

CRANE_EXPORT void seekdir(DIR* directory, long place) noexcept {
    Directory* own = ours(directory);
    if (!own) return real.seekdir(directory, place);
    const int saved = errno;
    read_if_unread(*own);
    errno = saved;
    own->at = place < 0 ? 0 : std::min(static_cast<size_t>(place), own->count);
}

CRANE_EXPORT int dirfd(DIR* directory) noexcept {
    Directory* own = ours(directory);
    return own ? own->fd : real.dirfd(directory);
}

CRANE_EXPORT int closedir(DIR* directory) {
    Directory* own = ours(directory);
    if (!own) return real.closedir(directory);
    const int fd = own->fd;
    own->magic = 0;
    free(own->bytes);
    free(own->offsets);
    free(own);
    const Uncancelled whole;
    return ::close(fd);
}

// --- scandir

namespace {

template <typename Entry>
int scan(int at_fd, const char* path, Entry*** list, int (*filter)(const Entry*),
         int (*compare)(const Entry**, const Entry**)) {
    DIR* directory = open_directory(at_fd, path);
    if (!directory) return -1;
    Directory& d = *ours(directory);
    if (!read_if_unread(d)) {
        const int error = errno;
        ::closedir(directory);
        errno = error;
        return -1;
    }
    auto** chosen = static_cast<Entry**>(malloc((d.count + 1) * sizeof(Entry*)));
    int count = 0;
    bool complete = chosen != nullptr;
    while (complete) {
        struct dirent64* entry = next_entry(d);
        if (!entry) break;
        if (filter && !filter(reinterpret_cast<const Entry*>(entry))) continue;
        chosen[count] = static_cast<Entry*>(malloc(entry->d_reclen));
        complete = chosen[count] != nullptr;
        if (complete) std::memcpy(chosen[count++], entry, entry->d_reclen);
    }
    ::closedir(directory);
    if (!complete) {
        while (count > 0) free(chosen[--count]);
        free(chosen);
        errno = ENOMEM;
        return -1;
    }
    if (compare) {
        qsort(chosen, static_cast<size_t>(count), sizeof(Entry*),
              reinterpret_cast<int (*)(const void*, const void*)>(compare));
    }
    *list = chosen;
    return count;
}

using Entry = struct dirent;
using Entry64 = struct dirent64;

}  // namespace

CRANE_EXPORT int scandir(const char* path, Entry*** list, int (*filter)(const Entry*),
                         int (*compare)(const Entry**, const Entry**)) {
    return active() ? scan(AT_FDCWD, path, list, filter, compare) : real.scandir(path, list, filter, compare);
}
CRANE_EXPORT int scandir64(const char* path, Entry64*** list, int (*filter)(const Entry64*),
                           int (*compare)(const Entry64**, const Entry64**)) {
    return active() ? scan(AT_FDCWD, path, list, filter, compare)
                    : real.scandir64(path, list, filter, compare);
}
CRANE_EXPORT int scandirat(int fd, const char* path, Entry*** list, int (*filter)(const Entry*),
                           int (*compare)(const Entry**, const Entry**)) {
    return active() ? scan(fd, path, list, filter, compare) : real.scandirat(fd, path, list, filter, compare);
}
CRANE_EXPORT int scandirat64(int fd, const char* path, Entry64*** list, int (*filter)(const Entry64*),
                             int (*compare)(const Entry64**, const Entry64**)) {
    return active() ? scan(fd, path, list, filter, compare)
                    : real.scandirat64(fd, path, list, filter, compare);
}
