// The writable layer of a domain's file system before the server starts: empty, but for what must differ
// from the host: /run and /tmp begin fresh, and the state directory of the cluster cannot be seen.
//
// /run and /tmp are folders of the upper layer marked opaque rather than file systems of their own, so that
// one snapshot of the upper layer is all of the domain's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/disk_quota.hpp"
#include "checkpoint/server_root.hpp"

namespace crane::checkpoint {

struct Layer {
    std::string point;  ///< "/" or the mount point that it covers
    std::string upper, work;
    std::string lower;  ///< what it lies on: the same as `point`, or a base image
};

/// Wipes `container_dir` and makes the layers for / and every other disk-backed mount; an image is all of it.
/// `hidden` are host folders and files that appear empty in the domain, whatever is mounted there; `shown`,
/// when not "", is one in /tmp or /run that appears in spite of them. `quota`, when there is one, is all that
/// the layers together can hold. Throws std::runtime_error.
std::vector<Layer> make_fresh_layers(const std::string& container_dir, const std::vector<std::string>& hidden,
                                     const std::string& shown, const DiskQuota& quota = {},
                                     const ServerRoot& root = {});

/// Wipes `container_dir` and makes it anew, empty. Throws std::runtime_error.
void make_container_dir(const std::string& container_dir, const DiskQuota& quota);

/// The same layers as the last make_fresh_layers made, with what was written to them; /run and /tmp begin
/// fresh.
std::vector<Layer> renew_layers(const std::string& container_dir, const std::string& shown,
                                const ServerRoot& root = {});

/// The same layers, exactly as they are: an image of the server's memory knows what it had open there.
std::vector<Layer> imaged_layers(const std::string& container_dir, const std::string& shown,
                                 const ServerRoot& root = {});
/// Those of a domain that runs; nothing is made.
std::vector<Layer> present_layers(const std::string& container_dir, const std::string& shown);

/// The time of what Crane itself lays out.
constexpr int64_t kFreshTimeS = 1'000'000'000;

/// What was made for the root layer has the same time on every replica: call it when all is there.
void give_fixed_times(const Layer& root);

/// Makes the domain's own host name resolve, as it does on a host: /etc/hosts with one line more.
void name_own_host(const Layer& layer, const std::string& hostname, const ServerRoot& root = {});

/// Where the server does not see /etc/shadow, /etc/passwd says that nobody has a password rather than that it
/// is kept there: else no start script could become another user, for want of an account that is in order.
void lock_accounts(const Layer& layer, const ServerRoot& root = {});

}  // namespace crane::checkpoint
