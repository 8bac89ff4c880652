// What this machine's mount table means for a domain: which file systems it must see too, and what an
// earlier run left mounted.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/descriptor.hpp"

namespace crane::checkpoint {

struct Mount {
    std::string point;
    std::string type;
    std::string source;
};

/// Parses the text of /proc/PID/mountinfo; what is hidden by a later mount on the same point is left out.
std::vector<Mount> parse_mountinfo(const std::string& text);

/// The disk-backed directories below / that an overlay of / does not show.
std::vector<Mount> disk_mounts_below_root(const std::vector<Mount>& mounts);

/// The mount that holds the path.
Mount mount_of(const std::vector<Mount>& mounts, const std::string& path);

bool is_below(const std::string& path, const std::string& folder);  ///< or the same

std::vector<Mount> read_mounts();

/// Tells whether anything was mounted or unmounted since it was made.
class MountWatch {
  public:
    MountWatch();
    bool changed() const;

  private:
    Descriptor table_;
};

}  // namespace crane::checkpoint
