// Who the replicas are and where: [[replica]] and [port_map].
#include <cstdlib>
#include <filesystem>

#include "paxos/core/membership.hpp"
#include "proxy/config_table.hpp"

namespace crane::proxy {

namespace {

/// [port_map] "80" = 8080, of all replicas or of one.
std::map<uint16_t, uint16_t> read_port_map(ConfigTable& owner) {
    std::map<uint16_t, uint16_t> out;
    ConfigTable reader = owner.table("port_map");
    for (const std::string& name : reader.keys()) {
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

ReplicaAddress read_replica(ConfigTable& reader, bool needs_peer) {
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

}  // namespace

void read_replicas(ConfigTable& root, Config& config) {
    const std::map<uint16_t, uint16_t> common = read_port_map(root);
    std::vector<ConfigTable> tables = root.tables("replica");
    const bool single = config.mode != Mode::kFull;
    if (tables.empty() && single) {
        ReplicaAddress self;
        self.id = config.replica_id;
        self.client_address = "127.0.0.1";
        self.peer_host = "127.0.0.1";
        self.port_map = common;
        config.replicas.push_back(self);
        return;
    }
    if (tables.empty()) root.fail("replica", "needs one [[replica]] table per replica");
    std::set<uint32_t> ids;
    for (ConfigTable& table : tables) {
        ReplicaAddress one = read_replica(table, !single);
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
    // One that has lost its database comes back to a cluster that may have grown or shrunk since.
    const bool founds = begins && !config.rejoin;
    if (!single && founds && config.replicas.size() % 2 == 0) {
        root.fail("replica", "there are " + std::to_string(config.replicas.size()) + "; use 1, 3, 5 or 7");
    }
    if (config.witness && begins && config.replicas.size() == 1)
        root.fail("witness", "cannot be the only replica: nobody would have a server");
    if (!config.durable && single) root.fail("consensus.durability", "memory is for mode full");
    if (!config.durable && begins && config.replicas.size() == 1)
        root.fail(
            "consensus.durability",
            "memory needs other replicas to copy the log from when this host has lost its own; use disk");
    if (begins && config.replicas.size() > paxos::kMaxVoters) root.fail("replica", "at most 7 replicas");
    if (config.replicas.size() > paxos::kMaxMembers) {
        root.fail("replica",
                  "at most " + std::to_string(paxos::kMaxMembers) + " replicas, learners included");
    }
    if (config.join && config.replicas.size() < 2) {
        root.fail("replica", "with join = true there has to be a [[replica]] of the cluster that is joined");
    }
    if (single && config.join) root.fail("consensus.join", "is for mode full");
    if (single && config.replicas.size() != 1) root.fail("replica", "this mode has one replica only");
}

}  // namespace crane::proxy
