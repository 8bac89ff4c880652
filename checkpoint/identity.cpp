#include "checkpoint/identity.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "checkpoint/base_image.hpp"
#include "checkpoint/domain_host.hpp"

namespace crane::checkpoint {

std::optional<Identity> identity_of(const DomainSpec& spec) {
    if (spec.user.empty() && spec.group.empty()) return std::nullopt;
    Identity identity;
    identity.uid = ::geteuid();
    identity.gid = ::getegid();
    const ServerRoot root = root_of(spec);
    const char* where = root.is_image() ? " is not known in the base image" : " is not known on this host";
    if (!spec.user.empty()) {
        const auto user = root.user(spec.user);
        if (!user) throw std::runtime_error("user " + spec.user + where);
        identity.uid = user->uid;
        identity.gid = user->gid;
        identity.groups = root.groups_of(spec.user, user->gid);
    }
    if (!spec.group.empty()) {
        const auto wanted = root.group(spec.group);
        if (!wanted) throw std::runtime_error("group " + spec.group + where);
        identity.gid = *wanted;
        identity.groups.push_back(*wanted);
    }
    std::sort(identity.groups.begin(),
              identity.groups.end());  // the same on every host whose users are the same
    identity.groups.erase(std::unique(identity.groups.begin(), identity.groups.end()), identity.groups.end());
    return identity;
}

void check_identity(const DomainSpec& spec) {
    const std::optional<Identity> identity = identity_of(spec);
    if (identity && ::geteuid() != 0 && (identity->uid != ::geteuid() || identity->gid != ::getegid()))
        throw std::runtime_error(
            "only root can start the server as another user: run as root, or without user");
}

void add_user_variables(const DomainSpec& spec, std::vector<std::string>* environment) {
    if (spec.user.empty()) return;
    const auto user = root_of(spec).user(spec.user);
    if (!user) return;
    for (const auto& variable : {std::pair<std::string, std::string>{"HOME=", user->home},
                                 {"USER=", spec.user},
                                 {"LOGNAME=", spec.user},
                                 {"SHELL=", "/bin/sh"}}) {
        // The environment of crane-run has root's.
        std::erase_if(*environment,
                      [&](const std::string& entry) { return entry.starts_with(variable.first); });
        environment->push_back(variable.first + variable.second);
    }
}

void give_to_server(const DomainSpec& spec, const std::vector<std::string>& files) {
    const std::optional<Identity> identity = identity_of(spec);
    if (!identity || ::geteuid() != 0) return;
    for (const std::string& path : files)
        if (::chown(path.c_str(), identity->uid, identity->gid) != 0)
            throw std::runtime_error("giving " + path + " to the server's user: " + std::strerror(errno));
}

}  // namespace crane::checkpoint
