// What the server may do: [confinement].
#include "checkpoint/system_calls.hpp"
#include "proxy/config_table.hpp"

namespace crane::proxy {

namespace {

void check_paths(const ConfigTable& reader, std::string_view key, const std::vector<std::string>& paths,
                 std::string_view below) {
    for (const std::string& path : paths) {
        if (path.compare(0, below.size(), below) != 0 || path.find("/../") != std::string::npos ||
            path.ends_with("/..") || path.find_first_of(" \t\n\\") != std::string::npos) {
            reader.fail(
                key, "\"" + path + "\" must be a path below " + std::string(below) + " without spaces or ..");
        }
    }
}

}  // namespace

void read_confinement(ConfigTable& root, Config& config) {
    ConfigTable reader = root.table("confinement");
    config.user = reader.text("user", "");
    config.group = reader.text("group", "");
    config.confinement.capabilities = reader.texts("capabilities");
    for (const std::string& name : config.confinement.capabilities) {
        if (checkpoint::capability_number(name) < 0)
            reader.fail("capabilities", "\"" + name + "\" is no capability; capabilities(7) lists them");
    }
    config.confinement.system_calls = reader.texts("system_calls");
    for (const std::string& name : config.confinement.system_calls) {
        if (!checkpoint::is_system_call(name))
            reader.fail("system_calls", "\"" + name + "\" is no system call; syscalls(2) lists them");
    }
    config.confinement.devices = reader.texts("devices");
    check_paths(reader, "devices", config.confinement.devices, "/dev/");
    config.confinement.new_privileges = reader.boolean("new_privileges", false);
    config.hide = reader.texts("hide");
    check_paths(reader, "hide", config.hide, "/");
    config.show = reader.texts("show");
    check_paths(reader, "show", config.show, "/");
    config.disk_quota.bytes = reader.number("disk_quota_bytes", 0, 0, INT64_MAX);
    if (reader.choice("disk_format", "ext4", {"ext4", "xfs"}) == "xfs")
        config.disk_quota.format = checkpoint::DiskQuota::Format::kXfs;
    const uint64_t least = checkpoint::least_quota_bytes(config.disk_quota.format);
    if (config.disk_quota && config.disk_quota.bytes < least)
        reader.fail("disk_quota_bytes", "must be at least " + std::to_string(least) + ", or 0 for none");
    if (!config.disk_quota && config.disk_quota.format != checkpoint::DiskQuota::Format::kExt4)
        reader.fail("disk_format", "is that of a disk quota: set disk_quota_bytes, too");
    reader.refuse_the_rest();
    const bool exceptions = config.confinement != checkpoint::Confinement{} || !config.hide.empty() ||
                            !config.show.empty() || static_cast<bool>(config.disk_quota);
    if (!config.container && exceptions)
        root.fail("confinement",
                  "is for containers: with isolation = \"none\" only user and group can be set");
}

}  // namespace crane::proxy
