#include "checkpoint/container_config.hpp"

namespace crane::checkpoint {
namespace {

// null, zero, full, random, urandom, tty, ptmx and terminals of the container's own.
constexpr const char* kHarmlessDevices[] = {"c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm", "c 1:8 rwm",
                                            "c 1:9 rwm", "c 5:0 rwm", "c 5:2 rwm", "c 136:* rwm"};

std::string device_rules(const ContainerPlan& plan) {
    if (plan.devices_controller.empty()) return {};
    const std::string key = "lxc." + plan.devices_controller + ".devices.";
    std::string text = key + "deny = a\n";
    for (const char* rule : kHarmlessDevices) text += key + "allow = " + rule + "\n";
    for (const ContainerPlan::Device& one : plan.devices)
        text += key + "allow = " + one.kind + " " + std::to_string(one.major) + ":" +
                std::to_string(one.minor) + " rw\n";
    return text;
}

// Entries are relative to the container's root.
std::string relative(const std::string& path) {
    return path.substr(1);
}

}  // namespace

std::string container_config(const ContainerPlan& plan) {
    std::string text =
        "# Written by craned at every start of the domain; changes here are lost.\n"
        "lxc.rootfs.path = overlay:" +
        plan.layers.front().lower + ":" + plan.layers.front().upper +
        "\n"
        "lxc.uts.name = " +
        plan.hostname +
        "\n"
        "lxc.net.0.type = " +
        (plan.host_network ? "none" : "empty") +
        "\n"
        // crane-init makes of /proc read-only what is the kernel's.
        "lxc.mount.auto = proc:rw sys:ro\n"
        "lxc.autodev = 1\n"
        "lxc.tty.max = 0\n"
        "lxc.pty.max = 1024\n"
        "lxc.console.path = none\n"
        // What would reach past the namespaces to the machine itself.
        "lxc.cap.drop = sys_module sys_rawio sys_time sys_boot mac_admin mac_override\n";
    text += device_rules(plan);
    // crane-init confines the server, and needs for that what a profile would take.
    if (plan.apparmor) text += "lxc.apparmor.profile = unconfined\n";
    for (size_t i = 1; i < plan.layers.size(); ++i) {
        const Layer& layer = plan.layers[i];
        text += "lxc.mount.entry = overlay " + relative(layer.point) + " overlay lowerdir=" + layer.lower +
                ",upperdir=" + layer.upper + ",workdir=" + layer.work + " 0 0\n";
    }
    text += "lxc.mount.entry = tmpfs dev/shm tmpfs rw,nosuid,nodev,mode=1777,create=dir 0 0\n";
    for (const ContainerPlan::Bind& bind : plan.binds)
        text += "lxc.mount.entry = " + bind.host_path + " " + relative(bind.inside_path) + " none bind," +
                (bind.writable ? "rw" : "ro") + " 0 0\n";
    for (const ContainerPlan::Device& one : plan.devices)
        text += "lxc.mount.entry = " + one.path + " " + relative(one.path) + " none bind,create=file 0 0\n";
    return text;
}

}  // namespace crane::checkpoint
