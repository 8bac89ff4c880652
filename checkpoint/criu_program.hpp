// Which CRIU there is on this host, and whether it works on the kernel that runs.
#pragma once

#include <string>

namespace crane::checkpoint {

/// $CRANE_CRIU, else what scripts/install_criu.sh has built; "" where there is none.
std::string find_criu();

struct CriuTrial {
    bool works = false;
    std::string text;  ///< its version; else what stopped it
};
/// Dumps and restores a few processes of its own, in some tenths of a second. `script` is install_criu.sh.
CriuTrial try_criu(const std::string& criu, const std::string& script);

/// install_criu.sh, in the source tree or installed, as seen from this program; "" when it is not there.
std::string find_criu_script();

}  // namespace crane::checkpoint
