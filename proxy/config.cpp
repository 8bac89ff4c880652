#include "proxy/config.hpp"

#include <fstream>
#include <sstream>

#include "base/own_address.hpp"
#include "checkpoint/image_store.hpp"
#include "paxos/link/tls.hpp"
#include "proxy/config_table.hpp"
#include "proxy/metrics/http_server.hpp"
#include "timebubble/limits.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kMostInputMib = timebubble::kCommonChunks * timebubble::kInputChunkBytes >> 20;
constexpr uint64_t kMegabyte = 1'000'000;
constexpr uint64_t kNsPerMs = 1'000'000;

void read_own_files(ConfigTable& root, Config& config) {
    if (config.witness && !root.has("shim") && !root.has("init")) return;  // it starts nothing
    config.shim = root.required_text("shim");
    root.check_absolute("shim", config.shim);
    config.init = root.required_text("init");
    root.check_absolute("init", config.init);
}

void read_schedule(ConfigTable& root, Config& config) {
    ConfigTable schedule = root.table("schedule");
    config.policy = schedule.choice("policy", "serial", {"serial", "parallel"}) == "serial"
                        ? timebubble::Policy::kSerial
                        : timebubble::Policy::kParallel;
    config.quantum = static_cast<uint32_t>(schedule.number("quantum", config.quantum, 1, 1'000'000'000));
    config.disturb_seed = schedule.number("disturb_seed", 0, 0, INT64_MAX);
    config.pin_cpu = static_cast<int>(schedule.number("pin_cpu", 1024, 0, 1024));
    if (config.pin_cpu == 1024) config.pin_cpu = -1;
    config.placement = schedule.choice("placement", "auto", {"auto", "none"}) == "auto";
    config.watchdog_s = static_cast<uint32_t>(schedule.number("watchdog_s", config.watchdog_s, 0, 86'400));
    config.endless_s = static_cast<uint32_t>(schedule.number("endless_s", config.endless_s, 0, 86'400));
    config.backstop = schedule.boolean("backstop", config.backstop);
    schedule.refuse_the_rest();
}

void read_bubble(ConfigTable& root, Config& config) {
    ConfigTable bubble = root.table("bubble");
    config.bubbles = bubble.boolean("enabled", true);
    config.w_timeout_us = bubble.number("w_timeout_us", 0, 0, 60'000'000);
    config.n_clock = bubble.number("n_clock", 0, 0, 1'000'000'000);
    bubble.refuse_the_rest();
}

void read_pace(ConfigTable& root, Config& config) {
    ConfigTable pace = root.table("pace");
    config.pace.behind_ns =
        pace.number("behind_ms", config.pace.behind_ns / kNsPerMs, 0, 3'600'000) * kNsPerMs;
    config.pace.most_shut_percent =
        static_cast<uint32_t>(pace.number("most_shut_percent", config.pace.most_shut_percent, 0, 90));
    pace.refuse_the_rest();
}

void read_consensus(ConfigTable& root, Config& config) {
    ConfigTable consensus = root.table("consensus");
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
    config.durable = consensus.choice("durability", "disk", {"disk", "memory"}) == "disk";
    config.rejoin = consensus.boolean("rejoin", false);
    config.join = consensus.boolean("join", false);
    consensus.refuse_the_rest();
}

void read_clock(ConfigTable& root, Config& config) {
    ConfigTable clock = root.table("clock");
    config.clock.max_skew_ns = clock.number("max_skew_ms", 1000, 10, 3'600'000) * kNsPerMs;
    config.clock.slew_ppm =
        static_cast<uint32_t>(clock.number("slew_ppm", config.clock.slew_ppm, 1, 100'000));
    clock.refuse_the_rest();
}

void read_clients(ConfigTable& root, Config& config) {
    ConfigTable clients = root.table("clients");
    KeepAlive& keepalive = config.keepalive;
    keepalive.idle_s = static_cast<uint32_t>(clients.number("keepalive_idle_s", keepalive.idle_s, 0, 32'767));
    keepalive.interval_s =
        static_cast<uint32_t>(clients.number("keepalive_interval_s", keepalive.interval_s, 1, 32'767));
    keepalive.probes = static_cast<uint32_t>(clients.number("keepalive_probes", keepalive.probes, 1, 127));
    clients.refuse_the_rest();
}

void read_output_log(ConfigTable& root, Config& config) {
    ConfigTable output = root.table("output_log");
    config.log_content =
        output.choice("content", "full", {"full", "hash"}) == "full" ? LogContent::kFull : LogContent::kHash;
    config.log_max_bytes = output.number("max_bytes", config.log_max_bytes, 1 << 20, INT64_MAX);
    output.refuse_the_rest();
}

void read_memory(ConfigTable& root, Config& config) {
    ConfigTable memory = root.table("memory");
    config.input_bytes = memory.number("input_mib", config.input_bytes >> 20, 1, kMostInputMib) << 20;
    config.output_bytes = memory.number("output_mib", config.output_bytes >> 20, 1, 1 << 20) << 20;
    memory.refuse_the_rest();
}

void read_disk(ConfigTable& root, Config& config) {
    ConfigTable disk = root.table("disk");
    config.disk_reserve_bytes = disk.number("reserve_bytes", config.disk_reserve_bytes, 1 << 20, INT64_MAX);
    disk.refuse_the_rest();
}

void read_checkpoint(ConfigTable& root, Config& config) {
    ConfigTable checkpoint = root.table("checkpoint");
    config.checkpoint_running = checkpoint.boolean("running", config.checkpoint_running);
    config.checkpoint_pause_s =
        static_cast<uint32_t>(checkpoint.number("every_s", config.checkpoint_pause_s, 1, 1'000'000));
    config.checkpoint_log_bytes = checkpoint.number("log_mib", config.checkpoint_log_bytes >> 20, 0, 1 << 20)
                                  << 20;
    config.ship_bytes_per_s =
        checkpoint.number("ship_mb_per_s", config.ship_bytes_per_s / kMegabyte, 1, 100'000) * kMegabyte;
    config.repair = checkpoint.boolean("repair", config.repair);
    config.accept_changes = checkpoint.boolean("accept_changes", config.accept_changes);
    checkpoint.refuse_the_rest();
}

void read_image(ConfigTable& root, Config& config) {
    ConfigTable image = root.table("image");
    config.image_store = image.text("store", "/var/lib/crane/images");
    image.check_absolute("store", config.image_store);
    const std::string base = image.text("base", "");
    const auto sum = checkpoint::image_sum_in(base);
    if (!base.empty() && !sum)
        image.fail("base", "\"" + base + "\" must be \"sha256:\" and 64 digits, as crane image add says it");
    config.image = sum.value_or("");
    if (sum && !config.container) image.fail("base", "is for containers, not for isolation = \"none\"");
    image.refuse_the_rest();
}

void read_own_addresses(ConfigTable& machine, Config& config) {
    config.own_addresses = machine.texts("addresses");
    if (config.own_addresses.empty()) return;
    if (!config.container || config.mode == Mode::kProxy)
        machine.fail("addresses",
                     "is for a server with a network of its own: in a container, and not mode proxy");
    if (config.own_addresses.size() > kMaxOwnAddresses)
        machine.fail("addresses", "must be at most " + std::to_string(kMaxOwnAddresses));
    std::vector<OwnAddress> seen;
    for (const std::string& text : config.own_addresses) {
        const auto own = parse_own_address(text);
        if (!own)
            machine.fail("addresses", "\"" + text +
                                          "\" must be an address of a host's own, not a loopback one, and "
                                          "the bits of its network, such as \"10.0.0.5/24\"");
        for (const OwnAddress& other : seen)
            if (own->is(other.family, other.bytes)) machine.fail("addresses", text + " is named twice");
        seen.push_back(*own);
    }
}

void read_machine(ConfigTable& root, Config& config) {
    ConfigTable machine = root.table("machine");
    config.cpus = static_cast<uint32_t>(machine.number("cpus", 2, 1, 1024));
    config.memory_bytes = machine.number("memory_bytes", 0, 0, INT64_MAX);
    config.hostname = machine.text("hostname", "crane");
    if (config.hostname.empty() || config.hostname.size() > 63) {
        machine.fail("hostname", "must have 1 to 63 characters");
    }
    read_own_addresses(machine, config);
    machine.refuse_the_rest();
}

/// [metrics] and [admin]: where what is for others than clients is listened for.
std::string read_listen(ConfigTable& table, const char* example) {
    std::string listen = table.text("listen", "");
    sockaddr_storage address{};
    socklen_t bytes = 0;
    if (!listen.empty() && !parse_listen_address(listen, address, bytes))
        table.fail("listen",
                   "\"" + listen + "\" must be an IP address and a port, such as \"" + example + "\"");
    table.refuse_the_rest();
    return listen;
}

void read_metrics_and_admin(ConfigTable& root, Config& config) {
    ConfigTable metrics = root.table("metrics"), admin = root.table("admin");
    config.metrics_listen = read_listen(metrics, "127.0.0.1:9464");
    config.admin_listen = read_listen(admin, "0.0.0.0:7401");
}

void read_egress(ConfigTable& root, Config& config) {
    ConfigTable egress = root.table("egress");
    config.egress = egress.choice("policy", "refuse", {"refuse", "primary"}) == "primary";
    for (const std::string& text : egress.texts("allow")) {
        const auto rule = parse_egress_rule(text);
        if (!rule)
            egress.fail("allow",
                        "\"" + text +
                            "\" must be an address, with /BITS for a network and :PORT for one port: "
                            "\"10.0.0.0/8:5432\", \"[fd00::/8]:443\"");
        config.egress_allow.push_back(*rule);
    }
    if (!config.egress && !config.egress_allow.empty())
        egress.fail("allow", "has no meaning with policy = \"refuse\": write policy = \"primary\", too");
    egress.refuse_the_rest();
}

/// [tls]: all of it or nothing, and nothing only where nobody else can listen.
void read_tls(ConfigTable& root, Config& config) {
    ConfigTable tls = root.table("tls");
    for (auto& [key, path] : {std::pair<const char*, std::string&>{"ca", config.tls.ca},
                              {"certificate", config.tls.certificate},
                              {"key", config.tls.key}}) {
        if (!root.has("tls")) break;
        path = tls.required_text(key);
        tls.check_absolute(key, path);
    }
    tls.refuse_the_rest();
    if (!config.admin_listen.empty() && !config.tls.configured())
        root.fail("admin", "needs [tls]: operators are known by certificates of the cluster's authority");
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
    ConfigTable root(table, path, "");
    Config config;
    config.cluster_id = root.required_text("cluster_id");
    for (char c : config.cluster_id) {
        if (!isxdigit(static_cast<unsigned char>(c))) root.fail("cluster_id", "must be hexadecimal digits");
    }
    if (!root.has("replica_id")) root.fail("replica_id", "is missing; say which replica this is");
    config.replica_id = static_cast<uint32_t>(root.number("replica_id", 0, 1, kMaxReplicaId));
    config.state_dir = root.required_text("state_dir");
    root.check_absolute("state_dir", config.state_dir);
    config.log_level = root.choice("log_level", "info", {"trace", "debug", "info", "warning", "error"});
    const std::string mode = root.choice("mode", "full", {"full", "dmt", "proxy"});
    config.mode = mode == "full" ? Mode::kFull : mode == "dmt" ? Mode::kDmt : Mode::kProxy;
    config.container = root.choice("isolation", "lxc", {"lxc", "none"}) == "lxc";
    config.witness = root.boolean("witness", false);
    if (config.witness && config.mode != Mode::kFull)
        root.fail("witness", "is for mode full: without consensus nobody votes");
    config.server = root.texts("server");
    if (config.server.empty() && !config.witness)
        root.fail("server", "is missing; write server = [\"program\", \"argument\"]");
    config.cwd = root.text("cwd", "/");
    root.check_absolute("cwd", config.cwd);
    config.environment = root.texts("environment");
    for (const std::string& one : config.environment) {
        if (one.find('=') == std::string::npos) root.fail("environment", "\"" + one + "\" is not NAME=value");
    }
    const std::string restart = root.choice("restart", "always", {"always", "on-failure", "no"});
    config.restart = restart == "always"       ? Restart::kAlways
                     : restart == "on-failure" ? Restart::kOnFailure
                                               : Restart::kNo;
    config.stop_s = static_cast<uint32_t>(root.number("stop_s", config.stop_s, 1, 86'400));
    read_own_files(root, config);
    read_schedule(root, config);
    read_bubble(root, config);
    read_pace(root, config);
    read_consensus(root, config);
    read_clock(root, config);
    read_clients(root, config);
    read_output_log(root, config);
    read_checkpoint(root, config);
    read_memory(root, config);
    read_disk(root, config);
    read_machine(root, config);
    read_confinement(root, config);
    read_image(root, config);
    read_metrics_and_admin(root, config);
    read_egress(root, config);
    read_replicas(root, config);
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
