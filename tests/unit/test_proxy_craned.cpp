// Whole craneds over loopback: clients are served by one alone and by three, through restarts and hand-overs.
#include "test_proxy_craned.hpp"

using namespace crane::proxy;
using namespace crane::proxy::testing;

TEST_CASE("craned alone, without a log: clients are served", "[craned]") {
    Cluster cluster(1, {.mode = "dmt"});
    Client client(cluster.port(1));
    CHECK(client.echoes("hello\n"));
    CHECK(client.echoes("again"));
    Client busy(cluster.port(1));
    busy.say("work 100000\n");  // far beyond one grant: bubbles must come
    CHECK(busy.hear(5) == "done\n");
    CHECK(cluster.status(1)["counters"]["bubbles"].get<uint64_t>() > 0);
}

TEST_CASE("craned alone: a restart replays the log to the same output", "[craned]") {
    Cluster cluster(1);
    {
        Client client(cluster.port(1));
        CHECK(client.echoes("hello\n"));
        Client blast(cluster.port(1));
        blast.say("blast 10000000\n");
        CHECK(blast.hear(10'000'001) == pattern(10'000'000));  // past the send window, then the end
    }
    REQUIRE(wait_until([&] { return cluster.status(1).value("open_connections", 9) == 0; }));
    const json before = cluster.status(1);
    cluster.kill_craned(1);
    cluster.start(1);
    REQUIRE(wait_until([&] {
        const json now = cluster.status(1);
        return now.value("admitted", 0) == before["admitted"] && now.value("lag", 1) == 0;
    }));
    CHECK(cluster.status(1)["output_hash"] == before["output_hash"]);
    const auto again = compare_logs({cluster.dir(1) + "/output.log.previous", cluster.dir(1)});
    CHECK(again.verdict != CompareResult::Verdict::kDifferent);
    CHECK(again.records > 0);
    CHECK(Client(cluster.port(1)).echoes("back\n"));
}

TEST_CASE("three craneds: every address serves, and all say the same", "[craned]") {
    Cluster cluster(3);
    for (int i : {1, 2, 3}) {
        Client client(cluster.port(i));
        CHECK(client.echoes("via " + std::to_string(i) + "\n"));
        Client blast(cluster.port(i));
        blast.say("blast 6000000\n");
        CHECK(blast.hear(6'000'001).size() == 6'000'000);
    }
    CHECK(cluster.settles());
    const CompareResult result = cluster.compare();
    CHECK(result.verdict == CompareResult::Verdict::kIdentical);
    CHECK(result.bytes >= 18'000'000);
    CHECK(result.schedule_difference.empty());
    const json divergence = cluster.status(cluster.primary())["divergence"];
    CHECK(divergence["diverged"].empty());
    CHECK(divergence["compared"].get<uint64_t>() > 0);
}

TEST_CASE("three craneds: the primary is killed, its clients are reset, those of others go on", "[craned]") {
    Cluster cluster(3);
    const int old = cluster.primary();
    const int other = old % 3 + 1;
    Client lost(cluster.port(old));
    REQUIRE(lost.echoes("before\n"));
    Client stays(cluster.port(other));
    REQUIRE(stays.echoes("before\n"));
    cluster.kill_craned(old);
    CHECK(Client(cluster.port(other)).echoes("waits for a primary\n"));
    CHECK(lost.hear(1).empty());
    CHECK(stays.echoes("after\n"));
    const int now = cluster.primary(old);
    REQUIRE(wait_until([&] { return cluster.status(now).value("open_connections", 9) == 1; }));
    CHECK(stays.echoes("and later\n"));
    stays.end();
    REQUIRE(wait_until([&] { return cluster.status(now).value("open_connections", 9) == 0; }));
    cluster.start(old);
    REQUIRE(wait_until([&] { return cluster.status(old).value("server", "") == "listening"; }));
    CHECK(Client(cluster.port(old)).echoes("through the returned one\n"));
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: a domain is killed and comes back by replay", "[craned]") {
    Cluster cluster(3);
    const int first = cluster.primary();
    const int backup = first % 3 + 1;
    Client client(cluster.port(first));
    REQUIRE(client.echoes("unaffected\n"));
    const auto lose_domain = [&](int replica) {
        kill(cluster.status(replica)["server_pid"].get<pid_t>(), SIGKILL);
        REQUIRE(wait_until([&] {
            const json now = cluster.status(replica);
            return now.contains("counters") && now["counters"]["domain_restarts"] == 1 &&
                   now["server"] == "listening" && now["lag"] == 0;
        }));
    };
    lose_domain(backup);
    CHECK(client.echoes("still here"));
    lose_domain(first);
    CHECK(Client(cluster.port(first)).echoes("served again\n"));
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: a planned hand-over resets nobody", "[craned]") {
    Cluster cluster(3);
    std::vector<std::unique_ptr<Client>> clients;
    for (int i : {1, 2, 3}) {
        clients.push_back(std::make_unique<Client>(cluster.port(i)));
        REQUIRE(clients.back()->echoes("before\n"));
    }
    for (int round = 0; round < 4; ++round) {
        const int old = cluster.primary();
        // Said and not yet answered when leadership moves.
        for (auto& client : clients) client->say(std::string(20'000, static_cast<char>('a' + round)));
        REQUIRE(ask_craned(cluster.dir(old), {{"cmd", "transfer"}, {"to", old % 3 + 1}}).contains("ok"));
        for (auto& client : clients)
            CHECK(client->hear(20'000) == std::string(20'000, static_cast<char>('a' + round)));
        REQUIRE(cluster.primary(old) == old % 3 + 1);
    }
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: leadership is handed over, and the server's own end is the cluster's", "[craned]") {
    Cluster cluster(3, {.restart = "no"});
    const int old = cluster.primary();
    const int next = old % 3 + 1;
    CHECK(ask_craned(cluster.dir(next), {{"cmd", "transfer"}, {"to", old}})["forwarded"] == old);
    CHECK(ask_craned(cluster.dir(old), {{"cmd", "transfer"}, {"to", next}}).contains("ok"));
    CHECK(cluster.primary(old) == next);
    CHECK(ask_craned(cluster.dir(next), {{"cmd", "dance"}}).contains("error"));
    Client client(cluster.port(next));
    client.say("quit 3\n");
    CHECK(wait_until([&] {
        for (int i : {1, 2, 3}) {
            const json now = cluster.status(i);
            if (now.value("server", "") != "exited" ||
                now.value("message", "").find("status 3") == std::string::npos) {
                return false;
            }
        }
        return true;
    }));
    CHECK(client.hear(1).empty());
    // The operator may want another one.
    CHECK(ask_craned(cluster.dir(cluster.primary()), {{"cmd", "restart"}}).contains("ok"));
    CHECK(cluster.serves_again(2));
}

TEST_CASE("three craneds: a server that ends is followed by another one, at every replay, too", "[craned]") {
    Cluster cluster(3);
    for (uint64_t generation : {2, 3}) {
        Client other(cluster.port(1));
        CHECK(other.echoes("echo\n"));
        Client client(cluster.port(cluster.primary() % 3 + 1));
        client.say("quit " + std::to_string(generation) + "\n");
        CHECK(client.hear(1).empty());
        CHECK(other.hear(1).empty());
        CHECK(cluster.serves_again(generation));
    }
    const int lost = cluster.primary();
    cluster.kill_craned(lost);
    cluster.start(lost);
    CHECK(cluster.serves_again(3));
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("one craned: its server is followed by another one", "[craned]") {
    Cluster cluster(1);
    Client client(cluster.port(1));
    client.say("quit 0\n");
    CHECK(client.hear(1).empty());
    CHECK(cluster.serves_again(2));
    CHECK(Client(cluster.port(1)).echoes("echo\n"));
}
