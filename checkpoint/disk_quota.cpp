#include "checkpoint/disk_quota.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "checkpoint/command.hpp"
#include "checkpoint/loop_mount.hpp"

namespace crane::checkpoint {
namespace {

constexpr char kMakeFileSystem[] = "/sbin/mkfs.ext4";

[[noreturn]] void fail(const std::string& what, int error) {
    throw std::runtime_error("the disk quota cannot be set up: " + what + ": " + std::strerror(error));
}

class Descriptor {
  public:
    Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

void make_file_system(const std::string& image) {
    // No journal: nothing of it outlives the domain. The same blocks and sizes on every host.
    run_command({kMakeFileSystem, "-q", "-F", "-m", "0", "-b", "4096", "-I", "256", "-O", "^has_journal",
                 "-E", "nodiscard,lazy_itable_init=1", image},
                "the disk quota cannot be set up (apt-get install e2fsprogs)");
}

}  // namespace

void mount_limited(const std::string& image, const std::string& point, uint64_t bytes) {
    ::unlink(image.c_str());
    const Descriptor file(image, O_RDWR | O_CREAT | O_EXCL);
    if (file.get() < 0) fail("making " + image, errno);
    const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (error != 0) {
        ::unlink(image.c_str());
        fail(std::to_string(bytes >> 20) + " MiB for " + image, error);
    }
    make_file_system(image);
    try {
        mount_loop(file.get(), point, "ext4", MS_NODEV | MS_NOATIME);
    } catch (const std::runtime_error& error) {
        ::unlink(image.c_str());
        throw std::runtime_error(std::string("the disk quota cannot be set up: ") + error.what());
    }
    ::unlink(image.c_str());  // the mount keeps it
}

void trim_front(const std::string& path, uint64_t most) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || static_cast<uint64_t>(info.st_blocks) * 512 <= most + (most >> 2))
        return;
    const Descriptor file(path, O_WRONLY);
    const off_t keep_from = (info.st_size - static_cast<off_t>(most)) & ~off_t{4095};
    if (file.get() >= 0 && keep_from > 0)
        ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, keep_from);
}

}  // namespace crane::checkpoint
