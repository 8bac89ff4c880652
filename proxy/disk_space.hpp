// What a file system has left, as the kernel says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace crane::proxy {

/// Of a file system that makes inodes as it needs them (btrfs).
constexpr uint64_t kUnboundedFiles = UINT64_MAX;

struct DiskSpace {
    uint64_t free_bytes = 0, total_bytes = 0;
    uint64_t free_files = kUnboundedFiles, total_files = 0;
};

/// Of the one that `path` is on; nothing when that cannot be told.
std::optional<DiskSpace> disk_space(const std::string& path);

}  // namespace crane::proxy
