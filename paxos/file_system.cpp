#include "paxos/file_system.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

namespace crane::paxos {
namespace {

constexpr size_t block_bytes = 64u << 10;

class HostFiles : public FileSystem {
  public:
    int make_directory(const std::string& path) override {
        return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
    }

    bool exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

    int remove(const std::string& path) override { return ::unlink(path.c_str()) == 0 ? 0 : errno; }

    int sync(const std::string& path) override {
        const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd < 0) return errno;
        const int error = ::fdatasync(fd) == 0 ? 0 : errno;
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

    LogTail log_tail(const std::string& directory) override {
        LogTail tail;
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
            const std::string name = entry.path().filename();
            if (name.size() != 14 || !name.starts_with("log.")) continue;
            unsigned number = 0;
            const auto parsed = std::from_chars(name.data() + 4, name.data() + name.size(), number);
            if (parsed.ptr == name.data() + name.size()) tail.file = std::max<uint32_t>(tail.file, number);
        }
        char name[16];
        std::snprintf(name, sizeof name, "/log.%010u", tail.file);
        std::ifstream in(directory + name, std::ios::binary);
        std::vector<char> block(block_bytes);
        for (uint64_t at = 0; in.read(block.data(), block_bytes), in.gcount() > 0; at += block_bytes) {
            const auto end =
                std::find_if(block.rend() - in.gcount(), block.rend(), [](char c) { return c != 0; });
            if (end != block.rend()) tail.bytes = at + static_cast<uint64_t>(block.rend() - end);
        }
        return tail;
    }
};

}  // namespace

FileSystem& host_files() {
    static HostFiles files;
    return files;
}

}  // namespace crane::paxos
