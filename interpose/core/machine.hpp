// The machine that the program is shown: the same on every replica, from the cluster's settings.
#pragma once

#include <algorithm>
#include <cstring>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

constexpr uint64_t kPageBytes = 4096;

inline uint32_t virtual_cpus() {
    constexpr uint32_t kMost = 512;
    return std::clamp(runtime.view.control->settings.virtual_cpus, uint32_t{1}, kMost);
}

inline uint64_t virtual_memory_bytes() {
    constexpr uint64_t kDefault = uint64_t{4} << 30;
    const uint64_t bytes = runtime.view.control->settings.virtual_memory_bytes;
    return bytes ? bytes : kDefault;
}

/// What it is shown as free: always the same half.
inline uint64_t virtual_free_bytes() {
    return virtual_memory_bytes() / 2;
}

inline const char* virtual_hostname() {
    const char* name = runtime.view.control->settings.hostname;
    return name[0] ? name : "crane";
}

/// Opens a stand-in for a file of /proc or /sys that describes the machine. -1: the path is no such file;
/// else a descriptor, or -errno below -1. Turn in hand.
long open_machine_file(const char* path, bool close_on_exec, bool writes);

}  // namespace crane::interpose
