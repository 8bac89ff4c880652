// The machine that the program is shown: the same on every replica, from the cluster's settings.
#pragma once

#include <cstring>

#include "base/shown_machine.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

constexpr uint64_t kPageBytes = 4096;

inline ShownMachine shown_machine() {
    const timebubble::DomainSettings& settings = runtime.view.control->settings;
    return ShownMachine::of(settings.virtual_cpus, settings.virtual_memory_bytes);
}

inline uint32_t virtual_cpus() {
    return static_cast<uint32_t>(shown_machine().cpus);
}

inline uint64_t virtual_memory_bytes() {
    return shown_machine().memory_bytes;
}

inline uint64_t virtual_free_bytes() {
    return shown_machine().free_bytes();
}

inline const char* virtual_hostname() {
    const char* name = runtime.view.control->settings.hostname;
    return name[0] ? name : "crane";
}

/// Opens a stand-in for a file of /proc or /sys that describes the machine. -1: the path is no such file;
/// else a descriptor, or -errno below -1. Turn in hand.
long open_machine_file(const char* path, bool close_on_exec, bool writes);

/// What was opened by another name than those, or below an open folder, gets the stand-in under its number.
/// 0 or -errno. Turn in hand.
long show_opened(int fd, int flags);

}  // namespace crane::interpose
