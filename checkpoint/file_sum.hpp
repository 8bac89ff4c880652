// Files that have to be on the disk, and sums of what is in them.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace crane::checkpoint {

/// Asked between pieces of long work, in the thread that does it. True: give up.
using Stop = std::function<bool()>;
inline bool never() {
    return false;
}
/// What is thrown then.
class Stopped : public std::runtime_error {
  public:
    Stopped() : std::runtime_error("stopped before it was done") {}
};

/// A descriptor that is closed with it.
class File {
  public:
    /// Not through a symbolic link. Throws std::runtime_error: see file_error().
    File(const std::string& path, int flags, int folder = AT_FDCWD);
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int fd() const { return fd_; }
    const std::string& path() const { return path_; }
    uint64_t bytes() const;

    /// All of it at `offset`, or an exception.
    void write(std::string_view bytes, uint64_t offset) const;
    /// What there is from `offset` on, `most` bytes at most.
    std::string read(uint64_t offset, size_t most) const;
    void sync() const;
    /// These bytes, just written, are on their way to the disk, and those well before them have come there.
    /// Who writes a large file so leaves little for sync(), and others who write to that disk do not wait.
    /// Throws as write() does; what was written before may be lost then, too.
    void write_back(uint64_t offset, uint64_t bytes) const;

  private:
    std::string path_;
    int fd_;
};

/// "cannot WHAT PATH: reason: what to do", as an exception.
std::runtime_error file_error(const std::string& what, const std::string& path, int error);

/// A new file with this text, on the disk when it returns; one that is there is replaced.
void write_synced(const std::string& path, std::string_view text);
/// What a folder holds by name is on the disk then.
void sync_folder(const std::string& path);

/// XXH3, 128 bits, as 32 hexadecimal digits.
constexpr size_t kSumDigits = 32;
std::string sum_of(std::string_view bytes);
/// In bounded memory: `stop` is asked before each piece of so many bytes. Throws Stopped, or as File does.
constexpr size_t kSumPieceBytes = 1 << 20;
std::string sum_of_file(const File& file, const Stop& stop);
bool is_sum(std::string_view text);

}  // namespace crane::checkpoint
