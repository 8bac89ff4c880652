#include "checkpoint/file_sum.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace crane::checkpoint {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr int kAlways =
    O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // a pipe in the place of a file is waited for by nobody

const char* advice(int error) {
    switch (error) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return ": free some space where the state directory is";
        case EIO:
        case EROFS:
            return ": look at the disk (dmesg)";
        case EACCES:
        case EPERM:
            return ": the state directory must be the daemon's own";
        default:
            return "";
    }
}

std::string digits(XXH128_hash_t sum) {
    char text[kSumDigits + 1];
    snprintf(text, sizeof(text), "%016lx%016lx", sum.high64, sum.low64);
    return text;
}

}  // namespace

std::runtime_error file_error(const std::string& what, const std::string& path, int error) {
    return std::runtime_error("cannot " + what + " " + path + ": " + strerror(error) + advice(error));
}

File::File(const std::string& path, int flags, int folder)
    : path_(path), fd_(openat(folder, path.c_str(), flags | kAlways, kOwnerOnly)) {
    if (fd_ < 0) throw file_error("open", path, errno);
}

File::~File() {
    close(fd_);
}

uint64_t File::bytes() const {
    struct stat info {};
    if (fstat(fd_, &info) != 0) throw file_error("look at", path_, errno);
    if (!S_ISREG(info.st_mode)) throw std::runtime_error(path_ + " is no regular file: remove it");
    return static_cast<uint64_t>(info.st_size);
}

void File::write(std::string_view bytes, uint64_t offset) const {
    while (!bytes.empty()) {
        const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) throw file_error("write", path_, wrote < 0 ? errno : ENOSPC);
        bytes.remove_prefix(static_cast<size_t>(wrote));
        offset += static_cast<uint64_t>(wrote);
    }
}

std::string File::read(uint64_t offset, size_t most) const {
    std::string out(most, '\0');
    size_t done = 0;
    while (done < most) {
        const ssize_t got = pread(fd_, out.data() + done, most - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw file_error("read", path_, errno);
        if (got == 0) break;
        done += static_cast<size_t>(got);
    }
    out.resize(done);
    return out;
}

void File::sync() const {
    if (fsync(fd_) != 0) throw file_error("sync", path_, errno);
}

void File::write_back(uint64_t offset, uint64_t bytes) const {
    constexpr uint64_t kUnderWayBytes = 8 << 20;
    constexpr unsigned kToTheEnd =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    // An error of the disk is told once: a later sync() would not say it again.
    const auto write_range = [&](uint64_t begin, unsigned flags) {
        if (sync_file_range(fd_, static_cast<off64_t>(begin), static_cast<off64_t>(bytes), flags) == 0)
            return;
        const bool unknown =
            errno == EINVAL || errno == ESPIPE || errno == ENOSYS;  // then sync() does it all
        if (!unknown) throw file_error("write", path_, errno);
    };
    write_range(offset, SYNC_FILE_RANGE_WRITE);
    if (offset >= kUnderWayBytes) write_range(offset - kUnderWayBytes, kToTheEnd);
}

void write_synced(const std::string& path, std::string_view text) {
    const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
    file.write(text, 0);
    file.sync();
}

void sync_folder(const std::string& path) {
    File(path, O_RDONLY | O_DIRECTORY).sync();
}

std::string sum_of(std::string_view bytes) {
    return digits(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string sum_of_file(const File& file, const Stop& stop) {
    const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                                &XXH3_freeState);
    if (!state) throw std::bad_alloc();
    XXH3_128bits_reset(state.get());
    for (uint64_t offset = 0;;) {
        if (stop()) throw Stopped();
        const std::string piece = file.read(offset, kSumPieceBytes);
        if (piece.empty()) break;
        XXH3_128bits_update(state.get(), piece.data(), piece.size());
        offset += piece.size();
    }
    return digits(XXH3_128bits_digest(state.get()));
}

bool is_sum(std::string_view text) {
    return text.size() == kSumDigits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

}  // namespace crane::checkpoint
