// Whom the server runs as: looked up by craned, since crane-init has no name service.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace crane::checkpoint {

struct DomainSpec;

struct Identity {
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups;
};

/// Of spec.user and spec.group; nothing when neither is given. Throws std::runtime_error for unknown names.
/// This and what follows ask the files that are under the server: an image has to be mounted.
std::optional<Identity> identity_of(const DomainSpec& spec);

/// Refuses what this process may not do. Throws std::runtime_error.
void check_identity(const DomainSpec& spec);

/// What a login of that user would set, in the place of what is there.
void add_user_variables(const DomainSpec& spec, std::vector<std::string>* environment);

void give_to_server(const DomainSpec& spec, const std::vector<std::string>& files);

}  // namespace crane::checkpoint
