// Which disk a path belongs to.
#pragma once

#include <string>

#include "disk.hpp"

namespace crane::sim {

/// Makes the disk reachable by the paths below its root for as long as it lives here.
class Mount {
  public:
    explicit Mount(Disk& disk);
    ~Mount();
    Mount(const Mount&) = delete;
    Mount& operator=(const Mount&) = delete;

  private:
    Disk& disk_;
};

}  // namespace crane::sim
