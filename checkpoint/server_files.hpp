// Files in folders that a server writes to, as craned, which is root on the host, handles them: whatever the
// server has made there, nothing outside these folders is touched, nobody waits for a pipe, and there is no
// depth at which it ends.
//
// Rules kept here: what lies below a folder is reached through real folders alone, never through a symbolic
// link; by descriptors, since a path may be longer than the kernel takes one; and what craned puts there
// takes the place of what had the name instead of being written through it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/file_sum.hpp"

namespace crane::checkpoint {

/// For people: a path may be longer than any line.
std::string short_path(const std::string& path);
/// Throws std::system_error: what was tried, and where.
[[noreturn]] void fail_at(const std::string& what, const std::string& path, int error = errno);

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/// An open folder.
class Folder {
  public:
    /// A path of craned's own. Throws std::runtime_error.
    explicit Folder(const std::string& path);
    ~Folder();
    Folder(Folder&& other) noexcept;
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    Folder& operator=(Folder&&) = delete;
    int fd() const { return fd_; }
    const std::string& path() const { return path_; }

    /// One below it, "a/b/c" of any length ("": this one again). Throws std::system_error: with ELOOP or
    /// ENOTDIR where not all of these are real folders.
    Folder below(const std::string& path) const;

    /// A new file in the place of what has the name, unless that is a folder. Throws std::runtime_error.
    std::unique_ptr<File> make(const std::string& name, mode_t mode) const;
    void write(const std::string& name, std::string_view text, mode_t mode = 0644) const;
    /// From a path of craned's own, or of a file that open() gave.
    void copy(const std::string& from, const std::string& name, mode_t mode) const;
    void copy(const File& from, const std::string& name, mode_t mode) const;
    /// Of a regular file; another is an error. Throws std::runtime_error.
    std::unique_ptr<File> open(const std::string& name) const;

  private:
    Folder(int fd, std::string path) : path_(std::move(path)), fd_(fd) {}
    void copy_from(int source, const std::string& from, const std::string& name, mode_t mode) const;
    std::string path_;
    int fd_;
};

/// Files below a folder by their paths ("/a/b", of any length; "": the folder), in an order in which those of
/// one folder follow each other: it is looked up once.
class Lookup {
  public:
    explicit Lookup(const Folder& top) : top_(top) {}
    /// Of a file itself, not what it leads to. Nothing: it is not there.
    std::optional<struct statx> look(const std::string& path, unsigned mask);
    /// Gives it this time of change. False: it is not there. Throws std::runtime_error.
    bool stamp(const std::string& path, const timespec& time);

  private:
    int folder_of(const std::string& path);  ///< throws as Folder::below()
    const Folder& top_;
    std::optional<Folder> last_;
    std::string last_path_;
};

}  // namespace crane::checkpoint
