// What a server has written, while none runs: the upper layers of its file systems as one archive, so that
// they can be kept, shipped and laid out again on any replica.
//
// An archive holds what renew_layers() goes on with: the list of layers and all their files, with owners,
// modes, extended attributes (overlayfs keeps what was removed in them), links, holes and times; not /run and
// /tmp, which begin fresh with each server.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/command.hpp"

namespace crane::checkpoint {

/// What the kernel would stamp a file with now.
uint64_t file_clock_ns();

/// A file that the domain has changed since `since_ns` (host's clock) and that nobody has looked at still has
/// the host's time (see interpose/core/file_times.hpp). It gets `time_ns`, which is the same on all replicas.
/// Returns how many there were; one that cannot be stamped is an error: throws std::runtime_error.
uint64_t settle_times(const std::string& container_dir, uint64_t since_ns, uint64_t time_ns);

enum class Kept { kFiles, kAll };  ///< kAll: /run and /tmp, too, for a server that goes on

/// Writes all to the file `archive` (zstd). Throws std::runtime_error with what went wrong and what to do.
/// `check`, here and below: see run_command().
void pack_files(const std::string& container_dir, const std::string& archive, Kept kept = Kept::kFiles,
                const Check& check = {});

/// All that pack_files() would pack with kAll, into the folder `copy`, from where pack_copy() packs it in its
/// own time: much sooner done. As files where the file system lets copies share their blocks; else as one
/// archive, since making many files takes longer than reading them. Throws as pack_files().
void copy_files(const std::string& container_dir, const std::string& copy, const Check& check = {});
/// As pack_files().
void pack_copy(const std::string& copy, const std::string& archive, const Check& check = {});

/// Into `container_dir`, which is there and empty. Throws as pack_files().
void unpack_files(const std::string& archive, const std::string& container_dir);

/// Of a server that goes on, the files that settle_times() would settle: an archive does not keep what is to
/// be seen by. NUL-terminated paths in `container_dir`.
std::string unsettled_files(const std::string& container_dir, uint64_t since_ns);
/// The same of one folder in which all is the server's.
std::string unsettled_in_folder(const std::string& folder);
/// They are as just changed again. Those that are not there are passed over.
void unsettle(const std::string& container_dir, const std::string& files);

/// All that is in `folder`, into the file `archive` and out of it. Throw as pack_files().
void pack_folder(const std::string& folder, const std::string& archive, Pace pace, const Check& check = {});
void unpack_folder(const std::string& archive, const std::string& folder);

}  // namespace crane::checkpoint
