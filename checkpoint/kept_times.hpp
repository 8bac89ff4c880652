// Times of files that no archive keeps, and CRIU does not: of those that are open and unlinked, and of the
// folders in which it makes and removes such ones again.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "checkpoint/server_files.hpp"

namespace crane::checkpoint {

/// Of a server that stands still: its open files that have no name. `proc`: its container's /proc.
nlohmann::json unlinked_times(const std::string& proc);
/// They have these times again; those that are just changed (domain_files.hpp) are so again.
void set_unlinked_times(const std::string& proc, const nlohmann::json& times);

/// What the folders below the upper layers had as times when this was made, for those whose times are
/// settled.
class FolderTimes {
  public:
    /// Throws std::runtime_error.
    explicit FolderTimes(const std::string& container_dir);
    /// Throws std::runtime_error.
    void set_again() const;

  private:
    void note(const std::string& path, const struct stat& info);
    Folder container_;
    std::map<std::string, uint64_t> times_ns_;
};

}  // namespace crane::checkpoint
