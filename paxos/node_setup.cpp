#include "paxos/node_setup.hpp"

#include <random>
#include <set>
#include <stdexcept>

#include "paxos/link/certificate.hpp"

namespace crane::paxos {
namespace {

uint64_t random_number() {
    std::random_device device;
    return (uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

NodeConfig validated(NodeConfig config) {
    auto refuse = [](const std::string& what) {
        throw std::runtime_error("consensus configuration: " + what);
    };
    if (config.cluster_id.empty()) refuse("cluster_id is empty");
    if (config.tls.configured() && !usable_cluster_name(config.cluster_id))
        refuse("cluster_id \"" + config.cluster_id + "\" cannot stand in a certificate: use 1 to " +
               std::to_string(kMaxClusterNameBytes) + " letters, digits, '-', '.' and '_'");
    if (config.db_dir.empty()) refuse("db_dir is empty");
    if (config.members.empty() || config.members.size() > kMaxMembers)
        refuse("1 to " + std::to_string(kMaxMembers) + " replicas are needed");
    std::set<uint32_t> ids;
    for (const PeerAddress& member : config.members) {
        if (member.id == 0 || member.id > kMaxReplicaId)
            refuse("replica id " + std::to_string(member.id) + " is out of range");
        if (member.host.size() > kMaxAddressBytes - 6) refuse("a peer address is too long");
        if (!ids.insert(member.id).second)
            refuse("replica id " + std::to_string(member.id) + " appears twice");
    }
    if (ids.count(config.self) == 0)
        refuse("this replica, " + std::to_string(config.self) + ", is not among the members");
    const size_t voters = config.members.size() - (config.join ? 1 : 0);
    if (voters < 1 || voters > kMaxVoters)
        refuse(std::to_string(voters) + " voting members: 1 to " + std::to_string(kMaxVoters) +
               " are needed");
    if (config.heartbeat_ms == 0 || config.election_timeout_ms < 3 * config.heartbeat_ms)
        refuse("election_timeout_ms must be at least three times heartbeat_ms, and that not 0");
    if (config.max_inflight_entries == 0 || config.max_inflight_bytes == 0)
        refuse("the pipeline has no room");
    return config;
}

StoreOptions store_options(const NodeConfig& config) {
    StoreOptions options;
    options.directory = config.db_dir;
    options.cluster_id = config.cluster_id;
    options.replica = config.self;
    options.durable = config.durable;
    options.rejoin = config.rejoin || config.checkpoint.index > 0;
    return options;
}

CoreConfig core_config(const NodeConfig& config) {
    CoreConfig core;
    core.self = config.self;
    for (const PeerAddress& member : config.members)
        core.members.add({member.id, !(config.join && member.id == config.self),
                          member.host + ":" + std::to_string(member.port)});
    core.heartbeat_us = uint64_t{config.heartbeat_ms} * 1000;
    core.election_timeout_us = uint64_t{config.election_timeout_ms} * 1000;
    core.max_election_timeout_us = config.max_election_timeout_ms != 0
                                       ? uint64_t{config.max_election_timeout_ms} * 1000
                                       : 4 * core.election_timeout_us;
    core.max_inflight_entries = config.max_inflight_entries;
    core.max_inflight_bytes = config.max_inflight_bytes;
    core.seed = config.seed != 0 ? config.seed : random_number();
    core.run = random_number();
    return core;
}

}  // namespace crane::paxos
