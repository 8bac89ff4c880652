#include "interpose/core/file_identity.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>

#include "base/file_key.hpp"
#include "interpose/core/fds.hpp"

namespace crane::interpose {

namespace {

constexpr uint64_t kNumberMask = (uint64_t{1} << 48) - 1;
constexpr uint64_t kFirstNumber = 1024;
constexpr uint64_t kMessageQueues = 0x19800202;  ///< a file system that no header names
/// On FileIdentity::number: the file has no name any more. One that has is another with the same key.
constexpr uint64_t kNameless = uint64_t{1} << 63;

uint64_t as_number(uint64_t hash) {
    return (hash & kNumberMask) | kFirstNumber;
}

FileIdentity& place_of(FileIdentity* table, uint64_t key) {
    for (size_t at = key >> 1;; ++at) {
        FileIdentity& file = table[at % kMaxFiles];
        if (file.key == key || file.key == 0) return file;
    }
}

/// The file of before a restore that was shown this number, and is not met again yet; null: there is none.
FileIdentity* file_before(uint64_t number) {
    DomainState& d = domain();
    if (!d.restored) return nullptr;
    for (FileIdentity& file : d.files_before)
        if (file.number == number) return &file;  // nor is one without a name
    return nullptr;
}

/// Files that have no time of birth are the kernel's own, and known by their path.
bool may_be_older_than_restore(const struct statx& info) {
    const uint64_t born_ns =
        static_cast<uint64_t>(info.stx_btime.tv_sec) * kNsPerSecond + info.stx_btime.tv_nsec;
    return !(info.stx_mask & STATX_BTIME) || born_ns < domain().real_start_ns;
}

/// False: another file has it.
bool claim_number(uint64_t number) {
    DomainState& d = domain();
    for (size_t at = number;; ++at) {
        uint64_t& place = d.file_numbers[at % kMaxFiles];
        if (place == number) return false;
        if (place != 0) continue;
        place = number;
        return true;
    }
}

/// By what the descriptor stands for: a pipe's ends have one number.
uint64_t number_of_nameless(int fd) {
    const FdEntry* entry = fd_entry(fd);
    const uint32_t parts[2] = {entry ? static_cast<uint32_t>(entry->kind) : 0, entry ? entry->object : 0};
    return as_number(XXH3_64bits(parts, sizeof(parts)));
}

}  // namespace

bool path_of_file(const struct statx& info, int fd, const char* path, int at_flags, char* place,
                  size_t room) {
    const auto type = info.stx_mode & S_IFMT;
    if (!path || path[0] == 0) {
        if (type == S_IFIFO || type == S_IFSOCK) return false;
        return path_of_descriptor(fd, place, room);
    }
    const int nofollow = at_flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
    const long opened = raw(SYS_openat, fd, path, O_PATH | O_CLOEXEC | nofollow, 0);
    if (opened < 0) return false;
    const bool found = path_of_descriptor(static_cast<int>(opened), place, room);
    raw(SYS_close, opened);
    return found;
}

bool path_of_descriptor(int fd, char* place, size_t room) {
    char link[32] = "/proc/self/fd/";
    char digits[12];
    size_t count = 0, at = strlen(link);
    if (fd < 0) return false;
    do digits[count++] = static_cast<char>('0' + fd % 10);
    while (fd /= 10);
    while (count > 0) link[at++] = digits[--count];
    link[at] = 0;
    const long length = raw(SYS_readlink, link, place, room - 1);
    // "pipe:[4711]" and its kind name nothing that another replica has.
    if (length <= 0 || place[0] != '/') return false;
    place[length] = 0;
    return true;
}

uint64_t inode_for_path(const char* directory, const char* name) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    const size_t length = strlen(directory);
    XXH3_64bits_update(&state, directory, length);
    if (name) {
        if (length == 0 || directory[length - 1] != '/') XXH3_64bits_update(&state, "/", 1);
        XXH3_64bits_update(&state, name, strlen(name));
    }
    return as_number(XXH3_64bits_digest(&state));
}

namespace {

void forget_files() {
    DomainState& d = domain();
    std::memset(d.files, 0, sizeof(d.files));
    std::memset(d.files_before, 0, sizeof(d.files_before));
    std::memset(d.file_numbers, 0, sizeof(d.file_numbers));
    d.files_known = d.restored = 0;
}

/// `files_known` and the numbers in use stay as they are on replicas that were not restored.
void found_again(const FileAgain& pair) {
    DomainState& d = domain();
    FileIdentity& before = place_of(d.files_before, pair.before);
    if (before.key != pair.before || before.number == 0) return;
    FileIdentity& now = place_of(d.files, pair.after);
    now = before;
    now.key = pair.after;
    before.number = 0;
}

}  // namespace

void find_files_again() {
    DomainState& d = domain();
    std::memcpy(d.files_before, d.files, sizeof(d.files));
    std::memset(d.files, 0, sizeof(d.files));
    d.restored = 1;
    const long fd = raw(SYS_openat, AT_FDCWD, kFilesAgain, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {  // from a root of its own: by their paths, then
        forget_files();
        return;
    }
    FileAgain pairs[256];
    for (;;) {
        const long got = raw(SYS_read, fd, pairs, sizeof(pairs));
        if (got <= 0) break;
        for (size_t i = 0; i < static_cast<size_t>(got) / sizeof(pairs[0]); ++i) found_again(pairs[i]);
    }
    raw(SYS_close, fd);
}

uint64_t stable_inode(const struct statx& info, int fd, const char* path, int at_flags) {
    DomainState& d = domain();
    const uint64_t key = file_key(info);
    FileIdentity* file = &place_of(d.files, key);
    const bool nameless = (file->number & kNameless) != 0;
    if (file->key == key && (!nameless || info.stx_nlink == 0)) return file->number & ~kNameless;
    if (d.files_known > kMaxFiles / 4 * 3) {
        forget_files();
        file = &place_of(d.files, key);
    }
    char name[PATH_MAX];
    uint64_t number = path_of_file(info, fd, path, at_flags, name, sizeof(name))
                          ? inode_for_path(name, nullptr)
                          : number_of_nameless(fd);
    if (FileIdentity* before = !nameless && may_be_older_than_restore(info) ? file_before(number) : nullptr) {
        *file = *before;
        file->key = key;
        before->number = 0;
        return number;
    }
    while (!claim_number(number)) number = as_number(XXH3_64bits(&number, sizeof(number)));
    ++d.files_known;
    *file = {key, number, kNoTime, kNoTime, kNoTime};
    return number;
}

namespace {

/// Null: the domain has not met it yet.
const FileIdentity* known_file(const struct statx& info) {
    const FileIdentity& file = place_of(domain().files, file_key(info));
    if (file.key == 0) return nullptr;
    return !(file.number & kNameless) || info.stx_nlink == 0 ? &file : nullptr;
}

int64_t mtime_ns_of(const struct statx& info) {
    return info.stx_mtime.tv_sec * static_cast<int64_t>(kNsPerSecond) + info.stx_mtime.tv_nsec;
}

}  // namespace

int64_t time_of_access_ns(const struct statx& info) {
    const FileIdentity* file = known_file(info);
    return file ? file->read_ns : kNoTime;
}

int64_t time_of_change_ns(const struct statx& info, int64_t mtime_ns) {
    const FileIdentity* file = known_file(info);
    // Written since, it has changed when it was written.
    return file && file->changed_ns != kNoTime && file->mtime_then_ns == mtime_ns ? file->changed_ns
                                                                                  : mtime_ns;
}

void keep_time_of_change(int fd, const char* path, int at_flags) {
    struct statx info;
    if (raw(SYS_statx, fd, path, at_flags, kFileKeyMask, &info) != 0) return;
    stable_inode(info, fd, path, at_flags);
    FileIdentity& file = place_of(domain().files, file_key(info));
    file.changed_ns = static_cast<int64_t>(now_realtime_ns());
    file.mtime_then_ns = mtime_ns_of(info);
}

void keep_time_of_access(int fd, const char* path, int at_flags, int64_t ns) {
    struct statx info;
    if (raw(SYS_statx, fd, path, at_flags, kFileKeyMask | STATX_TYPE, &info) != 0) return;
    stable_inode(info, fd, path, at_flags);
    place_of(domain().files, file_key(info)).read_ns = ns;
}

bool is_kernels_own(uint64_t kind) {
    constexpr uint64_t kOwn[] = {PROC_SUPER_MAGIC,   SYSFS_MAGIC,         RAMFS_MAGIC,        TMPFS_MAGIC,
                                 DEVPTS_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC, PIPEFS_MAGIC,
                                 SOCKFS_MAGIC,       ANON_INODE_FS_MAGIC, NSFS_MAGIC,         HUGETLBFS_MAGIC,
                                 kMessageQueues};
    return std::ranges::count(kOwn, kind) != 0;
}

uint64_t stable_device(const struct statx& info, int fd, const char* path, int at_flags) {
    struct Known {
        uint64_t real, shown;
    };
    static Known known[16];
    static uint32_t count = 0, image = 0;
    // In another container the same file systems have other numbers.
    if (image != runtime.view.control->image) {
        image = runtime.view.control->image;
        count = 0;
    }
    const uint64_t real_device = makedev(info.stx_dev_major, info.stx_dev_minor);
    for (uint32_t i = 0; i < count; ++i) {
        if (known[i].real == real_device) return known[i].shown;
    }
    struct statx root;
    uint64_t shown = makedev(8, 1);
    const bool is_root = raw(SYS_statx, AT_FDCWD, "/", 0, STATX_INO, &root) == 0 &&
                         root.stx_dev_major == info.stx_dev_major && root.stx_dev_minor == info.stx_dev_minor;
    if (!is_root) {
        // Named after the kind of file system: which numbers the kernel gave out is the host's history.
        struct statfs system {};
        const int nofollow = at_flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
        long opened = fd;
        if (path && path[0]) opened = raw(SYS_openat, fd, path, O_PATH | O_CLOEXEC | nofollow, 0);
        if (opened >= 0) raw(SYS_fstatfs, opened, &system);
        if (path && path[0] && opened >= 0) raw(SYS_close, opened);
        const auto kind = static_cast<uint64_t>(system.f_type);
        // Which disks a host has, and where it has mounted them, is its own.
        if (is_kernels_own(kind))
            shown = makedev(0, 32 + static_cast<unsigned>(XXH3_64bits(&kind, sizeof(kind)) % 200));
    }
    if (count < sizeof(known) / sizeof(known[0])) known[count++] = {real_device, shown};
    return shown;
}

NameToGo::NameToGo(int fd, const char* path) : fd_(fd), path_(path) {
    struct statx info;
    if (raw(SYS_statx, fd, path, AT_SYMLINK_NOFOLLOW, kFileKeyMask, &info) != 0) return;
    last_ = info.stx_nlink <= 1 || S_ISDIR(info.stx_mode);
    key_ = file_key(info);
    mtime_ns_ = mtime_ns_of(info);
}

void NameToGo::gone() const {
    if (key_ == 0) return;
    FileIdentity& file = place_of(domain().files, key_);
    if (file.key != key_) return;
    struct statx info;  // a file that was renamed to its own name has it still
    const bool named = raw(SYS_statx, fd_, path_, AT_SYMLINK_NOFOLLOW, kFileKeyMask, &info) == 0;
    if (named && file_key(info) == key_) return;
    if (last_) file.number |= kNameless;
    file.changed_ns = static_cast<int64_t>(now_realtime_ns());
    file.mtime_then_ns = mtime_ns_;
}

}  // namespace crane::interpose
