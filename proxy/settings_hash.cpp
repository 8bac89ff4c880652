#include "proxy/settings_hash.hpp"

#include "proxy/output_format.hpp"

namespace crane::proxy {

namespace {

/// "" without a [confinement] table, so that the number is what it was.
std::string confinement_text(const Config& config) {
    std::string text;
    const auto put = [&](const char* name, const std::vector<std::string>& words) {
        for (const std::string& word : words)
            if (!word.empty()) text += '\2' + std::string(name) + '\0' + word;
    };
    put("user", {config.user});
    put("group", {config.group});
    put("capability", config.confinement.capabilities);
    put("call", config.confinement.system_calls);
    put("device", config.confinement.devices);
    put("privileges", {config.confinement.new_privileges ? "new" : ""});
    put("hide", config.hide);
    put("show", config.show);
    put("quota", {config.disk_quota ? std::to_string(config.disk_quota.bytes) : ""});
    const bool xfs = config.disk_quota && config.disk_quota.format == checkpoint::DiskQuota::Format::kXfs;
    put("quota of", {xfs ? "xfs" : ""});
    return text;
}

}  // namespace

uint64_t settings_hash(const Config& config) {
    std::string text = std::to_string(static_cast<int>(config.policy)) + "/" +
                       std::to_string(config.quantum) + "/" + std::to_string(config.bubbles) + "/" +
                       std::to_string(config.cpus) + "/" + std::to_string(config.memory_bytes) + "/" +
                       config.hostname + "/" + config.cwd;
    for (const std::string& word : config.server) text += '\0' + word;
    text += '\1';
    for (const std::string& word : config.environment) text += '\0' + word;
    text += confinement_text(config);
    if (config.backstop) text += "\3backstop";
    if (config.egress) text += "\3egress";
    for (const std::string& address : config.own_addresses) text += "\3address " + address;
    return hash_payload(text).low;
}

}  // namespace crane::proxy
