// A file that is mounted as a disk.
#pragma once

#include <string>

namespace crane::checkpoint {

/// Mounts the file system in `file` (a descriptor, opened for writing unless MS_RDONLY is among `flags`) on
/// `point`. Its loop device frees itself when the last user of the mount goes. Throws std::runtime_error.
void mount_loop(int file, const std::string& point, const char* type, unsigned long flags);

}  // namespace crane::checkpoint
