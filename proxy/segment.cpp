#include "proxy/segment.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

namespace crane::proxy {

namespace fs = std::filesystem;
using timebubble::kTransportFileBytes;

namespace {

constexpr const char* kTmpfs = "/dev/shm";

bool tmpfs_usable() {
    struct statfs info {};
    return statfs(kTmpfs, &info) == 0 && info.f_type == TMPFS_MAGIC && access(kTmpfs, W_OK | X_OK) == 0;
}

[[noreturn]] void fail(const std::string& what, const std::string& path) {
    const std::string reason = strerror(errno);
    throw std::runtime_error("cannot " + what + " " + path + ": " + reason +
                             "; check free space and permissions there");
}

}  // namespace

Segment::Segment(const std::string& state_dir, const std::string& cluster_id, uint32_t replica,
                 bool enterable)
    : link_(state_dir + "/shared"), directory_(link_) {
    std::error_code ignored;
    fs::remove_all(link_, ignored);  // of an earlier run; a symlink is removed, not followed
    if (tmpfs_usable()) {
        outer_ = std::string(kTmpfs) + "/crane-" + cluster_id.substr(0, 8) + "-" + std::to_string(replica);
        fs::remove_all(outer_, ignored);
        if (mkdir(outer_.c_str(), 0700) != 0) fail("make", outer_);
        if (enterable && chmod(outer_.c_str(), 0711) != 0) fail("open", outer_);
        directory_ = outer_ + "/shared";
        if (symlink(directory_.c_str(), link_.c_str()) != 0) fail("link", link_);
    }
    if (mkdir(directory_.c_str(), 0755) != 0 || chmod(directory_.c_str(), 0755) != 0)
        fail("make", directory_);
    make_files();
}

void Segment::make_files() {
    const std::string transport = directory_ + "/transport";
    const int fd = open(transport.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) fail("make", transport);
    const bool ready =
        fchmod(fd, 0666) == 0 && posix_fallocate(fd, 0, kTransportFileBytes) == 0 && map_transport(fd, view_);
    const int saved = errno;
    close(fd);
    errno = saved;
    if (!ready) fail("size and map", transport);
    const std::string doorbell = directory_ + "/doorbell";
    if (mkfifo(doorbell.c_str(), 0600) != 0 || chmod(doorbell.c_str(), 0666) != 0) fail("make", doorbell);
    // Read and write: the fifo then never shows an end of file when the last writer goes.
    doorbell_ = open(doorbell.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (doorbell_ < 0) fail("open", doorbell);
}

Segment::~Segment() {
    timebubble::unmap_transport(view_);
    if (doorbell_ >= 0) close(doorbell_);
    std::error_code ignored;
    fs::remove_all(link_, ignored);
    if (!outer_.empty()) fs::remove_all(outer_, ignored);
}

}  // namespace crane::proxy
