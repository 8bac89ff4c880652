// What a server has written, while none runs: the upper layers of its file systems as one archive, so that
// they can be kept, shipped and laid out again on any replica.
//
// An archive holds what renew_layers() goes on with: the list of layers and all their files, with owners,
// modes, extended attributes (overlayfs keeps what was removed in them), links, holes and times; not /run and
// /tmp, which begin fresh with each server.
#pragma once

#include <cstdint>
#include <string>

namespace crane::checkpoint {

/// What the kernel would stamp a file with now.
uint64_t file_clock_ns();

/// A file that the domain has changed since `since_ns` (host's clock) and that nobody has looked at still has
/// the host's time (see interpose/core/file_times.hpp). It gets `time_ns`, which is the same on all replicas.
/// Returns how many there were; one that cannot be stamped is an error: throws std::runtime_error.
uint64_t settle_times(const std::string& container_dir, uint64_t since_ns, uint64_t time_ns);

/// Writes all to the file `archive` (zstd). Throws std::runtime_error with what went wrong and what to do.
void pack_files(const std::string& container_dir, const std::string& archive);

/// Into `container_dir`, which is there and empty. Throws as pack_files().
void unpack_files(const std::string& archive, const std::string& container_dir);

}  // namespace crane::checkpoint
