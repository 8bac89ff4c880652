#include "paxos/store/file_system.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace crane::paxos {
namespace {

constexpr int kForgetAttempts = 3;  // somebody else may be reading

// Whether any page of the file is in memory. Where it cannot be found out, none is taken to be.
bool in_memory(int fd, size_t bytes) {
    if (bytes == 0) return false;
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return false;
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    const bool known = ::mincore(mapped, bytes, pages.data()) == 0;
    ::munmap(mapped, bytes);
    return known && std::any_of(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
}

bool lives_in_memory(int fd) {
    struct statfs system {};
    return fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

class HostFiles : public FileSystem {
  public:
    int make_directory(const std::string& path) override {
        return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
    }

    bool exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

    int remove(const std::string& path) override { return ::unlink(path.c_str()) == 0 ? 0 : errno; }

    int make(const std::string& path) override {
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        ::close(fd);
        return 0;
    }

    int sync(const std::string& path) override {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return errno;
        const int error = ::fsync(fd) == 0 ? 0 : errno;
        ::close(fd);
        return error;
    }

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

    int list(const std::string& directory, std::vector<std::string>& names) override {
        names.clear();
        std::error_code error;
        std::filesystem::directory_iterator entry(directory, error);
        for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
            names.push_back(entry->path().filename());
        return error.value();
    }

    int read(const std::string& path, std::string& bytes) override {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return errno;
        struct stat status {};
        int error = fstat(fd, &status) == 0 ? 0 : errno;
        bytes.resize(error == 0 ? static_cast<size_t>(status.st_size) : 0);
        size_t done = 0;
        while (error == 0 && done < bytes.size()) {
            const ssize_t got =
                ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) error = errno;
            if (got <= 0) break;
            done += static_cast<size_t>(got);
        }
        bytes.resize(done);
        ::close(fd);
        return error;
    }

    int read_through(const std::string& path, const std::function<bool(std::string_view)>& see) override {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return errno;
        std::string piece(size_t{1} << 20, '\0');
        int error = 0;
        for (bool more = true; more && error == 0;) {
            const ssize_t got = ::read(fd, piece.data(), piece.size());
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) error = errno;
            more = got > 0 && see(std::string_view(piece).substr(0, static_cast<size_t>(got)));
        }
        ::close(fd);
        return error;
    }

    int reread(const std::string& path) override {
        const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return errno;
        struct stat status {};
        int error = ::fsync(fd) == 0 && fstat(fd, &status) == 0 ? 0 : errno;
        for (int attempt = 0; error == 0 && attempt < kForgetAttempts; ++attempt) {
            if (lives_in_memory(fd)) break;
            error = ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            if (error != 0 || !in_memory(fd, static_cast<size_t>(status.st_size))) break;
            if (attempt + 1 == kForgetAttempts) error = EBUSY;
        }
        ::close(fd);
        return error;
    }
};

}  // namespace

FileSystem& host_files() {
    static HostFiles files;
    return files;
}

}  // namespace crane::paxos
