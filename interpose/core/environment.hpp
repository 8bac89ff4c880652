// The environment that keeps programs started inside the domain under the shim.
#pragma once

namespace crane::interpose {

/// The value of NAME in an environment array, or nullptr. Usable before libc is.
const char* find_variable(char* const* environment, const char* name);
/// Keeps what later programs need (the shim's path, the segment's) from the process's first environment.
void remember_environment(char** environment);
/// How many entries complete_environment() may add.
constexpr int kAddedVariables = 3;
/// Writes into `out` the entries of `given` with Crane's own put in or made right; ends it with nullptr.
void complete_environment(char* const* given, const char** out);

/// The same without anything of Crane's: for a program that is not to have the shim.
void strip_environment(char* const* given, const char** out);
/// False where a new program's loader would not find the shim.
bool shim_is_readable();

}  // namespace crane::interpose
