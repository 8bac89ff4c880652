// Bounds on what a server writes to disk, so that it cannot take the space that the log needs.
#pragma once

#include <cstdint>
#include <string>

namespace crane::checkpoint {

/// Mounts on the folder `point` a fresh file system of `bytes`, kept in the file `image` whose space is taken
/// at once. It goes when it is unmounted. Throws std::runtime_error.
void mount_limited(const std::string& image, const std::string& point, uint64_t bytes);

/// Gives back the space of all but the last `most` bytes of a file that only grows; what is left keeps its
/// place, and zeros are read before it.
void trim_front(const std::string& path, uint64_t most);

}  // namespace crane::checkpoint
