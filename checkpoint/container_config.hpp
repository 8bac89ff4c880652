// The LXC configuration of a domain, as text. Pure, so that it can be read and tested without a container.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/fresh_root.hpp"

namespace crane::checkpoint {

struct ContainerPlan {
    std::string hostname;
    std::vector<Layer> layers;  // the first covers /
    struct Bind {
        std::string host_path, inside_path;
    };
    std::vector<Bind> binds;
    bool host_network = false;
    bool apparmor = false;  // this kernel enforces AppArmor
};

std::string container_config(const ContainerPlan& plan);

}  // namespace crane::checkpoint
