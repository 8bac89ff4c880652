// The seccomp filter of a domain: what no scheduled server gets, and what no confined one may do.
#pragma once

#include <string>
#include <vector>

namespace crane::checkpoint {

/// True when the filter can name it.
bool is_system_call(const std::string& name);

/// Loads the filter; "" or what went wrong. Calls whose effects are not ordered are always refused, as
/// ENOSYS; those that reach around a container only when `confined`, but for `allowed`.
std::string load_system_call_filter(bool confined, const std::vector<std::string>& allowed);

}  // namespace crane::checkpoint
