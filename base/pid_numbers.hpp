// Where the kernel goes on numbering processes and threads of a container: crane-init sets it, at the shim's
// word (interpose/core/births.hpp).
#pragma once

#include <cstdint>

namespace crane {

/// The datagram socket on which crane-init hears, in the abstract names of the container's own network.
constexpr char kPidSocket[] = "\0crane-pids";

/// Behind which number the kernel is to go on; kFarPids: where those are numbered that are not in the
/// schedule. Answered by another, the number behind which it would have gone on; kNoPids: it cannot be set.
struct PidOrder {
    int32_t last;
};
constexpr int32_t kFarPids = 0, kNoPids = -1;

}  // namespace crane
