// Which real file is which for a server that comes out of an image: the shim numbers files by what the kernel
// tells them apart by, and after a restore they are others there.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace crane::checkpoint {

/// An upper layer's folder, and where its files are in the container.
using LayerPlace = std::pair<std::string, std::string>;

/// Of a server that stands still: all files of the layers and of /dev/shm, and all that its processes have
/// open. `root`: its container's /, as the host sees it. Opaque.
std::string file_identities(const std::string& root, const std::vector<LayerPlace>& layers);
/// In the container that a server is restored in, before it runs: what has become of them, for the shim, into
/// the file `again`. Throws std::runtime_error.
void tell_identities(const std::string& root, const std::string& identities, const std::string& again);

}  // namespace crane::checkpoint
