#include "checkpoint/server_files.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/descriptor.hpp"

namespace crane::checkpoint {
namespace {

/// The kernel takes PATH_MAX, 4096, at once.
constexpr size_t kStepBytes = 2048;
constexpr size_t kQuotedBytes = 500;

/// A real folder below another, or on the way back from there.
int open_below(int folder, const char* path, uint64_t flags = kFolderFlags) {
    open_how how{};
    how.flags = flags;
    how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
    int fd;
    do fd = static_cast<int>(::syscall(SYS_openat2, folder, path, &how, sizeof how));
    while (fd < 0 && errno == EINTR);
    return fd;
}

bool is_gone(const std::system_error& error) {
    return error.code() == std::errc::no_such_file_or_directory;
}

}  // namespace

std::string short_path(const std::string& path) {
    return path.size() <= kQuotedBytes ? path : path.substr(0, kQuotedBytes) + "... (a very long path)";
}

void fail_at(const std::string& what, const std::string& path, int error) {
    throw std::system_error(error, std::generic_category(), what + " " + short_path(path));
}

Folder::Folder(const std::string& path) : path_(path), fd_(::open(path.c_str(), kFolderFlags)) {
    if (fd_ < 0) fail_at("opening", path);
}

Folder::~Folder() {
    if (fd_ >= 0) ::close(fd_);
}

Folder::Folder(Folder&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

Folder Folder::below(const std::string& path) const {
    Descriptor here(::openat(fd_, ".", kFolderFlags));
    if (here.get() < 0) fail_at("opening", path_);
    for (size_t at = 0; at < path.size();) {
        size_t end = path.size();
        if (end - at > kStepBytes) {
            end = path.rfind('/', at + kStepBytes);
            if (end == std::string::npos || end <= at) fail_at("opening", path_ + "/" + path, ENAMETOOLONG);
        }
        std::string step = path.substr(at, end - at);
        while (step.starts_with('/')) step.erase(0, 1);
        at = end + 1;
        if (step.empty()) continue;
        here.reset(open_below(here.get(), step.c_str()));
        if (here.get() < 0) fail_at("opening", path_ + "/" + path);
    }
    return {here.release(), path.empty() ? path_ : path_ + "/" + path};
}

std::unique_ptr<File> Folder::make(const std::string& name, mode_t mode) const {
    if (::unlinkat(fd_, name.c_str(), 0) != 0 && errno != ENOENT) fail_at("removing", path_ + "/" + name);
    try {
        auto file = std::make_unique<File>(name, O_RDWR | O_CREAT | O_EXCL, fd_);
        if (::fchmod(file->fd(), mode) != 0) fail_at("making", path_ + "/" + name);
        return file;
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("in " + path_ + ": " + error.what());
    }
}

void Folder::write(const std::string& name, std::string_view text, mode_t mode) const {
    make(name, mode)->write(text, 0);
}

void Folder::copy(const std::string& from, const std::string& name, mode_t mode) const {
    const Descriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    if (source.get() < 0) fail_at("opening", from);
    copy_from(source.get(), from, name, mode);
}

void Folder::copy(const File& from, const std::string& name, mode_t mode) const {
    copy_from(from.fd(), from.path(), name, mode);
}

void Folder::copy_from(int source, const std::string& from, const std::string& name, mode_t mode) const {
    const std::unique_ptr<File> copy = make(name, mode);
    std::string piece(kSumPieceBytes, '\0');
    for (uint64_t done = 0;;) {
        const ssize_t got = ::pread(source, piece.data(), piece.size(), static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail_at("reading", from);
        if (got == 0) return;
        copy->write({piece.data(), static_cast<size_t>(got)}, done);
        done += static_cast<uint64_t>(got);
    }
}

std::unique_ptr<File> Folder::open(const std::string& name) const {
    auto file = std::make_unique<File>(name, O_RDONLY, fd_);
    file->bytes();  // throws
    return file;
}

int Lookup::folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos || slash == 0) return top_.fd();
    const std::string_view above = std::string_view(path).substr(0, slash);
    if (!last_ || last_path_ != above) {
        last_path_ = above;
        last_.reset();
        last_.emplace(top_.below(last_path_));
    }
    return last_->fd();
}

std::optional<struct statx> Lookup::look(const std::string& path, unsigned mask) {
    struct statx info {};
    try {
        const char* name = path.c_str() + (path.rfind('/') + 1);
        if (::statx(folder_of(path), name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, mask, &info) == 0)
            return info;
    } catch (const std::system_error&) {
        return std::nullopt;
    }
    return std::nullopt;
}

bool Lookup::stamp(const std::string& path, const timespec& time) {
    const timespec times[2] = {{0, UTIME_OMIT}, time};
    try {
        const int folder = folder_of(path);
        const char* name = path.c_str() + (path.rfind('/') + 1);
        const int done =
            *name != '\0' ? ::utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) : ::futimens(folder, times);
        if (done == 0) return true;
        if (errno == ENOENT) return false;
    } catch (const std::system_error& error) {
        if (is_gone(error)) return false;
        throw;
    }
    fail_at("setting the time of", top_.path() + path);
}

}  // namespace crane::checkpoint
