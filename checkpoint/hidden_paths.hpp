// What of the host's files a contained server does not see: nobody's home, no secret of the host or of Crane.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/domain_host.hpp"

namespace crane::checkpoint {

/// Paths that the command names, and so needs to see: the program, its interpreter, files among the
/// arguments, and the working directory unless it is a home out of which nothing is named.
std::vector<std::string> needed_paths(const DomainSpec& spec);

/// The usual paths without what is needed or shown, and `spec.hidden`; only what exists. The state directory,
/// or the whole cluster's where crane-run made it, is always among them.
std::vector<std::string> hidden_paths(const DomainSpec& spec, const std::string& homes = "/home",
                                      const std::string& root_home = "/root");

/// What is hidden of any host: passwords, keys, backups, other clusters.
std::vector<std::string> usual_secrets();

}  // namespace crane::checkpoint
