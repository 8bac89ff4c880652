#include "checkpoint/identity.hpp"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "checkpoint/domain_host.hpp"

namespace crane::checkpoint {

std::optional<Identity> identity_of(const DomainSpec& spec) {
    if (spec.user.empty() && spec.group.empty()) return std::nullopt;
    Identity identity;
    identity.uid = ::geteuid();
    identity.gid = ::getegid();
    if (!spec.user.empty()) {
        const passwd* user = ::getpwnam(spec.user.c_str());
        if (user == nullptr) throw std::runtime_error("user " + spec.user + " is not known on this host");
        identity.uid = user->pw_uid;
        identity.gid = user->pw_gid;
        int count = 256;
        identity.groups.resize(static_cast<size_t>(count));
        if (::getgrouplist(spec.user.c_str(), user->pw_gid, identity.groups.data(), &count) < 0)
            throw std::runtime_error("user " + spec.user + " is in more than 256 groups");
        identity.groups.resize(static_cast<size_t>(count));
    }
    if (!spec.group.empty()) {
        const group* wanted = ::getgrnam(spec.group.c_str());
        if (wanted == nullptr) throw std::runtime_error("group " + spec.group + " is not known on this host");
        identity.gid = wanted->gr_gid;
        identity.groups.push_back(wanted->gr_gid);
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
    const passwd* user = spec.user.empty() ? nullptr : ::getpwnam(spec.user.c_str());
    if (user == nullptr) return;
    for (const auto& variable : {std::pair<std::string, std::string>{"HOME=", user->pw_dir},
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
