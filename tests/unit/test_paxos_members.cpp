// Replicas that come and go, with real nodes, sockets and databases: the links follow.
#include <algorithm>
#include "test_paxos_node.hpp"
#include "test_paxos_tls.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

struct Growing {
    Authority authority;
    NodeCluster nodes;
    explicit Growing(bool encrypted)
        : nodes(3, {},
                encrypted ? [this](uint32_t id) { return authority.files(id); }
                          : std::function<TlsFiles(uint32_t)>()) {
        REQUIRE(nodes.await_leader());
        REQUIRE(nodes.run_until([&] { return nodes.linked({1, 2, 3}); }));
    }

    // A replica of which the others' configurations know nothing: the log tells them where it is.
    void add(uint32_t id) {
        const uint16_t port = free_port();
        NodeConfig config = nodes.config(id);
        config.members.push_back({id, "127.0.0.1", port});
        config.join = true;
        REQUIRE(nodes.change({ChangeKind::kAdd, id, "127.0.0.1:" + std::to_string(port)}));
        nodes.start(config);
        joined[id] = config;
    }
    bool all_know(const std::set<uint32_t>& ids, const std::string& membership) {
        return nodes.run_until([&] {
            for (const uint32_t id : ids) {
                const auto& known = nodes[id].memberships;
                if (known.empty() || known.back().find(membership) == std::string::npos) return false;
            }
            return true;
        });
    }
    bool remove(uint32_t id) {
        return nodes.run_until([&] {
            const uint32_t leader = nodes.leader();
            if (leader == 0) return false;
            if (leader == id) nodes[leader].node->transfer_leadership(0);
            return leader != id &&
                   nodes[leader].node->change_membership({ChangeKind::kRemove, id, ""}).empty();
        });
    }
    std::map<uint32_t, NodeConfig> joined;
};

}  // namespace

TEST_CASE("paxos members: a fourth replica learns, votes, and the links follow") {
    Growing cluster(GENERATE(false, true));
    NodeCluster& nodes = cluster.nodes;
    REQUIRE(nodes.pump(50, 50));
    cluster.add(4);
    REQUIRE(nodes.run_until([&] { return nodes.linked({1, 2, 3, 4}); }));
    REQUIRE(cluster.all_know({1, 2, 3, 4}, "learner 4"));
    REQUIRE(nodes.pump(50, 100));
    REQUIRE(nodes.same_everywhere());
    REQUIRE(nodes.change({ChangeKind::kPromote, 4, ""}));
    REQUIRE(nodes.run_until([&] { return nodes[4].node->membership().voter(4); }));
    REQUIRE(nodes.pump(10, 110));

    REQUIRE(cluster.remove(1));
    REQUIRE(nodes.run_until([&] { return nodes.linked({2, 3, 4}) && nodes[1].linked.empty(); }));
    REQUIRE(nodes[1].memberships.back().find("1 at") != 0);  // it has heard of its removal
    nodes.stop(1);
    REQUIRE(nodes.pump(10, 120));
    // Its vote counts: with another voter gone, 3 and 4 are a majority of 2, 3 and 4.
    nodes.stop(2);
    REQUIRE(nodes.await_leader());
    REQUIRE(nodes.pump(10, 130));
}

TEST_CASE("paxos members: the one that holds where a replica goes on is reported, not the one before") {
    Growing cluster(false);
    NodeCluster& nodes = cluster.nodes;
    for (const uint32_t id : {4, 5}) {
        cluster.add(id);
        REQUIRE(cluster.all_know({1, 2, 3}, "learner " + std::to_string(id)));
    }
    REQUIRE(nodes.pump(10, 10));
    REQUIRE(nodes.same_everywhere());
    const LogPosition end = nodes[1].decided.back().position();
    nodes.stop(1);
    nodes[1].memberships.clear();
    nodes.start(1, end);
    REQUIRE(nodes[1].memberships.size() == 1);
    REQUIRE_THAT(nodes[1].memberships.back(), Catch::Contains("learner 5"));
}

TEST_CASE("paxos members: a removed replica that comes back is told that it was removed") {
    Growing cluster(GENERATE(false, true));
    NodeCluster& nodes = cluster.nodes;
    nodes.stop(3);  // does not hear of it
    REQUIRE(cluster.remove(3));
    // A leader keeps who was removed for a while, and would tell it by the log.
    REQUIRE(nodes.run_until([&] {
        return std::ranges::all_of(std::initializer_list<uint32_t>{1, 2}, [&](uint32_t id) {
            const Node& node = *nodes[id].node;
            return node.peers().size() == 1 && node.describe().find("peer 3:") == std::string::npos;
        });
    }));
    LogLines log;
    nodes.start(3);
    const bool told =
        nodes.run_until([&] { return log.has("refused: replica 3 has been removed from the cluster"); });
    INFO(log.all());
    REQUIRE(told);
    REQUIRE(log.has("refused a peer connection from 127.0.0.1: replica 3 has been removed from the cluster"));
    REQUIRE(nodes.pump(0, 0));
    REQUIRE_FALSE(nodes[1].linked.contains(3));
    REQUIRE_FALSE(nodes[2].linked.contains(3));
}

TEST_CASE("paxos members: one that was away finds those who came meanwhile, by introduction") {
    Growing cluster(GENERATE(false, true));
    NodeCluster& nodes = cluster.nodes;
    REQUIRE(nodes.pump(10, 10));
    nodes.stop(3);
    for (const uint32_t id : {4, 5}) {
        cluster.add(id);
        REQUIRE(nodes.change({ChangeKind::kPromote, id, ""}));
        REQUIRE(cluster.all_know({1, 2}, std::to_string(id) + " at"));
    }
    REQUIRE(cluster.remove(1));
    REQUIRE(nodes.run_until([&] { return nodes.linked({2, 4, 5}); }));
    nodes.stop(1);
    REQUIRE(nodes.await_leader());
    // Whoever leads, it has nobody but replica 2 in common with replica 3's configuration and log.
    nodes.start(3);
    REQUIRE(nodes.run_until([&] { return nodes.linked({2, 3, 4, 5}); }));
    REQUIRE(nodes.pump(20, 30));
    REQUIRE(nodes.same_everywhere());
}

TEST_CASE("paxos members: a certificate alone makes nobody a member") {
    Growing cluster(true);
    NodeCluster& nodes = cluster.nodes;
    NodeConfig config = nodes.config(4);
    config.members.push_back({4, "127.0.0.1", free_port()});
    config.join = true;
    LogLines log;
    nodes.start(config);
    REQUIRE(nodes.run_until([&] { return log.has("refused: replica 4 is not a member"); }));
    REQUIRE(nodes[4].linked.empty());
    // It is let in as soon as it is one, and needs no restart for it.
    REQUIRE(nodes.change({ChangeKind::kAdd, 4, "127.0.0.1:" + std::to_string(config.members[3].port)}));
    REQUIRE(nodes.run_until([&] { return nodes.linked({1, 2, 3, 4}); }));
}
