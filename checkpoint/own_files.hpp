// What Crane itself has among a server's files: where the server reaches it, and may have put something else.
#pragma once

#include <sys/types.h>

#include <string>

namespace crane::checkpoint {

constexpr char kSharedInside[] = "/run/crane";     ///< bind of STATE/rN/shared
constexpr char kInitInside[] = "/run/crane-init";  ///< crane-init's own files
constexpr mode_t kProgramMode = 0755;

/// Into the root layer of a domain that is to be started: crane-init, what is mounted on beside it, and the
/// text that it reads. Throws std::runtime_error.
void lay_out_init(const std::string& upper, const std::string& init_path, const std::string& domain);

/// Throws std::runtime_error where there are other things than Crane's: no server could be started there
/// again.
void check_own_files(const std::string& upper);

}  // namespace crane::checkpoint
