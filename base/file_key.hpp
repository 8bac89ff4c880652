// How a real file is told from others: the same in the shim, which numbers files by it, and in craned, which
// finds out what a file has become after a restore.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crane {

/// The time of birth tells a file from an earlier one with the same inode. Never 0.
inline uint64_t file_key(const struct statx& info) {
    const uint64_t parts[5] = {info.stx_ino, info.stx_dev_major, info.stx_dev_minor,
                               static_cast<uint64_t>(info.stx_btime.tv_sec), info.stx_btime.tv_nsec};
    return XXH3_64bits(parts, info.stx_mask & STATX_BTIME ? sizeof(parts) : 3 * sizeof(uint64_t)) | 1;
}
constexpr unsigned kFileKeyMask = STATX_BASIC_STATS | STATX_BTIME;

/// In the domain: pairs of keys, before and after the restore that the domain comes out of.
constexpr char kFilesAgain[] = "/run/crane/files-again";
struct FileAgain {
    uint64_t before, after;
};

}  // namespace crane
