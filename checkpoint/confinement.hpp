// What crane-init takes from a contained server before it exists: inherited by fork and exec, and given back
// by nothing that a server can do.
//
// Root in the container shall not be root on the host: no capability beyond those that servers start with, no
// device but the harmless ones, nothing of the kernel to write in /proc and /sys, no system call that reaches
// around the namespaces. It is what Debian's units of such servers ask of systemd. What this kernel cannot do
// is told, never passed over in silence.
#pragma once

#include <string>
#include <vector>

namespace crane::checkpoint {

struct Confinement {
    std::vector<std::string> capabilities;  ///< kept besides the usual ones: "CAP_NET_RAW"
    std::vector<std::string> system_calls;  ///< allowed in spite of the list: "keyctl"
    std::vector<std::string> devices;       ///< host paths that appear below /dev: "/dev/fuse"
    bool new_privileges = false;            ///< set-user-ID programs and file capabilities work
    bool operator==(const Confinement&) const = default;
};

/// The number of a capability by its name; -1 when there is none of that name.
int capability_number(const std::string& name);

/// Of the exceptions, what this process cannot pass on since it was itself started without it (a unit of
/// systemd's), and what to do about it. Nobody can give a server what craned may not have.
std::vector<std::string> missing_exceptions(const Confinement& confinement);

/// Each returns what could not be had, for the operator; nothing when all is well.
std::vector<std::string> seal_file_systems();  ///< /proc, /sys, and no devices
/// Last: nothing can be mounted after. `until_exec` is kept, by number, by this process and its forks, not
/// by what they execute.
std::vector<std::string> drop_privileges(const Confinement& confinement, int until_exec = -1);

}  // namespace crane::checkpoint
