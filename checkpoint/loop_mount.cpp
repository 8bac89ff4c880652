#include "checkpoint/loop_mount.hpp"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "checkpoint/file_sum.hpp"

namespace crane::checkpoint {
namespace {

constexpr int kAttempts = 32;

[[noreturn]] void fail(const std::string& what, int error) {
    throw std::runtime_error(what + ": " + std::strerror(error));
}

}  // namespace

void mount_loop(int file, const std::string& point, const char* type, unsigned long flags) {
    const int mode = flags & MS_RDONLY ? O_RDONLY : O_RDWR;
    const File control("/dev/loop-control", O_RDWR);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const int number = ::ioctl(control.fd(), LOOP_CTL_GET_FREE);
        if (number < 0) fail("no free loop device", errno);
        const std::string path = "/dev/loop" + std::to_string(number);
        const File device(path, mode);
        loop_config config{};
        config.fd = static_cast<uint32_t>(file);
        config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
        if (flags & MS_RDONLY) config.info.lo_flags |= LO_FLAGS_READ_ONLY;
        if (::ioctl(device.fd(), LOOP_CONFIGURE, &config) != 0) {
            if (errno == EBUSY) continue;  // another took it first
            fail(path, errno);
        }
        if (::mount(path.c_str(), point.c_str(), type, flags, nullptr) != 0)
            fail("mounting " + path + " on " + point, errno);
        return;
    }
    fail("loop devices are taken all the time", EBUSY);
}

}  // namespace crane::checkpoint
