// Inode and device numbers that are the same on every replica.
//
// A file's number is made of the path under which the domain met it first, and is then kept for that file,
// through renames and hard links, in the domain's table. The same name given to another file gets another
// number. After a restore the real files are others: craned tells which of the layers' files has become which
// (base/file_key.hpp); what is older than the restore and not among them is of a layer that nobody
// changes, and is known by its path.
#pragma once

#include <sys/stat.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// The number to show for the file that (fd, path, at_flags) name and `info` describes.
uint64_t stable_inode(const struct statx& info, int fd, const char* path, int at_flags);
/// What the program has set as the file's time of access, kNoTime if nothing. The kernel's own is no matter:
/// when it moves that one depends on mounts.
int64_t time_of_access_ns(const struct statx& info);
void keep_time_of_access(int fd, const char* path, int at_flags, int64_t ns);
/// The time to show as ctime of a file whose mtime is shown as `mtime_ns`.
int64_t time_of_change_ns(const struct statx& info, int64_t mtime_ns);
/// What has no part in the mtime has been changed just now.
void keep_time_of_change(int fd, const char* path, int at_flags);
/// The device to show, in makedev's encoding.
uint64_t stable_device(const struct statx& info, int fd, const char* path, int at_flags);

/// A name that is about to be taken away. What the kernel tells files apart by may soon be another's: the
/// inode is free, and the time of birth is that of the last tick of its clock.
class NameToGo {
  public:
    NameToGo(int fd, const char* path);
    /// It is gone: if the file has no other, its number is nobody's but of who has it open. One that has has
    /// changed.
    void gone() const;

  private:
    int fd_;
    const char* path_;
    bool last_ = false;  ///< the file has no other
    uint64_t key_ = 0;   ///< of the file; 0: there is none
    int64_t mtime_ns_ = 0;
};

/// The real files have become others: the domain was restored.
void find_files_again();

/// The absolute path of an open descriptor; false if it has none. `room` bytes, ended by 0.
bool path_of_descriptor(int fd, char* place, size_t room);
/// That of a file which (fd, path, at_flags) name and `info` describes.
bool path_of_file(const struct statx& info, int fd, const char* path, int at_flags, char* place, size_t room);
/// A kind of file system (statfs) that has no disk.
bool is_kernels_own(uint64_t kind);
/// The number that a file at this absolute path is given when first met.
uint64_t inode_for_path(const char* directory, const char* name);

}  // namespace crane::interpose
