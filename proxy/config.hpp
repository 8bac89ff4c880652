// craned's configuration: one TOML file, read strictly. A key that is not known, a value that cannot work, or
// a combination that makes no sense is refused with the file, the key and what to write instead; nothing is
// guessed.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/confinement.hpp"
#include "checkpoint/disk_quota.hpp"
#include "paxos/link/tls_files.hpp"
#include "proxy/egress_rules.hpp"
#include "proxy/pace.hpp"
#include "proxy/restart_policy.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

enum class Mode { kFull, kDmt, kProxy };
enum class LogContent { kFull, kHash };

struct ReplicaAddress {
    uint32_t id = 0;
    std::string peer_host;
    uint16_t peer_port = 0;
    std::string client_address;
    std::map<uint16_t, uint16_t> port_map;  ///< the server's port -> where clients reach it on this replica
};

struct ClockLimits {
    uint64_t max_skew_ns = 1'000'000'000;  ///< hosts' clocks that differ by no more agree
    uint32_t slew_ppm = 5000;              ///< how fast the cluster's clock nears real time
};

/// How a client that is gone without a word is found out.
struct KeepAlive {
    uint32_t idle_s = 60;  ///< silence before the first probe; 0: no probes
    uint32_t interval_s = 10;
    uint32_t probes = 6;  ///< unanswered ones
};

struct Config {
    std::string cluster_id;
    uint32_t replica_id = 0;
    std::string state_dir;
    std::string log_level = "info";
    Mode mode = Mode::kFull;
    bool container = true;  ///< isolation = "lxc"
    std::vector<std::string> server;
    std::string cwd = "/";
    std::vector<std::string> environment;
    Restart restart = Restart::kAlways;
    uint32_t stop_s = 90;  ///< a server that is asked to end has so long, and is ended then
    std::string shim;
    std::string init;

    timebubble::Policy policy = timebubble::Policy::kSerial;
    uint32_t quantum = 1000;
    uint64_t disturb_seed = 0;
    int pin_cpu = -1;
    bool placement = true;     ///< a serial domain that hands over a lot is kept on one core
    uint32_t watchdog_s = 10;  ///< 0: off
    uint32_t endless_s = 60;   ///< a server that computes so long at one place is ended; 0: never
    bool backstop = true;      ///< the server's system calls past libc's functions are trapped

    Pace::Settings pace;

    bool bubbles = true;
    uint64_t w_timeout_us = 0;
    uint64_t n_clock = 0;

    ClockLimits clock;
    KeepAlive keepalive;

    uint32_t heartbeat_ms = 50;
    uint32_t election_timeout_ms = 500;
    uint32_t max_election_timeout_ms = 0;
    bool durable = true;  ///< false: durability = "memory", see log_durability.hpp
    bool join = false;    ///< added to a running cluster: see paxos::NodeConfig
    bool rejoin = false;  ///< a database that is not there has been lost: see paxos::NodeConfig

    paxos::TlsFiles tls;  ///< none: every peer is on loopback

    LogContent log_content = LogContent::kFull;
    uint64_t log_max_bytes = 4ULL << 30;

    bool witness = false;  ///< votes and keeps the log, and has no server: see witness.hpp

    std::string user, group;  ///< whom the server runs as; "": as craned
    checkpoint::Confinement confinement;
    std::vector<std::string> hide, show;
    std::string image;  ///< the base image that the first server is begun on, its sum; "": this host's files
    std::string image_store;               ///< where images are on this host
    checkpoint::DiskQuota disk_quota;      ///< of what the server writes
    uint64_t input_bytes = 128ULL << 20;   ///< unread by the server, beyond each connection's own 8 KiB
    uint64_t output_bytes = 512ULL << 20;  ///< not taken by clients, beyond each connection's first 64 KiB
    /// A checkpoint is taken when the log has grown by so much since the last: by a start that is decided
    /// anyway, or of the server that runs.
    uint64_t checkpoint_log_bytes = 16ULL << 20;
    bool checkpoint_running = true;    ///< of the server that runs, without being asked
    uint32_t checkpoint_pause_s = 60;  ///< at least, between two such
    bool repair = true;                ///< a replica that differs from the majority is made anew by itself
    /// The server goes on although it is made of other files here than the log says.
    bool accept_changes = false;
    /// In the place of whatever the log says. Without an image here it is not that of this host that counts.
    bool image_is_accepted() const { return accept_changes && !image.empty(); }
    uint64_t disk_reserve_bytes = 64ULL << 20;  ///< input stops when less is left

    uint64_t ship_bytes_per_s = 100'000'000;  ///< of checkpoints, to other replicas and from them

    uint32_t cpus = 2;
    uint64_t memory_bytes = 0;
    std::string hostname = "crane";
    std::vector<std::string> own_addresses;  ///< base/own_address.hpp; none: the usual ones

    std::string metrics_listen;  ///< where metrics, health and the page are served; "": nowhere

    std::string admin_listen;  ///< where operators elsewhere are heard, over TLS; "": nowhere

    bool egress = false;                   ///< the server may connect to the outside, through the primary
    std::vector<EgressRule> egress_allow;  ///< and there; none: anywhere
    timebubble::EgressPolicy egress_policy() const {
        return egress ? timebubble::EgressPolicy::kPrimary : timebubble::EgressPolicy::kRefuse;
    }

    std::vector<ReplicaAddress> replicas;

    const ReplicaAddress& self() const;
    std::string control_path() const { return state_dir + "/control.sock"; }
};

/// The connection id has room for this replica id and no larger one (sessions.hpp).
constexpr uint32_t kMaxReplicaId = 255;

class ConfigError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

Config load_config(const std::string& path);
Config parse_config(std::string_view text, const std::string& path);

}  // namespace crane::proxy
