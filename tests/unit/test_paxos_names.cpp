// Replicas that know each other by names.
#include "test_paxos_name_server.hpp"
#include "test_paxos_node.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

TEST_CASE("paxos names: replicas that are known by name find each other") {
    NodeCluster cluster(3, [](NodeConfig& config) {
        for (PeerAddress& member : config.members) member.host = "localhost";
    });
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(100, 100));
}

TEST_CASE(
    "paxos names: of several addresses the one that answers is used, and a replica listens on all of its "
    "own") {
    name_server().several_addresses = true;
    {
        NodeCluster cluster(0);
        NodeConfig config = cluster.config(1);
        for (uint32_t id = 1; id <= 3; ++id) config.members.push_back({id, "localhost", free_port()});
        for (uint32_t id = 1; id <= 3; ++id) {
            NodeConfig own = cluster.config(id);
            own.members = config.members;
            if (id == 1) own.members[0].host = "127.0.0.1";  // the second
            if (id == 2) own.members[1].host = "127.0.0.2";
            cluster.start(own);
        }
        REQUIRE(cluster.await_leader());
        REQUIRE(cluster.run_until([&] { return cluster.linked({1, 2, 3}); }));
        for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
            const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            sockaddr_in to{};
            to.sin_family = AF_INET;
            to.sin_port = htons(config.members[2].port);
            REQUIRE(inet_pton(AF_INET, address, &to.sin_addr) == 1);
            REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
            close(fd);
        }
    }
    name_server().several_addresses = false;
}
