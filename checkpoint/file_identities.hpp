// Which real file is which for a server that comes out of an image: the shim numbers files by what the kernel
// tells them apart by, and after a restore they are others there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/server_files.hpp"

namespace crane::checkpoint {

/// An upper layer's folder, and where its files are in the container.
using LayerPlace = std::pair<std::string, std::string>;

/// Of a server that stands still: all files of the layers and of /dev/shm, and all that its processes have
/// open. `container`: its /, as the host sees it. Opaque. Throws std::runtime_error.
std::string file_identities(const std::string& container, const std::vector<LayerPlace>& layers);
/// In the container that a server is restored in, before it runs: what has become of them, for the shim, into
/// a new file `name` in `place`. Throws std::runtime_error.
void tell_identities(const std::string& container, const std::string& identities, const Folder& place,
                     const std::string& name);

}  // namespace crane::checkpoint
