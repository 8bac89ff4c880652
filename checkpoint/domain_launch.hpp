// The steps of starting a domain that come before its first process: what is checked, laid out and written.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/domain_host.hpp"
#include "checkpoint/file_identities.hpp"

namespace crane::checkpoint {

/// The names below STATE/rN, in one place.
struct DomainPaths {
    explicit DomainPaths(const std::string& state_dir);
    std::string shared, container, stdout_file, stderr_file, exit_status;
    std::string lxc_dir, lxc_config, lxc_log, domain_file, base;
    /// Where images lie while CRIU has to do with them: two, since one that is being packed outlives the
    /// server that it is of.
    std::string taken_image, restored_image;
};

/// Throws std::runtime_error.
void write_file(const std::string& path, const std::string& text);

/// Refuses what cannot work, with advice: throws std::runtime_error. This and what follows need the image
/// of `spec` mounted (base_image.hpp).
void check_spec(const DomainSpec& spec);

/// What this host has not for the confinement of such a server, in words; nothing when all is there.
std::vector<std::string> lost_confinement(const DomainSpec& spec);

/// Lays out STATE/rN and its file system; returns the command that starts crane-init, to which the number
/// of the notify descriptor is still to be added.
std::vector<std::string> prepare_launch(const DomainSpec& spec, Files files);

/// In the files that the server has left or has, Crane's own are what they were: throws std::runtime_error.
void check_own_files(const DomainSpec& spec);

/// The upper layers of a domain that runs, and where their files are in it.
std::vector<LayerPlace> layer_places(const DomainSpec& spec);

/// What a craned that was killed has left of images that it took or unpacked.
void remove_unpacked_images(const DomainSpec& spec);

/// Lets go of what holds the domain's files (the mount of a quota): they are gone then.
void release_files(const DomainSpec& spec);

/// Kills, by what identifies them, the processes that an earlier run of the domain left, and removes its
/// cgroups and mounts.
void remove_leftovers(const DomainSpec& spec);

/// What LXC itself leaves of a container that is gone: cgroups when its monitor was killed, a lock file
/// always.
void remove_container_traces(const DomainSpec& spec);

}  // namespace crane::checkpoint
