#include "checkpoint/disk_quota.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "checkpoint/command.hpp"
#include "checkpoint/descriptor.hpp"
#include "checkpoint/loop_mount.hpp"
#include "checkpoint/processes.hpp"

namespace crane::checkpoint {
namespace {

constexpr char kMakeExt4[] = "/sbin/mkfs.ext4", kMakeXfs[] = "/sbin/mkfs.xfs";
constexpr uint64_t kLeastExt4Bytes = 16 << 20, kLeastXfsBytes = 320 << 20;

[[noreturn]] void fail(const std::string& what, int error) {
    throw std::runtime_error("the disk quota cannot be set up: " + what + ": " + std::strerror(error));
}

void make_file_system(const std::string& image, DiskQuota::Format format) {
    if (format == DiskQuota::Format::kXfs) {
        run_command({kMakeXfs, "-q", "-f", "-K", "-b", "size=4096", "-s", "size=4096", "-i", "size=512", "-m",
                     "reflink=1", image},
                    "the disk quota cannot be set up (apt-get install xfsprogs)");
        return;
    }
    // No journal: nothing of it outlives the domain. The same blocks and sizes on every host.
    run_command({kMakeExt4, "-q", "-F", "-m", "0", "-b", "4096", "-I", "256", "-O", "^has_journal", "-E",
                 "nodiscard,lazy_itable_init=1", image},
                "the disk quota cannot be set up (apt-get install e2fsprogs)");
}

}  // namespace

uint64_t least_quota_bytes(DiskQuota::Format format) {
    return format == DiskQuota::Format::kXfs ? kLeastXfsBytes : kLeastExt4Bytes;
}

void mount_limited(const std::string& image, const std::string& point, const DiskQuota& quota) {
    ::unlink(image.c_str());
    const Descriptor file(::open(image.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) fail("making " + image, errno);
    const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(quota.bytes));
    if (error != 0) {
        ::unlink(image.c_str());
        fail(std::to_string(quota.bytes >> 20) + " MiB for " + image, error);
    }
    make_file_system(image, quota.format);
    try {
        const char* type = quota.format == DiskQuota::Format::kXfs ? "xfs" : "ext4";
        mount_loop(file.get(), point, type, MS_NODEV | MS_NOATIME);
    } catch (const std::runtime_error& error) {
        ::unlink(image.c_str());
        throw std::runtime_error(std::string("the disk quota cannot be set up: ") + error.what());
    }
    ::unlink(image.c_str());  // the mount keeps it
}

bool is_disk_quota(const Mount& mount) {
    constexpr std::string_view kDevices = "/dev/";
    if (!mount.source.starts_with("/dev/loop")) return false;
    // The file was removed when it was mounted; what the kernel says behind its name tells so.
    std::string file =
        read_text_file("/sys/block/" + mount.source.substr(kDevices.size()) + "/loop/backing_file");
    while (file.ends_with('\n')) file.pop_back();
    return file == mount.point + kQuotaImage + " (deleted)" || file == mount.point + kQuotaImage;
}

void trim_front(const std::string& path, uint64_t most) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || static_cast<uint64_t>(info.st_blocks) * 512 <= most + (most >> 2))
        return;
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    const off_t keep_from = (info.st_size - static_cast<off_t>(most)) & ~off_t{4095};
    if (file.get() >= 0 && keep_from > 0)
        ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, keep_from);
}

}  // namespace crane::checkpoint
