// Whole craneds over loopback: replicas that differ, operators, full disks, descriptors that run out.
#include "proxy/craned.hpp"
#include "test_proxy_craned.hpp"
#include "timebubble/limits.hpp"

using namespace crane::proxy;
using namespace crane::proxy::testing;

constexpr size_t kTooMuch = crane::timebubble::kLargestWindowBytes + 1;

TEST_CASE("three craneds: divergence is found while running", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    Client odd(cluster.port(primary));
    odd.say("differ\n");
    REQUIRE(odd.hear(4) == "pid ");
    CHECK(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(primary)["divergence"]["diverged"].empty();
    }));
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kDifferent);
}

TEST_CASE("three craneds: a replica that differs serves nobody and does not lead", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    const int odd = primary % 3 + 1;
    const int good = odd % 3 + 1;
    Client through(cluster.port(odd));
    REQUIRE(through.echoes("as long as it is right\n"));
    Client maker(cluster.port(good));
    maker.say("odd " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "ok!\n");
    REQUIRE(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(odd).value("fenced", "").empty();
    }));
    CHECK(through.hear(1).empty());
    CHECK_FALSE(Client(cluster.port(odd)).echoes("nobody is served here\n"));
    CHECK(tool_status(cluster.base(), true) == kExitNo);
    CHECK(tool_health(cluster.base(), {static_cast<uint32_t>(odd), false}, false) == kExitNo);
    CHECK(tool_health(cluster.base(), {static_cast<uint32_t>(good), false}, false) == kExitOk);
    // It is asked to lead, and does not; the third one does when the primary dies.
    ask_craned(cluster.dir(primary), {{"cmd", "transfer"}, {"to", odd}});
    cluster.kill_craned(primary);
    // Barred, it may lead for a moment: where it alone has what was decided last, until it has given that
    // away.
    CHECK(wait_until([&] { return cluster.primary(primary) == good; }));
    CHECK(Client(cluster.port(good)).echoes("served by the right one\n"));
    // Its server is made anew from the log and differs again: it is left as it is, and says so.
    cluster.start(primary);
    CHECK(wait_until([&] {
        Client(cluster.port(good)).echoes("more\n");
        return cluster.status(odd).value("fenced", "").find("twice") != std::string::npos;
    }));
    CHECK(cluster.status(odd)["counters"]["repairs"] == 2);
    CHECK_FALSE(Client(cluster.port(odd)).echoes("nobody is served here\n"));
    cluster.kill_craned(odd);
    cluster.start(odd);
    CHECK(wait_until([&] { return !cluster.status(odd).value("fenced", "").empty(); }));
}

TEST_CASE("three craneds: a replica that differed once is made anew by itself and serves again", "[craned]") {
    Cluster cluster(3);
    const int odd = cluster.primary() % 3 + 1;
    const int good = odd % 3 + 1;
    Client through(cluster.port(odd));
    REQUIRE(through.echoes("as long as it is right\n"));
    Client maker(cluster.port(good));
    maker.say("once " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "ok!\n");
    REQUIRE(wait_until([&] {
        Client(cluster.port(good)).echoes("more\n");
        return cluster.status(odd).value(json::json_pointer("/counters/repairs"), 0) == 1;
    }));
    CHECK(through.hear(1).empty());
    CHECK(wait_until([&] { return Client(cluster.port(odd)).echoes("served again\n"); }));
    CHECK(cluster.status(odd)["fenced"] == "");
    CHECK(wait_until([&] {
        Client(cluster.port(good)).echoes("more\n");
        return cluster.status(cluster.primary())["divergence"]["diverged"].empty();
    }));
    CHECK(tool_status(cluster.base(), true) == kExitOk);
    CHECK(wait_until([&] { return cluster.compare().verdict == CompareResult::Verdict::kIdentical; }));
    CHECK(cluster.status(odd)["counters"]["repairs"] == 1);
    // It may lead, and when it does what it differed in is forgotten.
    CHECK(tool_transfer(cluster.dir(good), static_cast<uint32_t>(odd), true) == kExitOk);
    CHECK(wait_until([&] { return Client(cluster.port(good)).echoes("and led by it\n"); }));
}

TEST_CASE("three craneds: a server that sends what no server can is ended, there alone", "[craned]") {
    Cluster cluster(3);
    const int odd = cluster.primary() % 3 + 1;
    const int good = odd % 3 + 1;
    Client maker(cluster.port(odd));
    maker.say("overrun " + std::to_string(odd) + "\n");
    CHECK(wait_until(
        [&] { return cluster.status(odd).value(json::json_pointer("/counters/domain_restarts"), 0) == 1; }));
    CHECK(maker.hear(kTooMuch).size() < kTooMuch);
    CHECK(Client(cluster.port(good)).echoes("others are served\n"));
    CHECK(wait_until([&] { return Client(cluster.port(odd)).echoes("and it is, again\n"); }));
    std::ifstream log(cluster.dir(odd) + "/craned.log");
    CHECK(std::string(std::istreambuf_iterator<char>(log), {}).find("window allows") != std::string::npos);
}

TEST_CASE("three craneds: without repair a replica that differs is left to be looked at", "[craned]") {
    Cluster cluster(3, {.repair = false});
    const int odd = cluster.primary() % 3 + 1;
    Client maker(cluster.port(odd % 3 + 1));
    maker.say("once " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "ok!\n");
    REQUIRE(wait_until([&] {
        Client(cluster.port(odd % 3 + 1)).echoes("more\n");
        return cluster.status(odd).value("fenced", "").find("repair") != std::string::npos;
    }));
    CHECK(cluster.status(odd)["counters"]["repairs"] == 0);
    cluster.kill_craned(odd);
    cluster.start(odd);
    CHECK(wait_until([&] { return Client(cluster.port(odd)).echoes("made anew by hand\n"); }));
}

TEST_CASE("three craneds: a server that goes on where the others' have ended is the odd one, also as primary",
          "[craned]") {
    for (const int from_primary : {0, 1}) {
        Cluster cluster(3, {.restart = "no", .repair = false});
        const int odd = (cluster.primary() - 1 + from_primary) % 3 + 1;
        Client client(cluster.port(odd % 3 + 1));
        client.say("stay " + std::to_string(odd) + "\n");
        const auto as_told = [&](int i) {
            const json now = cluster.status(i);
            const bool ended = now.value("server", "") == "exited";
            const std::string fenced = now.value("fenced", "?");
            return i == odd ? !ended && fenced.find("where the others' has ended") != std::string::npos
                            : ended && fenced.empty();
        };
        CHECK(wait_until([&] { return as_told(1) && as_told(2) && as_told(3); }));
        CHECK(cluster.primary(odd) != odd);
        // Nobody who is right was made anew.
        for (int i : {1, 2, 3})
            if (i != odd) CHECK(cluster.status(i)["counters"]["domain_restarts"] == 0);
    }
}

TEST_CASE("three craneds: an odd primary steps down", "[craned]") {
    Cluster cluster(3);
    const int odd = cluster.primary();
    Client maker(cluster.port(odd));
    maker.say("odd " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "odd\n");
    const int other = odd % 3 + 1;
    REQUIRE(wait_until([&] {
        Client(cluster.port(other)).echoes("more\n");
        return !cluster.status(odd).value("fenced", "").empty();
    }));
    CHECK(cluster.primary(odd) != odd);
    CHECK(Client(cluster.port(other)).echoes("served\n"));
}

namespace {

std::string why_no_base(Cluster& cluster, int asked, int replica) {
    return ask_craned(cluster.dir(asked), {{"cmd", "base"}, {"from", replica}}).value("error", "");
}

}  // namespace

TEST_CASE("three craneds: nobody's state is preferred where nobody differs", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    CHECK(why_no_base(cluster, primary, 9) == "there is no replica 9 that votes");
    constexpr uint64_t kOne = (1ULL << 32) + 1;  // of which 32 bits are replica 1, or SIGHUP
    for (const auto& [command, key] :
         std::map<std::string, std::string>{{"base", "from"}, {"transfer", "to"}, {"signal", "signal"}}) {
        const json answer = ask_craned(cluster.dir(primary), {{"cmd", command}, {key, kOne}});
        CHECK(answer.value("error", "").find("needs \"" + key + "\": a number up to") != std::string::npos);
    }
    CHECK(why_no_base(cluster, primary, 2).find("nothing to decide") != std::string::npos);
    CHECK(tool_base(cluster.dir(primary % 3 + 1), 2, true) == kExitNo);
    CHECK(cluster.status(primary)["base"]["index"] == 0);
}

TEST_CASE("three craneds: of two that differ nobody is fenced before the third one can tell", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    const int odd = primary % 3 + 1;
    const int third = odd % 3 + 1;
    cluster.kill_craned(third);
    Client maker(cluster.port(primary));
    maker.say("odd " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "ok!\n");
    REQUIRE(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(primary)["divergence"]["diverged"].empty();
    }));
    CHECK(cluster.status(primary)["divergence"]["diverged"][0]["replica"] == 0);
    CHECK(cluster.status(odd)["fenced"] == "");
    CHECK(cluster.status(primary)["fenced"] == "");
    CHECK(why_no_base(cluster, primary, third).find("not connected") != std::string::npos);
    CHECK(why_no_base(cluster, primary, odd).find("no image of a running server") != std::string::npos);
    cluster.start(third);
    CHECK(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(odd).value("fenced", "").empty();
    }));
    CHECK(wait_until([&] {  // between two repairs nothing is known
        Client(cluster.port(primary)).echoes("more\n");
        return why_no_base(cluster, primary, third).find("a majority agrees") != std::string::npos;
    }));
    CHECK(cluster.status(primary)["fenced"] == "");
    CHECK(cluster.status(third)["fenced"] == "");
}

TEST_CASE("three craneds: an operator on any host is heard, and told how the cluster is", "[craned]") {
    Cluster cluster(3);
    const int old = cluster.primary();
    const int next = old % 3 + 1;
    const int third = next % 3 + 1;
    REQUIRE(wait_until([&] { return tool_status(cluster.base(), true) == kExitOk; }));
    CHECK(tool_status(cluster.dir(third), true) == kExitOk);  // one replica of several hosts
    CHECK(tool_health(cluster.dir(third), {0, true}, false) == kExitNo);
    CHECK(tool_transfer(cluster.dir(third), static_cast<uint32_t>(next), true) == kExitOk);
    CHECK(cluster.primary(old) == next);
    REQUIRE(wait_until([&] { return tool_health(cluster.dir(next), {0, true}, false) == kExitOk; }));
    CHECK(find_contact(cluster.dir(third))->status["leader"] == next);
    // The primary removes itself by way of its successor.
    CHECK(tool_member(cluster.dir(next), {"remove", static_cast<uint32_t>(next), 0, ""}, true) == kExitOk);
    CHECK(wait_until([&] { return cluster.ended(next); }));
    CHECK(
        wait_until([&] { return tool_status(cluster.base(), true) == kExitOk; }));  // it is nobody's to miss
    cluster.kill_craned(third);
    CHECK(tool_status(cluster.base(), true) == kExitNo);
}

TEST_CASE("craned: logs that were moved away are begun anew on SIGHUP, and nobody is disturbed", "[craned]") {
    Cluster cluster(1);
    Client client(cluster.port(1));
    REQUIRE(client.echoes("before\n"));
    fs::rename(cluster.dir(1) + "/craned.log", cluster.dir(1) + "/craned.log.old");
    cluster.signal_craned(1, SIGHUP);
    CHECK(wait_until([&] {
        std::ifstream log(cluster.dir(1) + "/craned.log");
        return std::string(std::istreambuf_iterator<char>(log), {}).find("reopened") != std::string::npos;
    }));
    CHECK(client.echoes("after\n"));
}

TEST_CASE("craned: when descriptors run out, clients are refused, and the operator is heard", "[craned]") {
    Cluster cluster(1, {.descriptors = 1100});
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 900; ++i) clients.push_back(std::make_unique<Client>(cluster.port(1)));
    CHECK(clients[0]->echoes("served\n"));
    CHECK_FALSE(clients[880]->echoes("refused\n"));
    const json status = cluster.status(1);
    CHECK(status["max_clients"] == 844);
    REQUIRE(status["alarms"].size() == 1);
    CHECK(status["alarms"][0].get<std::string>().find("clients are refused") != std::string::npos);
    CHECK(tool_status(cluster.dir(1), true) == kExitNo);
    CHECK(fs::file_size(cluster.dir(1) + "/craned.log") < 10'000);
    std::ifstream log(cluster.dir(1) + "/craned.log");
    const std::string text(std::istreambuf_iterator<char>(log), {});
    // Named at the start, before anybody was refused.
    CHECK(text.find("leaves room for 844 clients: raise it (ulimit -n") < text.find("craned 0"));
    clients.clear();
    CHECK(wait_until([&] { return cluster.status(1)["alarms"].empty(); }));
    CHECK(wait_until([&] { return Client(cluster.port(1)).echoes("served again\n"); }));
}

TEST_CASE("three craneds: whose disk fills up leaves leading to others, and nobody dies of it", "[craned]") {
    if (geteuid() != 0) return;  // who is not root can make no small disk
    Cluster cluster(3, {.small_disks = true});
    const int old = cluster.primary();
    constexpr uint64_t kMiB = 1 << 20;
    const auto full = [&cluster](int replica) {
        return cluster.status(replica).value("message", "").find("DISK FULL") != std::string::npos;
    };
    cluster.fill_disk(old, 5 * kMiB);  // of 128: less than a twentieth
    CHECK(cluster.primary(old) != old);
    CHECK(wait_until([&] { return full(old); }));
    CHECK(wait_until([&] { return Client(cluster.port(old)).echoes("served by way of another's disk\n"); }));
    for (int i = 1; i <= 3; ++i)
        if (i != old) cluster.fill_disk(i, 2 * kMiB);
    REQUIRE(wait_until([&] {
        for (int i = 1; i <= 3; ++i)
            if (!full(i)) return false;
        return true;
    }));
    CHECK(wait_until([&] { return cluster.status(cluster.primary()).value("input_stopped", false); }));
    Client waits(cluster.port(old));
    waits.say("kept\n");
    for (int i = 1; i <= 3; ++i) {
        CHECK_FALSE(cluster.ended(i));
        cluster.free_disk(i);
    }
    CHECK(waits.hear(5) == "kept\n");
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

// It was ended by SIGSEGV instead: what else was to be done in that turn of the loop found no replica.
TEST_CASE("three craneds: clients of a backup that has no room for the log are served by the primary's copy",
          "[craned]") {
    if (geteuid() != 0) return;  // who is not root can make no small disk
    Cluster cluster(3, {.small_disks = true});
    const int full = cluster.primary() % 3 + 1;
    Client kept(cluster.port(full));
    CHECK(kept.echoes("while there is room\n"));
    cluster.fill_disk(full, 2 << 20);  // of 128: less than half of a twentieth
    REQUIRE(wait_until(
        [&] { return cluster.status(full).value("message", "").find("DISK FULL") != std::string::npos; }));
    CHECK(kept.echoes("there is none any more\n"));
    CHECK(Client(cluster.port(full)).echoes("nor for whom comes now\n"));
    cluster.free_disk(full);
    CHECK(cluster.settles());
    CHECK(kept.echoes("and there is again\n"));
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("craned: one that cannot make its server anew says why, and ends with status 1", "[craned]") {
    Cluster cluster(1);
    Client asks(cluster.port(1));
    REQUIRE(asks.echoes("served\n"));
    fs::rename(cluster.dir(1) + "/db", cluster.dir(1) + "/db.moved");
    std::ofstream(cluster.dir(1) + "/db") << "no database";
    Client maker(cluster.port(1));
    maker.say("overrun 1\n");
    int status = 0;
    CHECK(wait_until([&] { return cluster.ended(1, &status); }));
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 1));
    std::ifstream log(cluster.dir(1) + "/craned.log");
    const std::string text(std::istreambuf_iterator<char>(log), {});
    const size_t anew = text.find("making the server anew from the log");
    REQUIRE(anew != std::string::npos);
    CHECK(text.find(cluster.dir(1) + "/db", anew) != std::string::npos);
    CHECK(text.find("stopped", anew) != std::string::npos);
}

TEST_CASE("craned: a domain that is lost again and again is tried for ever, ever later") {
    CHECK(restart_pause_ns(0) == 0);
    uint64_t before_ns = 0;
    for (size_t restarts = 1; restarts < 200; ++restarts) {
        const uint64_t pause_ns = restart_pause_ns(restarts);
        CHECK(pause_ns >= std::max(before_ns, uint64_t{500'000'000}));
        CHECK((pause_ns > before_ns || pause_ns == restart_pause_ns(1'000'000)));
        before_ns = pause_ns;
    }
    CHECK(before_ns <= 600ULL * 1'000'000'000);
}
