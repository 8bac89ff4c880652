#include "proxy/segment.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

namespace crane::proxy {

namespace fs = std::filesystem;
using timebubble::kTransportFileBytes;

namespace {

constexpr const char* kTmpfs = "/dev/shm";
constexpr const char* kLock = "/owner";

bool tmpfs_usable() {
    struct statfs info {};
    return statfs(kTmpfs, &info) == 0 && info.f_type == TMPFS_MAGIC && access(kTmpfs, W_OK | X_OK) == 0;
}

[[noreturn]] void fail(const std::string& what, const std::string& path) {
    const std::string reason = strerror(errno);
    throw std::runtime_error("cannot " + what + " " + path + ": " + reason +
                             "; check free space and permissions there");
}

[[noreturn]] void fail(const std::string& what) {
    const std::string reason = strerror(errno);
    throw std::runtime_error("cannot " + what + ": " + reason + "; check free memory and `ulimit -n`");
}

}  // namespace

Segment::Segment(const std::string& state_dir, const std::string& cluster_id, uint32_t replica,
                 bool enterable)
    : link_(state_dir + "/shared"), directory_(link_) {
    try {
        make_directory("crane-" + cluster_id + "-" + std::to_string(replica), enterable);
        make_transport();
        make_doorbell();
    } catch (...) {
        discard();
        throw;
    }
}

void Segment::make_directory(const std::string& name, bool enterable) {
    std::error_code ignored;
    fs::remove_all(link_, ignored);  // of an earlier run; a symlink is removed, not followed
    if (tmpfs_usable()) {
        refuse_anothers(std::string(kTmpfs) + "/" + name);
        outer_ = std::string(kTmpfs) + "/" + name;
        fs::remove_all(outer_, ignored);
        if (mkdir(outer_.c_str(), 0700) != 0) {
            const std::string path = std::exchange(outer_, {});
            fail("make", path);
        }
        own();
        if (enterable && chmod(outer_.c_str(), 0711) != 0) fail("open", outer_);
        directory_ = outer_ + "/shared";
        if (symlink(directory_.c_str(), link_.c_str()) != 0) fail("link", link_);
    }
    if (mkdir(directory_.c_str(), 0755) != 0 || chmod(directory_.c_str(), 0755) != 0)
        fail("make", directory_);
}

// Record locks: nobody inherits them, and they end with the process, however it ends.
void Segment::refuse_anothers(const std::string& outer) const {
    const int held = open((outer + kLock).c_str(), O_RDWR | O_CLOEXEC);
    if (held < 0) return;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    const bool asked = fcntl(held, F_GETLK, &lock) == 0;
    close(held);
    if (asked && lock.l_type != F_UNLCK)
        throw std::runtime_error(
            "this replica of this cluster runs on this machine already, as process " +
            std::to_string(lock.l_pid) +
            ", with another state directory: end that one first, or give this one a cluster_id or "
            "replica_id of its own");
}

void Segment::own() {
    lock_ = open((outer_ + kLock).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    if (lock_ < 0 || fcntl(lock_, F_SETLK, &lock) != 0) fail("lock", outer_ + kLock);
}

void Segment::make_transport() {
    transport_ = memfd_create("crane-transport", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    // All pages now: one that is missing when memory has run out would be a SIGBUS later.
    errno = transport_ < 0 ? errno : posix_fallocate(transport_, 0, kTransportFileBytes);
    if (transport_ < 0 || errno != 0) fail("make the segment shared with the server");
    if (fcntl(transport_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        fail("seal the segment shared with the server");
    if (!map_transport(transport_, view_)) fail("map the segment shared with the server");
}

void Segment::make_doorbell() {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) fail("make the pipe that the server rings");
    doorbell_ = ends[0];
    // An open file of its own: the server shares no flags with craned's end, and as it can be read, too,
    // ringing it raises no SIGPIPE when craned has gone.
    bell_ = open(("/proc/self/fd/" + std::to_string(ends[1])).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const int saved = errno;
    close(ends[1]);
    errno = saved;
    if (bell_ < 0) fail("open the pipe that the server rings");
}

void Segment::renew() {
    discard_transport();
    make_transport();
    make_doorbell();
}

void Segment::discard_transport() {
    timebubble::unmap_transport(view_);
    for (int* fd : {&transport_, &doorbell_, &bell_}) {
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
}

void Segment::keep_trace() const {
    std::error_code ignored;
    for (const char* name : {"/trace", "/trace.maps"})
        if (fs::is_regular_file(fs::symlink_status(directory_ + name, ignored)))
            fs::copy_file(directory_ + name, fs::path(link_).parent_path() / (name + 1),
                          fs::copy_options::overwrite_existing, ignored);
}

void Segment::discard() {
    discard_transport();
    keep_trace();
    std::error_code ignored;
    fs::remove_all(link_, ignored);
    if (!outer_.empty()) fs::remove_all(outer_, ignored);
    if (lock_ >= 0) close(lock_);
    lock_ = -1;
}

Segment::~Segment() {
    discard();
}

}  // namespace crane::proxy
