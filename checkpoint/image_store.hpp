// Base images on this host: files that hold what is under a server, the same on every replica whatever their
// hosts have. An image is a squashfs; its name is the SHA-256 of its bytes, so that a log can say which one
// its server is made of, and nobody can change it unnoticed.
//
// Rules kept here: what is in the store was read once and has the sum that it is named by; it is not written
// to again; what was not finished has another name, and goes with the next one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/file_sum.hpp"

namespace crane::checkpoint {

/// Of the SHA-256 in hexadecimal.
constexpr size_t kImageSumDigits = 64;
constexpr char kImagePrefix[] = "sha256:";

/// "sha256:…" as the sum alone; nothing when it is something else.
std::optional<std::string> image_sum_in(std::string_view reference);

/// In bounded memory. `stop` is asked before each piece (kSumPieceBytes), `read` hears of each. Throws
/// Stopped, or as File does.
std::string sha256_of_file(const File& file, const Stop& stop,
                           const std::function<void(uint64_t)>& read = {});
/// Throws std::runtime_error with what to do when it is no squashfs.
void check_squashfs(const File& file);

class ImageStore {
  public:
    explicit ImageStore(std::string folder) : folder_(std::move(folder)) {}

    const std::string& folder() const { return folder_; }
    std::string path_of(const std::string& sum) const { return folder_ + "/" + sum + ".squashfs"; }
    bool has(const std::string& sum) const;
    /// Copies the file into the store unless it is there; its sum. Throws std::runtime_error.
    std::string add(const std::string& path, const std::function<void(uint64_t)>& read = {});

    /// The same of a file that was made here, in the store's folder, and has been summed: it is moved.
    void adopt(const std::string& path, const std::string& sum);

    struct Entry {
        std::string sum;
        uint64_t bytes = 0;
        int64_t added_s = 0;
    };
    /// Throws std::runtime_error when the folder is there and cannot be read.
    std::vector<Entry> list() const;
    /// Removes it; false: it is not there. Throws std::runtime_error.
    bool remove(const std::string& sum);

  private:
    std::string folder_;
};

/// Is the file in the store still what its name says? Reads it once for each state that it is found in. Not
/// thread-safe.
class CheckedImages {
  public:
    /// Throws std::runtime_error: it is not there, or damaged.
    void check(const std::string& path, const std::string& sum);

  private:
    struct Seen {
        uint64_t device, inode, bytes;
        int64_t changed_ns;
        bool operator==(const Seen&) const = default;
    };
    std::map<std::string, Seen> right_;
};

}  // namespace crane::checkpoint
