// The LXC configuration of a domain, as text. Pure, so that it can be read and tested without a container.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/fresh_root.hpp"

namespace crane::checkpoint {

struct ContainerPlan {
    std::string hostname;
    std::vector<Layer> layers;  ///< the first covers /
    struct Bind {
        std::string host_path, inside_path;
        bool writable = true;
    };
    std::vector<Bind> binds;
    bool host_network = false;
    bool apparmor = false;  ///< this kernel enforces AppArmor
    struct Device {
        std::string path;
        char kind;  // 'c' or 'b'
        unsigned major, minor;
    };
    std::vector<Device> devices;     ///< besides the harmless ones
    std::string devices_controller;  ///< "cgroup" or "cgroup2", "" where the host has none
};

std::string container_config(const ContainerPlan& plan);

}  // namespace crane::checkpoint
