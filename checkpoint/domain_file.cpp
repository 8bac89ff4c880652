#include "checkpoint/domain_file.hpp"

#include <cstdlib>

namespace crane::checkpoint {
namespace {

void put(std::string* text, const char* name, const std::string& value) {
    *text += name;
    *text += '=';
    *text += value;
    *text += '\0';
}

unsigned number(const std::string& text) {
    return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 10));
}

// Whom the server runs as, and how it is confined. False when the record is none of these.
bool decode_rights(const std::string& name, const std::string& value, DomainFile* domain) {
    if (name == "uid") {
        domain->identity.emplace().uid = number(value);
    } else if (name == "gid" && domain->identity) {
        domain->identity->gid = number(value);
    } else if (name == "group" && domain->identity) {
        domain->identity->groups.push_back(number(value));
    } else if (name == "capability") {
        domain->confinement.capabilities.push_back(value);
    } else if (name == "system_call") {
        domain->confinement.system_calls.push_back(value);
    } else if (name == "new_privileges") {
        domain->confinement.new_privileges = value == "1";
    } else {
        return false;
    }
    return true;
}

void encode_rights(const DomainFile& domain, std::string* text) {
    if (domain.identity) {
        put(text, "uid", std::to_string(domain.identity->uid));
        put(text, "gid", std::to_string(domain.identity->gid));
        for (const gid_t group : domain.identity->groups) put(text, "group", std::to_string(group));
    }
    for (const std::string& name : domain.confinement.capabilities) put(text, "capability", name);
    for (const std::string& name : domain.confinement.system_calls) put(text, "system_call", name);
    put(text, "new_privileges", domain.confinement.new_privileges ? "1" : "0");
}

}  // namespace

std::string encode(const DomainFile& domain) {
    std::string text;
    for (const std::string& word : domain.argv) put(&text, "argv", word);
    for (const std::string& entry : domain.environment) put(&text, "env", entry);
    put(&text, "cwd", domain.cwd);
    put(&text, "stdout", domain.stdout_path);
    put(&text, "stderr", domain.stderr_path);
    put(&text, "exit_status", domain.exit_status_path);
    for (const int number : domain.inherited) put(&text, "inherited", std::to_string(number));
    put(&text, "restored", domain.restored ? "1" : "0");
    put(&text, "contained", domain.contained ? "1" : "0");
    put(&text, "loopback_up", domain.loopback_up ? "1" : "0");
    for (const std::string& address : domain.own_addresses) put(&text, "own_address", address);
    if (domain.cpu) put(&text, "cpu", std::to_string(*domain.cpu));
    if (domain.machine) {
        put(&text, "shown_cpus", std::to_string(domain.machine->cpus));
        put(&text, "shown_memory", std::to_string(domain.machine->memory_bytes));
    }
    encode_rights(domain, &text);
    put(&text, "end", "");  // a file cut short is not a domain
    return text;
}

std::optional<DomainFile> decode_domain_file(const std::string& text) {
    DomainFile domain;
    size_t at = 0;
    while (at < text.size()) {
        const size_t end = text.find('\0', at);
        const size_t equals = text.find('=', at);
        if (end == std::string::npos || equals == std::string::npos || equals > end) return std::nullopt;
        const std::string name = text.substr(at, equals - at);
        const std::string value = text.substr(equals + 1, end - equals - 1);
        at = end + 1;
        if (name == "argv")
            domain.argv.push_back(value);
        else if (name == "env")
            domain.environment.push_back(value);
        else if (name == "cwd")
            domain.cwd = value;
        else if (name == "stdout")
            domain.stdout_path = value;
        else if (name == "stderr")
            domain.stderr_path = value;
        else if (name == "exit_status")
            domain.exit_status_path = value;
        else if (name == "inherited")
            domain.inherited.push_back(static_cast<int>(std::strtol(value.c_str(), nullptr, 10)));
        else if (name == "restored")
            domain.restored = value == "1";
        else if (name == "contained")
            domain.contained = value == "1";
        else if (name == "loopback_up")
            domain.loopback_up = value == "1";
        else if (name == "own_address")
            domain.own_addresses.push_back(value);
        else if (name == "cpu")
            domain.cpu = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
        else if (name == "shown_cpus")
            domain.machine.emplace().cpus = std::strtoull(value.c_str(), nullptr, 10);
        else if (name == "shown_memory" && domain.machine)
            domain.machine->memory_bytes = std::strtoull(value.c_str(), nullptr, 10);
        else if (name == "end")
            return domain.argv.empty() ? std::nullopt : std::optional(domain);
        else if (!decode_rights(name, value, &domain))
            return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace crane::checkpoint
