// What a server is made of on this host: its program and what its #! lines lead to, the libraries that the
// loader gives them, the files that its command line names, and Crane's shim. A log that was begun with one
// inventory is replayed with the same, or the replay may end elsewhere.
//
// It is a text, so that a log can hold it and a message can say what has changed: a line "SUM PATH" for each
// file, sorted by path, in which what is not plain ASCII is written as %XX. What a server loads by itself
// later (modules, plug-ins) is not in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "checkpoint/domain_host.hpp"
#include "checkpoint/image_store.hpp"

namespace crane::checkpoint {

constexpr size_t kMaxInventoryBytes = 128 * 1024;
/// The shim's line has no path of a file: hosts may have Crane in different places.
constexpr std::string_view kShimPart = "(Crane's shim)";
/// Of a base image (image_store.hpp), which is all of a server's files, and whose sum is its address.
constexpr std::string_view kImagePart = "(the base image)";

class Inventory {
  public:
    /// Reads the files, but for those that have not changed since it was called before. Throws
    /// std::runtime_error.
    std::string take(const DomainSpec& spec);
    /// Is its base image in the store, and undamaged? Throws std::runtime_error.
    void check_image(const DomainSpec& spec) { images_.check(spec.image, spec.image_sum); }

  private:
    struct Known {
        uint64_t device, inode, bytes;
        int64_t modified_ns, changed_ns;
        std::string sum;
    };
    std::string sum_of_path(const std::string& path);
    std::map<std::string, std::string> parts_on_host(const DomainSpec& spec);
    std::map<std::string, Known> known_;
    CheckedImages images_;
};

/// The address of the base image; "": this host's files are used.
std::string image_in(std::string_view inventory);

/// Which files differ, in words; empty: none does. `with_shim`: Crane's shim counts, too.
std::string inventory_difference(std::string_view was, std::string_view is, bool with_shim);

/// The libraries in what the dynamic loader says when it is asked to --list them.
std::vector<std::string> listed_libraries(std::string_view text);

}  // namespace crane::checkpoint
