// What is in /run when a server starts: the folders that this host's services have there, or would have.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/server_root.hpp"

namespace crane::checkpoint {

struct RunFolder {
    std::string path;
    unsigned mode = 0755;
    std::string user = "root", group = "root";
    bool operator==(const RunFolder&) const = default;
};

/// Folders below /run that the configuration of systemd (tmpfiles.d or unit text) would make: a server whose
/// service never ran on this host needs them too.
std::vector<RunFolder> parse_tmpfiles(const std::string& text);
std::vector<RunFolder> parse_unit_runtime_folders(const std::string& text);

/// Fills `upper`, a new layer that has an empty /run. Under an image nothing of this host's /run is looked
/// at. Throws std::runtime_error.
void fill_run(const std::string& upper, const ServerRoot& root);

/// A folder that may be there already, with this mode and owner. Throws std::runtime_error.
void make_folder(const std::string& path, unsigned mode, uid_t uid, gid_t gid);

}  // namespace crane::checkpoint
