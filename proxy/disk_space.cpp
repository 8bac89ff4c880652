#include "proxy/disk_space.hpp"

#include <sys/statvfs.h>

namespace crane::proxy {

std::optional<DiskSpace> disk_space(const std::string& path) {
    struct statvfs disk {};
    if (statvfs(path.c_str(), &disk) != 0) return std::nullopt;
    DiskSpace space;
    space.free_bytes = disk.f_bavail * disk.f_frsize;
    space.total_bytes = disk.f_blocks * disk.f_frsize;
    if (disk.f_files != 0) {
        space.total_files = disk.f_files;
        space.free_files = disk.f_favail;
    }
    return space;
}

}  // namespace crane::proxy
