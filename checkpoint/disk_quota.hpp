// Bounds on what a server writes to disk, so that it cannot take the space that the log needs.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/mounts.hpp"

namespace crane::checkpoint {

/// What a server writes to is a file system of its own.
struct DiskQuota {
    enum class Format {
        kExt4,
        kXfs,  ///< what it has written is copied for a checkpoint without reading it (reflinks)
    };
    uint64_t bytes = 0;  ///< 0: no limit, and no file system of its own
    Format format = Format::kExt4;

    explicit operator bool() const { return bytes != 0; }
    bool operator==(const DiskQuota&) const = default;
};
uint64_t least_quota_bytes(DiskQuota::Format format);

constexpr char kQuotaImage[] = ".image";

/// Mounts on the folder `point` a fresh file system, kept in the file `image` (a domain's: `point` and
/// kQuotaImage) whose space is taken at once. It goes when it is unmounted. Throws std::runtime_error.
void mount_limited(const std::string& image, const std::string& point, const DiskQuota& quota);
/// Of any domain of this host.
bool is_disk_quota(const Mount& mount);

/// Gives back the space of all but the last `most` bytes of a file that only grows; what is left keeps its
/// place, and zeros are read before it.
void trim_front(const std::string& path, uint64_t most);

}  // namespace crane::checkpoint
