// Real nodes, sockets and databases: a cluster in one process, on one event loop.
#include "test_paxos_node.hpp"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

// Ends every TCP connection of this process, or those to one port; how many ends there were.
int cut_connections(uint16_t port) {
    int cut = 0;
    for (int fd = 3; fd < 1024; ++fd) {
        sockaddr_in address{};
        socklen_t size = sizeof address;
        if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
        if (address.sin_family != AF_INET) continue;
        uint16_t ports[] = {ntohs(address.sin_port), 0};
        if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
            ports[1] = ntohs(address.sin_port);
        if (port == 0 || ports[0] == port || ports[1] == port) cut += shutdown(fd, SHUT_RDWR) == 0;
    }
    return cut;
}

}  // namespace

TEST_CASE("paxos node: three replicas decide, lose their leader, go on, and get it back") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(1000, 1000));
    REQUIRE(cluster.same_everywhere());

    const uint32_t old = cluster.leader();
    cluster.stop(old);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.leader() != old);
    REQUIRE(cluster.pump(1000, 2000));
    REQUIRE(cluster.same_everywhere());

    cluster.start(old);
    REQUIRE(cluster.run_until([&] { return cluster.values(old) == 2000; }));
    REQUIRE(cluster.same_everywhere());
    REQUIRE(cluster.pump(10, 2010));
}

// Its connections end with it, and nobody listens where it did.
TEST_CASE("paxos node: nobody waits out the election timeout for a leader whose process has ended") {
    NodeCluster cluster(3, [](NodeConfig& config) { config.election_timeout_ms = 5'000; });
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t old = cluster.leader();
    const uint64_t view = cluster[old].node->view();
    cluster.stop(old);
    const auto ended = Clock::now();
    REQUIRE(cluster.await_leader());
    REQUIRE(Clock::now() - ended < std::chrono::milliseconds(cluster.config(old).election_timeout_ms));
    REQUIRE(view_counter(cluster[cluster.leader()].node->view()) == view_counter(view) + 1);
    REQUIRE(cluster.pump(10, 20));
    REQUIRE(cluster.same_everywhere());
}

// It can be dialled again at once, so its end is not what ended the connections.
TEST_CASE("paxos node: a leader whose connections are cut stays the leader") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t leader = cluster.leader();
    const uint64_t view = cluster[leader].node->view();
    for (int round = 0; round < 5; ++round) {
        // First the ways to the leader alone, then one in each direction between any two; each has two ends.
        const uint16_t port = round < 3 ? cluster.config(leader).members[leader - 1].port : 0;
        REQUIRE(cut_connections(port) >= (port != 0 ? 4 : 12));
        cluster.run_for(10);  // nothing is proposed: the leader is silent, as far as it may be
        REQUIRE(cluster.run_until([&] {
            for (const auto& [id, member] : cluster.members())
                for (const PeerStatus& peer : member.node->peers())
                    if (!peer.connected) return false;
            return true;
        }));
        REQUIRE(cluster.pump(10, 20 + 10 * round));
    }
    for (const auto& [id, member] : cluster.members()) {
        REQUIRE(member.node->view() == view);
        REQUIRE(member.node->leader() == leader);
    }
}

TEST_CASE("paxos node: a single replica decides alone and finds it all again") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(300, 300));
    cluster.stop(1);
    cluster.start(1);
    REQUIRE(cluster.run_until([&] { return cluster.values(1) == 300; }));
    REQUIRE(cluster.pump(5, 305));
}

TEST_CASE("paxos node: the whole cluster stops and starts again") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(500, 500));
    for (uint32_t id : {1, 2, 3}) cluster.stop(id);
    for (uint32_t id : {1, 2, 3}) cluster.start(id);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(1, 501));
    REQUIRE(cluster.same_everywhere());
}

TEST_CASE("paxos node: a clean shutdown hands leadership over without an election timeout") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t old = cluster.leader();
    bool done = false;
    for (auto& [id, member] : cluster.members()) member.roles.clear();
    cluster[old].node->shutdown([&] { done = true; });
    REQUIRE_FALSE(cluster[old].node->propose("too late"));
    REQUIRE(cluster.run_until([&] { return done && cluster.leader() != 0; }));
    for (const auto& [id, member] : cluster.members())  // ordered, not found out by a timeout
        for (Role role : member.roles) REQUIRE(role != Role::kPreCandidate);
    cluster.stop(old);
    REQUIRE(cluster.pump(10, 20));
}

TEST_CASE("paxos node: leadership is transferred on request") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t next = cluster.leader() % 3 + 1;
    cluster[cluster.leader()].node->transfer_leadership(next);
    REQUIRE(cluster.run_until([&] { return cluster.leader() == next; }));
    REQUIRE(cluster[next].roles.back() == Role::kLeader);
    REQUIRE(cluster.pump(10, 20));
}

TEST_CASE("paxos node: application messages keep their order, and are bounded") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.run_until([&] {
        for (const PeerStatus& peer : cluster[1].node->peers())
            if (!peer.connected) return false;
        return true;
    }));
    for (int i = 0; i < 100; ++i) REQUIRE(cluster[1].node->send_app_message(2, std::to_string(i)));
    REQUIRE(cluster[1].node->send_app_message(2, std::string(5u << 20, 'x')));
    REQUIRE(cluster.run_until([&] { return cluster[2].app.size() == 101; }));
    for (int i = 0; i < 100; ++i) {
        REQUIRE(cluster[2].app[i].first == 1);
        REQUIRE(cluster[2].app[i].second == std::to_string(i));
    }
    REQUIRE(cluster[2].app[100].second.size() == 5u << 20);
    REQUIRE_FALSE(cluster[1].node->send_app_message(2, std::string(kMaxAppMessageBytes + 1, 'x')));
    REQUIRE_FALSE(cluster[1].node->send_app_message(9, "nobody"));
    unsigned accepted = 0;
    while (accepted < 100 && cluster[1].node->send_app_message(3, std::string(1u << 20, 'x'))) ++accepted;
    REQUIRE(accepted < 100);
    REQUIRE(cluster.run_until([&] { return cluster[3].app.size() == accepted; }));
    cluster.stop(3);
    REQUIRE(cluster.run_until([&] { return !cluster[1].node->send_app_message(3, "gone"); }));
}

TEST_CASE("paxos node: reports reach the leader, and the pipeline says when it has room") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    Running& leader = cluster[cluster.leader()];
    unsigned proposed = 0;
    while (leader.node->propose("x")) ++proposed;
    REQUIRE(proposed <= 1024);
    REQUIRE(proposed > 1000);
    REQUIRE(cluster.run_until([&] { return leader.writable == 1; }));
    REQUIRE(leader.node->can_propose());
    REQUIRE_FALSE(leader.reports.empty());
    for (const auto& [from, report] : leader.reports) REQUIRE(report == "report of " + std::to_string(from));
}

TEST_CASE("paxos node: delivery can be held back") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    const uint32_t held = cluster.leader() % 3 + 1;
    REQUIRE(cluster.pump(10, 10));
    cluster[held].node->pause_delivery(true);
    const size_t before = cluster[held].decided.size();
    Running& leader = cluster[cluster.leader()];
    for (int i = 0; i < 100; ++i) REQUIRE(leader.node->propose("y"));
    REQUIRE(cluster.run_until([&] { return cluster[held].node->decided_index() >= before + 100; }));
    REQUIRE(cluster[held].decided.size() == before);
    cluster[held].node->pause_delivery(false);
    REQUIRE(cluster.run_until([&] { return cluster[held].decided.size() >= before + 100; }));
}

TEST_CASE("paxos node: the log is cut on disk") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(3000, 3000));
    cluster[1].node->hold_checkpoint(2900);
    REQUIRE(cluster.run_until([&] { return cluster[1].node->first_log_index() == 2901; }));
    REQUIRE(cluster.pump(5, 3005));
    cluster.stop(1);
    REQUIRE_THROWS_WITH(cluster.start(1), Catch::Contains("has been cut"));
}

TEST_CASE("paxos node: a replica that lost its database rejoins from a checkpoint") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(500, 500));
    const uint32_t lost = cluster.leader() % 3 + 1;
    const Entry last_in_checkpoint = cluster[lost].decided.at(399);
    cluster.stop(lost);
    std::filesystem::remove_all(cluster.config(lost).db_dir);
    for (auto& [id, member] : cluster.members())
        if (member.node != nullptr) member.node->hold_checkpoint(300);
    cluster.start(lost, last_in_checkpoint.position());
    REQUIRE(cluster[lost].node->rejoining());
    const auto has_the_rest = [&](size_t proposed) {
        const uint32_t leader = cluster.leader();
        return cluster.values(leader) == proposed &&
               cluster[lost].decided.size() + 400 == cluster[leader].decided.size();
    };
    REQUIRE(cluster.run_until(
        [&] { return cluster.leader() != 0 && has_the_rest(500) && !cluster[lost].node->rejoining(); }));
    REQUIRE(cluster[lost].decided.front().index == 401);
    REQUIRE(cluster[cluster.leader()].node->propose("more"));
    REQUIRE(cluster.run_until([&] { return cluster.leader() != 0 && has_the_rest(501); }));
}

TEST_CASE("paxos node: bad configurations are refused with a reason") {
    NodeCluster cluster(1);
    NodeConfig config = cluster.config(1);
    config.db_dir += "-other";
    SECTION("address in use") {
        REQUIRE_THROWS_WITH(Node(cluster.base(), config, {}), Catch::Contains("already running"));
    }
    SECTION("not a member") {
        config.self = 4;
        REQUIRE_THROWS_WITH(Node(cluster.base(), config, {}), Catch::Contains("not among the members"));
    }
    SECTION("timeouts") {
        config.election_timeout_ms = config.heartbeat_ms;
        REQUIRE_THROWS_WITH(Node(cluster.base(), config, {}), Catch::Contains("election_timeout_ms"));
    }
}

TEST_CASE("paxos node: an idle cluster costs next to nothing") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    cluster.run_for(100);
    const NodeStats before = cluster[cluster.leader()].node->stats();
    cluster.run_for(400);
    const NodeStats after = cluster[cluster.leader()].node->stats();
    REQUIRE(after.syncs == before.syncs);
    REQUIRE(after.messages_sent - before.messages_sent <= 2 * 400 / 20 + 4);  // heartbeats alone
}
