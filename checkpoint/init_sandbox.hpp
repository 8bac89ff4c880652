// What crane-init does to itself before the server exists: everything here is inherited by fork and exec,
// and makes two replicas' processes start alike.
#pragma once

#include <optional>
#include <string>

namespace crane::checkpoint {

/// Each returns "" or what went wrong.
std::string set_personality();  ///< no address-space randomization
std::string set_limits();       ///< the same limits on every replica
/// RLIMIT_NOFILE, and where the reserved descriptors begin: as far up as CRIU can restore them.
std::string set_file_limit(unsigned& begin);
std::string set_stack_limit();  ///< of these the one that decides where mmap starts
void pin_to_cpu(unsigned cpu);  ///< best effort: a wish, not a condition
void reset_signals();           ///< default dispositions, nothing blocked
/// How much the kernel should spare this process, and how late its timers may be: a server can read both.
void forget_what_craned_prefers();

}  // namespace crane::checkpoint
