#include "checkpoint/container_config.hpp"

namespace crane::checkpoint {
namespace {

// Entries are relative to the container's root.
std::string relative(const std::string& path) {
    return path.substr(1);
}

}  // namespace

std::string container_config(const ContainerPlan& plan) {
    std::string text =
        "# Written by craned at every start of the domain; changes here are lost.\n"
        "lxc.rootfs.path = overlay:/:" +
        plan.layers.front().upper +
        "\n"
        "lxc.uts.name = " +
        plan.hostname +
        "\n"
        "lxc.net.0.type = " +
        (plan.host_network ? "none" : "empty") +
        "\n"
        // proc is writable for criu's sake, which sets the next pid there.
        "lxc.mount.auto = proc:rw sys:ro\n"
        "lxc.autodev = 1\n"
        "lxc.tty.max = 0\n"
        "lxc.pty.max = 1024\n"
        "lxc.console.path = none\n"
        // What would reach past the namespaces to the machine itself.
        "lxc.cap.drop = sys_module sys_rawio sys_time sys_boot mac_admin mac_override\n";
    // The container keeps replicas apart; confining the server is the host's policy, as without Crane.
    if (plan.apparmor) text += "lxc.apparmor.profile = unconfined\n";
    for (size_t i = 1; i < plan.layers.size(); ++i) {
        const Layer& layer = plan.layers[i];
        text += "lxc.mount.entry = overlay " + relative(layer.point) + " overlay lowerdir=" + layer.point +
                ",upperdir=" + layer.upper + ",workdir=" + layer.work + " 0 0\n";
    }
    text += "lxc.mount.entry = tmpfs dev/shm tmpfs rw,nosuid,nodev,mode=1777,create=dir 0 0\n";
    for (const ContainerPlan::Bind& bind : plan.binds)
        text +=
            "lxc.mount.entry = " + bind.host_path + " " + relative(bind.inside_path) + " none bind,rw 0 0\n";
    return text;
}

}  // namespace crane::checkpoint
