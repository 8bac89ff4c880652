// What craned tells crane-init about the domain to start: a file of NUL-terminated NAME=value records,
// since it must hold any argument or environment byte and be read by a static program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/shown_machine.hpp"
#include "checkpoint/confinement.hpp"
#include "checkpoint/identity.hpp"

namespace crane::checkpoint {

struct DomainFile {
    std::vector<std::string> argv;
    std::vector<std::string> environment;  ///< complete, but for where the reserved descriptors begin
    std::string cwd;
    std::string stdout_path, stderr_path, exit_status_path;  ///< as the domain sees them
    std::vector<int> inherited;  ///< places among the reserved descriptors, in the order given
    bool restored = false;       ///< the server comes out of images: CRIU starts it, not crane-init
    bool contained = false;      ///< crane-init is pid 1 of a container
    bool loopback_up = false;    ///< the network is the domain's own
    std::vector<std::string> own_addresses;  ///< there, besides loopback; none: the usual ones
    std::optional<unsigned> cpu;
    std::optional<ShownMachine> machine;  ///< none: /proc and /sys are the host's
    std::optional<Identity> identity;     ///< none: as crane-init
    Confinement confinement;              ///< of a container's server
};

std::string encode(const DomainFile& domain);
/// Nothing when the text was not written by encode().
std::optional<DomainFile> decode_domain_file(const std::string& text);

}  // namespace crane::checkpoint
