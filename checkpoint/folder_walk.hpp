// All that is in a folder that a server wrote, however deep: with one descriptor at a time, each folder from
// the one above, since paths may be longer than the kernel takes one and folders more than a process may
// open.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "checkpoint/server_files.hpp"

namespace crane::checkpoint {

/// What is met on a walk.
struct Walked {
    int folder;               ///< that it is in
    const char* name;         ///< there
    const std::string& path;  ///< below where the walk began
    bool is_folder;
    /// Itself, not what it leads to. Throws std::runtime_error.
    struct stat look() const;
};
enum class FolderOrder { kFirst, kLast };  ///< before what is in it, or after

/// Visits all that is in a folder, at any depth; not the folder itself, nor what is mounted below it.
/// Throws std::runtime_error.
void walk_folder(const Folder& top, FolderOrder order, const std::function<void(const Walked&)>& visit);

/// Removes a file, or a folder with all that is in it; nothing is there: nothing is done. Throws
/// std::runtime_error.
void remove_tree(const std::string& path);

}  // namespace crane::checkpoint
