#include "paxos/file_system.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

namespace crane::paxos {
namespace {

class HostFiles : public FileSystem {
  public:
    int make_directory(const std::string& path) override {
        return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
    }

    bool exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

    int lock(const std::string& path) override {
        const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
        const int error = errno;
        ::close(fd);
        return -error;
    }

    void unlock(int lock) override { ::close(lock); }

    uint64_t free_bytes(const std::string& path) override {
        struct statvfs space {};
        if (statvfs(path.c_str(), &space) != 0) return UINT64_MAX;
        return space.f_bavail * uint64_t{space.f_frsize};
    }
};

}  // namespace

FileSystem& host_files() {
    static HostFiles files;
    return files;
}

}  // namespace crane::paxos
