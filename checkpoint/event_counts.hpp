// What CRIU would restore as another thing without a word: an eventfd's count, of which it keeps 32 bits.
#pragma once

#include <string>

namespace crane::checkpoint {

/// Throws std::runtime_error where a process holds an eventfd that counts further. `proc`: of the container,
/// whose processes stand still.
void check_event_counts(const std::string& proc);

}  // namespace crane::checkpoint
