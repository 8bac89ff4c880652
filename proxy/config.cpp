#include "proxy/config.hpp"

#include <toml++/toml.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "checkpoint/system_calls.hpp"
#include "paxos/core/membership.hpp"
#include "paxos/link/tls.hpp"
#include "timebubble/limits.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLeastQuotaBytes = 16 << 20;
constexpr uint64_t kMostInputMib = timebubble::kCommonChunks * timebubble::kInputChunkBytes >> 20;

/// Reads one table and remembers which keys were asked for, so that the rest can be refused.
class Reader {
  public:
    Reader(const toml::table& table, std::string file, std::string prefix)
        : table_(table), file_(std::move(file)), prefix_(std::move(prefix)) {}

    [[noreturn]] void fail(std::string_view key, const std::string& what) const {
        std::ostringstream out;
        out << file_;
        if (const toml::node* node = table_.get(key)) out << ":" << node->source().begin.line;
        out << ": " << prefix_ << key << ": " << what;
        throw ConfigError(out.str());
    }

    bool has(std::string_view key) const { return table_.contains(key); }

    std::string text(std::string_view key, std::string fallback) {
        const toml::node* node = take(key);
        if (!node) return fallback;
        if (!node->is_string()) fail(key, "must be a string in quotes");
        return node->as_string()->get();
    }

    std::string required_text(std::string_view key) {
        if (!has(key)) fail(key, "is missing; add " + std::string(key) + " = \"…\"");
        std::string value = text(key, "");
        if (value.empty()) fail(key, "must not be empty");
        return value;
    }

    uint64_t number(std::string_view key, uint64_t fallback, uint64_t low, uint64_t high) {
        const toml::node* node = take(key);
        if (!node) return fallback;
        const std::string range =
            "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high);
        if (!node->is_integer()) fail(key, range);
        const int64_t value = node->as_integer()->get();
        if (value < 0 || static_cast<uint64_t>(value) < low || static_cast<uint64_t>(value) > high) {
            fail(key, range + ", not " + std::to_string(value));
        }
        return static_cast<uint64_t>(value);
    }

    bool boolean(std::string_view key, bool fallback) {
        const toml::node* node = take(key);
        if (!node) return fallback;
        if (!node->is_boolean()) fail(key, "must be true or false");
        return node->as_boolean()->get();
    }

    std::string choice(std::string_view key, std::string fallback, const std::vector<std::string>& allowed) {
        std::string value = text(key, std::move(fallback));
        std::string list;
        for (const std::string& one : allowed) {
            if (value == one) return value;
            list += (list.empty() ? "\"" : ", \"") + one + "\"";
        }
        fail(key, "is \"" + value + "\"; use one of " + list);
    }

    std::vector<std::string> texts(std::string_view key) {
        std::vector<std::string> out;
        const toml::node* node = take(key);
        if (!node) return out;
        if (!node->is_array()) fail(key, "must be a list of strings");
        for (const toml::node& item : *node->as_array()) {
            if (!item.is_string()) fail(key, "must be a list of strings");
            out.push_back(item.as_string()->get());
        }
        return out;
    }

    /// The sub-table `key`, or an empty one.
    Reader table(std::string_view key) {
        static const toml::table none;
        const toml::node* node = take(key);
        if (node && !node->is_table()) fail(key, "must be a table: [" + std::string(key) + "]");
        return Reader(node ? *node->as_table() : none, file_, prefix_ + std::string(key) + ".");
    }

    const toml::table& raw() const { return table_; }
    const toml::node* take(std::string_view key) {
        asked_.emplace(key);
        return table_.get(key);
    }

    void refuse_the_rest() const {
        for (const auto& [key, node] : table_) {
            if (asked_.count(std::string(key.str()))) continue;
            std::string known;
            for (const std::string& one : asked_) known += (known.empty() ? "" : ", ") + one;
            fail(key.str(), "is not a known key here; remove it or correct it (known: " + known + ")");
        }
    }

  private:
    const toml::table& table_;
    std::string file_;
    std::string prefix_;
    std::set<std::string> asked_;
};

void check_absolute(const Reader& reader, std::string_view key, const std::string& path) {
    if (path.empty() || path[0] != '/') reader.fail(key, "must be an absolute path, not \"" + path + "\"");
}

/// [port_map] "80" = 8080, of all replicas or of one.
std::map<uint16_t, uint16_t> read_port_map(Reader& owner) {
    std::map<uint16_t, uint16_t> out;
    Reader reader = owner.table("port_map");
    for (const auto& [key, node] : reader.raw()) {
        const std::string name(key.str());
        uint64_t from = 0;
        for (char c : name) {
            if (c < '0' || c > '9' || from > 65535) reader.fail(name, "must be the server's port number");
            from = from * 10 + static_cast<uint64_t>(c - '0');
        }
        if (from == 0 || from > 65535) reader.fail(name, "must be a port from 1 to 65535");
        out[static_cast<uint16_t>(from)] = static_cast<uint16_t>(reader.number(name, 0, 1, 65535));
    }
    return out;
}

ReplicaAddress read_replica(Reader reader, bool needs_peer) {
    ReplicaAddress out;
    if (!reader.has("id")) reader.fail("id", "is missing; number the replicas from 1");
    out.id = static_cast<uint32_t>(reader.number("id", 0, 1, kMaxReplicaId));
    out.client_address = reader.text("client_address", "127.0.0.1");
    out.port_map = read_port_map(reader);
    const std::string peer = needs_peer ? reader.required_text("peer") : reader.text("peer", "127.0.0.1:1");
    const size_t colon = peer.rfind(':');
    if (colon == std::string::npos || colon == 0) reader.fail("peer", "must be \"address:port\"");
    out.peer_host = peer.substr(0, colon);
    if (out.peer_host.size() > 2 && out.peer_host.front() == '[' && out.peer_host.back() == ']') {
        out.peer_host = out.peer_host.substr(1, out.peer_host.size() - 2);
    }
    char* end = nullptr;
    const unsigned long port = std::strtoul(peer.c_str() + colon + 1, &end, 10);
    if (*end || port == 0 || port > 65535) reader.fail("peer", "must end in a port from 1 to 65535");
    out.peer_port = static_cast<uint16_t>(port);
    reader.refuse_the_rest();
    return out;
}

void read_replicas(Reader& root, const std::string& file, Config& config) {
    const std::map<uint16_t, uint16_t> common = read_port_map(root);
    const toml::node* node = root.take("replica");
    const bool single = config.mode != Mode::kFull;
    if (!node && single) {
        ReplicaAddress self;
        self.id = config.replica_id;
        self.client_address = "127.0.0.1";
        self.peer_host = "127.0.0.1";
        self.port_map = common;
        config.replicas.push_back(self);
        return;
    }
    if (!node || !node->is_array_of_tables()) root.fail("replica", "needs one [[replica]] table per replica");
    std::set<uint32_t> ids;
    for (const toml::node& item : *node->as_array()) {
        ReplicaAddress one = read_replica(Reader(*item.as_table(), file, "replica."), !single);
        if (!ids.insert(one.id).second) root.fail("replica", "has id " + std::to_string(one.id) + " twice");
        for (const auto& [from, to] : common) one.port_map.emplace(from, to);
        config.replicas.push_back(std::move(one));
    }
    if (!ids.count(config.replica_id)) {
        root.fail("replica_id",
                  "is " + std::to_string(config.replica_id) + ", but no [[replica]] has that id");
    }
    // With a database the members are those that it names, and this list says where they are.
    std::error_code ignored;
    const bool begins = !config.join && !std::filesystem::exists(config.state_dir + "/db/log.db", ignored);
    if (!single && begins && config.replicas.size() % 2 == 0) {
        root.fail("replica", "there are " + std::to_string(config.replicas.size()) + "; use 1, 3, 5 or 7");
    }
    if (begins && config.replicas.size() > paxos::max_voters) root.fail("replica", "at most 7 replicas");
    if (config.replicas.size() > paxos::max_members) {
        root.fail("replica",
                  "at most " + std::to_string(paxos::max_members) + " replicas, learners included");
    }
    if (config.join && config.replicas.size() < 2) {
        root.fail("replica", "with join = true there has to be a [[replica]] of the cluster that is joined");
    }
    if (single && config.join) root.fail("consensus.join", "is for mode full");
    if (single && config.replicas.size() != 1) root.fail("replica", "this mode has one replica only");
}

void read_sections(Reader& root, Config& config) {
    Reader schedule = root.table("schedule");
    config.policy = schedule.choice("policy", "serial", {"serial", "parallel"}) == "serial"
                        ? timebubble::Policy::kSerial
                        : timebubble::Policy::kParallel;
    config.quantum = static_cast<uint32_t>(schedule.number("quantum", config.quantum, 1, 1'000'000'000));
    config.disturb_seed = schedule.number("disturb_seed", 0, 0, INT64_MAX);
    config.pin_cpu = static_cast<int>(schedule.number("pin_cpu", 1024, 0, 1024));
    if (config.pin_cpu == 1024) config.pin_cpu = -1;
    config.watchdog_s = static_cast<uint32_t>(schedule.number("watchdog_s", config.watchdog_s, 0, 86'400));
    schedule.refuse_the_rest();

    Reader bubble = root.table("bubble");
    config.bubbles = bubble.boolean("enabled", true);
    config.w_timeout_us = bubble.number("w_timeout_us", 0, 0, 60'000'000);
    config.n_clock = bubble.number("n_clock", 0, 0, 1'000'000'000);
    bubble.refuse_the_rest();

    Reader consensus = root.table("consensus");
    config.heartbeat_ms = static_cast<uint32_t>(consensus.number("heartbeat_ms", 50, 1, 60'000));
    config.election_timeout_ms =
        static_cast<uint32_t>(consensus.number("election_timeout_ms", 500, 3, 600'000));
    if (config.election_timeout_ms < 3 * config.heartbeat_ms) {
        consensus.fail("election_timeout_ms", "must be at least three times heartbeat_ms");
    }
    config.max_election_timeout_ms =
        static_cast<uint32_t>(consensus.number("max_election_timeout_ms", 0, 0, 600'000));
    if (config.max_election_timeout_ms != 0 && config.max_election_timeout_ms < config.election_timeout_ms) {
        consensus.fail("max_election_timeout_ms", "must be 0 or at least election_timeout_ms");
    }
    config.durable = consensus.boolean("durable", true);
    config.rejoin = consensus.boolean("rejoin", false);
    config.join = consensus.boolean("join", false);
    consensus.refuse_the_rest();

    Reader clock = root.table("clock");
    config.clock.max_skew_ns = clock.number("max_skew_ms", 1000, 10, 3'600'000) * 1'000'000;
    config.clock.slew_ppm =
        static_cast<uint32_t>(clock.number("slew_ppm", config.clock.slew_ppm, 1, 100'000));
    clock.refuse_the_rest();

    Reader clients = root.table("clients");
    KeepAlive& keepalive = config.keepalive;
    keepalive.idle_s = static_cast<uint32_t>(clients.number("keepalive_idle_s", keepalive.idle_s, 0, 32'767));
    keepalive.interval_s =
        static_cast<uint32_t>(clients.number("keepalive_interval_s", keepalive.interval_s, 1, 32'767));
    keepalive.probes = static_cast<uint32_t>(clients.number("keepalive_probes", keepalive.probes, 1, 127));
    clients.refuse_the_rest();

    Reader output = root.table("output_log");
    config.log_content =
        output.choice("content", "full", {"full", "hash"}) == "full" ? LogContent::kFull : LogContent::kHash;
    config.log_max_bytes = output.number("max_bytes", config.log_max_bytes, 1 << 20, INT64_MAX);
    output.refuse_the_rest();

    Reader memory = root.table("memory");
    config.input_bytes = memory.number("input_mib", config.input_bytes >> 20, 1, kMostInputMib) << 20;
    config.output_bytes = memory.number("output_mib", config.output_bytes >> 20, 1, 1 << 20) << 20;
    memory.refuse_the_rest();

    Reader disk = root.table("disk");
    config.disk_reserve_bytes = disk.number("reserve_bytes", config.disk_reserve_bytes, 1 << 20, INT64_MAX);
    disk.refuse_the_rest();

    Reader machine = root.table("machine");
    config.cpus = static_cast<uint32_t>(machine.number("cpus", 2, 1, 1024));
    config.memory_bytes = machine.number("memory_bytes", 0, 0, INT64_MAX);
    config.hostname = machine.text("hostname", "crane");
    if (config.hostname.empty() || config.hostname.size() > 63) {
        machine.fail("hostname", "must have 1 to 63 characters");
    }
    machine.refuse_the_rest();
}

void check_paths(const Reader& reader, std::string_view key, const std::vector<std::string>& paths,
                 std::string_view below) {
    for (const std::string& path : paths) {
        if (path.compare(0, below.size(), below) != 0 || path.find("/../") != std::string::npos ||
            path.ends_with("/..") || path.find_first_of(" \t\n\\") != std::string::npos) {
            reader.fail(
                key, "\"" + path + "\" must be a path below " + std::string(below) + " without spaces or ..");
        }
    }
}

/// [confinement]: whom the server runs as, and the exceptions from what a server may do.
void read_confinement(Reader& root, Config& config) {
    Reader reader = root.table("confinement");
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
    config.disk_quota_bytes = reader.number("disk_quota_bytes", 0, 0, INT64_MAX);
    if (config.disk_quota_bytes != 0 && config.disk_quota_bytes < kLeastQuotaBytes)
        reader.fail("disk_quota_bytes",
                    "must be at least " + std::to_string(kLeastQuotaBytes) + ", or 0 for none");
    reader.refuse_the_rest();
    const bool exceptions = config.confinement != checkpoint::Confinement{} || !config.hide.empty() ||
                            !config.show.empty() || config.disk_quota_bytes != 0;
    if (!config.container && exceptions)
        root.fail("confinement",
                  "is for containers: with isolation = \"none\" only user and group can be set");
}

/// [tls]: all of it or nothing, and nothing only where nobody else can listen.
void read_tls(Reader& root, Config& config) {
    Reader tls = root.table("tls");
    for (auto& [key, path] : {std::pair<const char*, std::string&>{"ca", config.tls.ca},
                              {"certificate", config.tls.certificate},
                              {"key", config.tls.key}}) {
        if (!root.has("tls")) break;
        path = tls.required_text(key);
        check_absolute(tls, key, path);
    }
    tls.refuse_the_rest();
    if (config.mode != Mode::kFull || config.tls.configured()) return;
    std::vector<paxos::PeerAddress> peers;
    for (const ReplicaAddress& one : config.replicas) peers.push_back({one.id, one.peer_host, one.peer_port});
    const std::string refusal = paxos::plaintext_refusal(peers, config.cluster_id);
    if (!refusal.empty()) root.fail("replica", refusal);
}

}  // namespace

const ReplicaAddress& Config::self() const {
    for (const ReplicaAddress& one : replicas) {
        if (one.id == replica_id) return one;
    }
    throw ConfigError("replica " + std::to_string(replica_id) + " is not configured");
}

Config parse_config(std::string_view text, const std::string& path) {
    toml::table table;
    try {
        table = toml::parse(text, path);
    } catch (const toml::parse_error& error) {
        std::ostringstream out;
        out << path << ":" << error.source().begin.line << ": not valid TOML: " << error.description();
        throw ConfigError(out.str());
    }
    Reader root(table, path, "");
    Config config;
    config.cluster_id = root.required_text("cluster_id");
    for (char c : config.cluster_id) {
        if (!isxdigit(static_cast<unsigned char>(c))) root.fail("cluster_id", "must be hexadecimal digits");
    }
    if (!root.has("replica_id")) root.fail("replica_id", "is missing; say which replica this is");
    config.replica_id = static_cast<uint32_t>(root.number("replica_id", 0, 1, kMaxReplicaId));
    config.state_dir = root.required_text("state_dir");
    check_absolute(root, "state_dir", config.state_dir);
    config.log_level = root.choice("log_level", "info", {"trace", "debug", "info", "warning", "error"});
    const std::string mode = root.choice("mode", "full", {"full", "dmt", "proxy"});
    config.mode = mode == "full" ? Mode::kFull : mode == "dmt" ? Mode::kDmt : Mode::kProxy;
    config.container = root.choice("isolation", "lxc", {"lxc", "none"}) == "lxc";
    config.server = root.texts("server");
    if (config.server.empty()) root.fail("server", "is missing; write server = [\"program\", \"argument\"]");
    config.cwd = root.text("cwd", "/");
    check_absolute(root, "cwd", config.cwd);
    config.environment = root.texts("environment");
    for (const std::string& one : config.environment) {
        if (one.find('=') == std::string::npos) root.fail("environment", "\"" + one + "\" is not NAME=value");
    }
    const std::string restart = root.choice("restart", "always", {"always", "on-failure", "no"});
    config.restart = restart == "always"       ? Restart::kAlways
                     : restart == "on-failure" ? Restart::kOnFailure
                                               : Restart::kNo;
    config.shim = root.required_text("shim");
    check_absolute(root, "shim", config.shim);
    config.init = root.required_text("init");
    check_absolute(root, "init", config.init);
    read_sections(root, config);
    read_confinement(root, config);
    read_replicas(root, path, config);
    read_tls(root, config);
    root.refuse_the_rest();
    return config;
}

Config load_config(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw ConfigError(path + ": cannot be opened; give craned an existing file with --config");
    std::ostringstream text;
    text << in.rdbuf();
    return parse_config(text.str(), path);
}

}  // namespace crane::proxy
