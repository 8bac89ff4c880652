// The operator's tool: one function for each verb of `crane`. Each returns the process's exit status.
//
// A library of its own on top of proxy, which knows nothing of it. It asks craneds on their control sockets
// and reads what they leave behind, or asks one elsewhere that hands on what is for others (reach.cpp,
// remote.cpp); only `backup`, `restore`, `recover`, `audit` and `ca` write, and `restore` and `recover` never
// where a craned runs.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace crane::proxy {

constexpr int kExitOk = 0;
constexpr int kExitNo = 1;     ///< different, not running, not possible
constexpr int kExitError = 2;  ///< the question could not be answered
constexpr int kExitLag = 3;    ///< equal as far as it goes, but one log ends before another

struct ReplicaDir {
    uint32_t id;
    std::string path;        ///< a directory, or a remote_place()
    bool elsewhere = false;  ///< on another host: `path` is that of a replica which hands on what it is asked
};

std::string default_state_dir();
/// NAME of the unit crane@NAME whose replica has this directory, /var/lib/crane/NAME, and its configuration.
std::string packaged_name(const std::string& state_dir);
std::string packaged_config(const std::string& state_dir, const std::string& folder = "/etc/crane");
/// The configuration of the replica of this directory: in it, or else a package's; empty: in neither.
std::string config_file(const std::string& replica_dir, const std::string& folder = "/etc/crane");
/// By its configuration. What has none, or one that cannot be read, is taken for a replica with a server.
bool is_witness(const std::string& replica_dir);
/// STATE/r1, STATE/r2…; or STATE itself if it is one replica's. Throws if there is none.
std::vector<ReplicaDir> find_replicas(const std::string& state_dir);
/// Those that --replica means; `only` 0: all of find_replicas(). Throws where the replica is on another host,
/// which it names: what is in a directory is never taken for another replica's.
std::vector<ReplicaDir> chosen_replicas(const std::string& state_dir, uint32_t only);
/// By which an operator elsewhere is known, and knows replicas.
struct RemoteCredentials {
    std::string certificate, key;  ///< PEM files
    std::string authority;         ///< empty: ca.crt beside the certificate
};
/// For all that is asked of a remote place from then on.
void use_credentials(RemoteCredentials given);
/// What stands for a state directory where a cluster is asked at "HOST:PORT", its [admin] listen, or at the
/// first of several that answers ("HOST:PORT,HOST:PORT").
std::string remote_place(const std::string& addresses);
bool is_remote(const std::string& place);
std::vector<std::string> remote_places(const std::string& place);
nlohmann::json ask_remote(const std::string& place, const nlohmann::json& request, int timeout_ms);

/// Those here, and the members of their cluster on other hosts that can be asked by way of one of them.
std::vector<ReplicaDir> whole_cluster(const std::string& state_dir);
/// One question on a control socket. Throws std::runtime_error when nobody has answered by then.
nlohmann::json ask_craned(const std::string& replica_dir, const nlohmann::json& request,
                          int timeout_ms = 5000);
/// The same of any replica, and also where the answer takes its time.
nlohmann::json ask_replica(const ReplicaDir& replica, nlohmann::json request, int timeout_ms = 5000);
template <typename Condition>
bool wait_until(Condition condition, int limit_ms, unsigned poll_us = 10'000) {
    const uint64_t end = monotonic_ns() + static_cast<uint64_t>(limit_ms) * 1'000'000;
    while (!condition()) {
        if (monotonic_ns() > end) return false;
        usleep(poll_us);
    }
    return true;
}

/// A replica here that knows who leads, the primary itself if it is here; and its status.
struct Contact {
    ReplicaDir dir;
    nlohmann::json status;
};
std::optional<Contact> find_contact(const std::string& state_dir);
/// An order for the primary, by way of `contact`, which hands it on if it does not lead. The primary's
/// answer; "unanswered" is true where it gave none, and the order may have been followed or not.
nlohmann::json ask_primary(const Contact& contact, const nlohmann::json& request);

/// What every replica here says of itself: "alive" is true, or there is an "error". Without those that were
/// removed from the cluster, whose folders stay behind.
nlohmann::json ask_all(const std::string& state_dir, int timeout_ms = 5000);

/// Exits with kExitNo when the cluster is not as it should be: see cluster_health.hpp.
int tool_status(const std::string& state_dir, bool json);
struct HealthRequest {
    uint32_t replica = 0;  ///< 0: any one here
    bool primary = false;  ///< only the primary will do
};
int tool_health(const std::string& state_dir, const HealthRequest& request, bool json);
int tool_transfer(const std::string& state_dir, uint32_t to, bool json);
/// That replica's state counts from now on. Returns when all here have begun from it (kExitOk), or have not
/// in time (kExitNo).
int tool_base(const std::string& state_dir, uint32_t replica, bool json);
int tool_signal(const std::string& state_dir, const std::string& signal, bool json);
struct RestartRequest {
    std::string image;  ///< on a base image from then on, a file or an image's name; "": on what it has
    std::optional<uint32_t> within_s;  ///< that it has to end by itself; none: as its configuration says
};
/// Returns when another server serves (kExitOk), or has not within a minute of that time (kExitNo).
int tool_restart(const std::string& state_dir, const RestartRequest& wanted, bool json);

struct ImageRequest {
    std::string what;  ///< make, add, list, verify or remove
    std::string file;  ///< or an image's name; verify: "" is all of the store
    std::string from = "/";
    std::vector<std::string> exclude, keep;  ///< paths in the image
    std::string store = "/var/lib/crane/images";
};
int tool_image(const ImageRequest& request, bool json);
/// Puts the file into the store, with a line of progress; its sum.
std::string add_image(const std::string& file, const std::string& store);

struct DiffRequest {
    std::vector<std::string> logs;  ///< as they are; empty: the state directory's, see wait_s
    bool allow_lag = false;
    uint32_t wait_s = 10;        ///< for running replicas to reach what was decided at the call
    bool wait_for_down = false;  ///< wait for replicas that do not run, too: they may be starting
    bool anew = false;           ///< each two of them, to see who differs from whom
};
int tool_diff(const std::string& state_dir, const DiffRequest& request, bool json);

struct OutputRequest {
    uint32_t replica = 0;        ///< 0: all that are here
    std::optional<uint64_t> at;  ///< behind how many records; nothing: behind all
};
int tool_output(const std::string& state_dir, const OutputRequest& request, bool json);

struct AuditRequest {
    std::string statement;  ///< the file; empty: audit.statement in the state directory
    std::string verify;     ///< a statement that is looked at, and nothing else
    std::string authority;  ///< verify: ca.crt, or the public key; empty: as a configuration here says
    std::string config;     ///< whose key signs; empty: craned.toml of a replica here
    bool follow = false;
    uint32_t every_s = 10;
};
/// 0: all are equal; 1: they differ, or the statement is not good; 2: not all could be compared.
int tool_audit(const std::string& state_dir, const AuditRequest& request, bool json);
/// The same comparison once, stated nowhere: `crane diff` from elsewhere.
int compare_by_chain(const std::string& state_dir, bool json);

struct TopRequest {
    bool once = false;     ///< one frame, on whatever standard output is
    uint32_t every_s = 1;  ///< between two
};
int tool_top(const std::string& state_dir, const TopRequest& request, bool json);

struct LogRequest {
    uint32_t replica = 0;  ///< 0: the first that has a log
    uint64_t from = 1;
    uint64_t to = UINT64_MAX;
};
int tool_log(const std::string& state_dir, const LogRequest& request, bool json);

int tool_verify(const std::string& state_dir, uint32_t replica, bool json);

struct CheckpointRequest {
    std::string what;      ///< list, verify, take, restore
    uint32_t replica = 0;  ///< 0: all that are here
};
/// Asks for a checkpoint of the running server, and waits until a majority holds one behind `decided`, what
/// was decided at the call. Empty, or why there is none.
std::string have_checkpoint_taken(const std::string& state_dir, uint64_t& decided);
/// Has a checkpoint of the running server taken, and waits until a majority holds one; kExitNo: not in time.
int take_checkpoint(const std::string& state_dir, bool json);
/// Has the replica's server made anew from its newest checkpoint, and waits until it has caught up; kExitNo:
/// not in time. `replica` 0: the only one here.
int remake_server(const std::string& state_dir, uint32_t replica, bool json);
/// verify: kExitNo when one is not as its manifest says.
int tool_checkpoint(const std::string& state_dir, const CheckpointRequest& request, bool json);

struct BackupRequest {
    std::string file;     ///< to be written; must not be there
    std::string config;   ///< of a replica here; empty: craned.toml in its directory
    bool newest = false;  ///< of the newest checkpoint that there is: none is taken
    uint64_t entry = 0;   ///< of the checkpoint of this log entry; 0: of the newest
};
int tool_backup(const std::string& state_dir, const BackupRequest& request, bool json);

struct RestoreRequest {
    std::string file;    ///< the backup
    std::string config;  ///< craned.toml of a replica of the new cluster
};
int tool_restore(const RestoreRequest& request, bool json);

struct RecoverRequest {
    uint32_t replica = 0;  ///< 0: the one whose log goes furthest
    bool force_new_cluster = false;
};
/// The commands that start and end the replica of this directory; `folder` is where a package's
/// configurations are.
std::string how_to_start(const std::string& replica_dir, const std::string& folder = "/etc/crane");
std::string how_to_stop(const std::string& replica_dir, const std::string& folder = "/etc/crane");
int tool_recover(const std::string& state_dir, const RecoverRequest& request, bool json);

struct MemberRequest {
    std::string what;  ///< list, add, promote, remove, replace
    uint32_t id = 0;   ///< add: 0 for the next free one
    uint32_t by = 0;   ///< replace: the newcomer
    std::string address;
    uint32_t wait_s = 600;  ///< replace: for the newcomer to catch up, before anything is changed
};
/// Why a learner cannot take a voter's place yet, as the primary's status has it; empty: it can.
std::string why_not_level(const nlohmann::json& primary, uint32_t id);
int tool_member(const std::string& state_dir, const MemberRequest& request, bool json);

struct CaRequest {
    std::string dir;                 ///< where the authority is
    std::string cluster;             ///< init: the cluster_id
    uint32_t replica = 0;            ///< issue: 0: for an operator
    std::string role, name;          ///< issue: of an operator
    std::string out;                 ///< issue: empty: DIR/replica-N, DIR/operator-NAME
    uint32_t days = 0;               ///< 0: the default
    std::vector<std::string> files;  ///< show: others than those in dir
};
int tool_ca_init(const CaRequest& request, bool json);
int tool_ca_issue(const CaRequest& request, bool json);
int tool_ca_show(const CaRequest& request, bool json);

int tool_check(const std::vector<std::string>& program, bool json);

}  // namespace crane::proxy
