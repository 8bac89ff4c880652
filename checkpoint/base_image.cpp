#include "checkpoint/base_image.hpp"

#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "checkpoint/domain_launch.hpp"
#include "checkpoint/file_sum.hpp"
#include "checkpoint/loop_mount.hpp"

namespace crane::checkpoint {

ServerRoot root_of(const DomainSpec& spec) {
    return spec.image.empty() ? ServerRoot() : ServerRoot(DomainPaths(spec.state_dir).base);
}

BaseMount::BaseMount(const DomainSpec& spec) {
    if (spec.image.empty()) return;
    const std::string point = DomainPaths(spec.state_dir).base;
    // Of a craned that was killed here.
    while (::umount2(point.c_str(), MNT_DETACH) == 0) {
    }
    std::error_code error;
    std::filesystem::create_directories(point, error);
    if (error) throw std::runtime_error("making " + point + ": " + error.message());
    try {
        const File file(spec.image, O_RDONLY);
        mount_loop(file.fd(), point, "squashfs", MS_RDONLY | MS_NODEV | MS_NOSUID);
    } catch (const std::runtime_error& problem) {
        throw std::runtime_error("the base image " + spec.image + " cannot be mounted: " + problem.what() +
                                 " (this needs squashfs and loop devices in the kernel)");
    }
    point_ = point;
}

BaseMount::~BaseMount() {
    if (!point_.empty()) ::umount2(point_.c_str(), MNT_DETACH);
}

}  // namespace crane::checkpoint
