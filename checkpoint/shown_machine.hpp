// What stands in a container's /proc and /sys beside its processes: the same on every replica, for programs
// that the shim does not enter, too.
#pragma once

#include <string>
#include <vector>

#include "base/shown_machine.hpp"

namespace crane::checkpoint {

/// In the container, as root: covers /sys, /proc/sys and the files of /proc. Returns what cannot be covered,
/// each with the reason, for the operator.
std::vector<std::string> show_machine(const ShownMachine& machine);

}  // namespace crane::checkpoint
