// What the operator's command makes of what replicas say: problems named, and none where there is none.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "proxy/metrics/conditions.hpp"
#include "proxy/tool/cluster_health.hpp"

using namespace crane::proxy;
using nlohmann::json;

namespace {

json members() {
    json out = json::array();
    for (int i : {1, 2, 3})
        out.push_back(
            {{"replica", i}, {"voter", true}, {"address", "10.0.0." + std::to_string(i) + ":7000"}});
    return out;
}

/// Replica `self` of three, all of which are connected, with replica 1 leading.
json row(uint32_t self) {
    json peers = json::array();
    for (uint32_t i : {1u, 2u, 3u})
        if (i != self) peers.push_back({{"replica", i}, {"voter", true}, {"connected", true}});
    return {
        {"replica", self},
        {"alive", true},
        {"role", self == 1 ? "primary" : "backup"},
        {"ready", self == 1},
        {"view", 4},
        {"leader", 1},
        {"server", "listening"},
        {"listen", json::array()},
        {"peers", peers},
        {"message", ""},
        {"membership", {{"members", members()}}},
        {"divergence", {{"diverged", json::array()}, {"schedule_differences", 0}, {"settings_differ", 0}}}};
}

json down(uint32_t self) {
    return {{"replica", self}, {"alive", false}, {"role", "down"}, {"error", "not running"}};
}

std::string text(const ClusterHealth& health) {
    std::string out;
    for (const std::string& one : health.problems) out += one + "\n";
    return out;
}

}  // namespace

TEST_CASE("cluster health: nothing is wrong with a whole cluster, and one host knows of all", "[proxy]") {
    CHECK(text(assess_cluster(json::array({row(1), row(2), row(3)}))).empty());
    const ClusterHealth remote = assess_cluster(json::array({row(3)}));
    CHECK(text(remote).empty());
    CHECK(remote.primary == 1);
    CHECK(remote.primary_address == "10.0.0.1:7000");
}

TEST_CASE("cluster health: a server that is far behind is told, and is no problem", "[proxy]") {
    json rows = json::array({row(1), row(2), row(3)});
    rows[1]["lag"] = 5000;
    CHECK(assess_cluster(rows).warnings.empty());
    rows[1]["lag"] = 17858;
    const ClusterHealth health = assess_cluster(rows);
    CHECK(text(health).empty());
    REQUIRE(health.warnings.size() == 1);
    CHECK(health.warnings[0].starts_with("replica 2 is 17858 log entries behind"));
}

TEST_CASE(
    "cluster health: since when the primary leads is its own word, or that of who knows the newest view",
    "[proxy]") {
    json rows = json::array({row(1), row(2), row(3)});
    CHECK(assess_cluster(rows).primary_since_s == 0);  // an older craned does not say
    rows[0]["leader_since_s"] = 100;
    rows[1]["leader_since_s"] = 160;
    CHECK(assess_cluster(rows).primary_since_s == 100);
    CHECK(assess_cluster(rows).primary_says_so);
    rows[0] = down(1);
    CHECK(assess_cluster(rows).primary_since_s == 160);
    CHECK(!assess_cluster(rows).primary_says_so);
    rows[2]["view"] = 5;
    rows[2]["leader"] = 2;
    rows[2]["leader_since_s"] = 200;
    CHECK(assess_cluster(rows).primary_since_s == 200);  // replica 2 has not learned it yet
}

TEST_CASE("cluster health: alarms that keep nobody from being served are warnings, each said once",
          "[proxy]") {
    json rows = json::array({row(1), row(2), down(3)});
    rows[0]["restarts_in_vain"] = "";
    CHECK(
        further_alarms(rows, 1'700'000'000).empty());  // that replica 3 is down is a problem, and said there
    rows[0]["certificate_ends_s"] = 1'700'000'000 + 86'400;
    rows[0]["confinement_lost"] = json::array({"the server does not get CAP_NET_RAW"});
    rows[1]["audit"] = {{"difference", "replica 2 differs"}};
    const std::vector<std::string> said = further_alarms(rows, 1'700'000'000);
    REQUIRE(said.size() == 3);
    CHECK(said[0] ==
          "replica 1: the server is not confined as it should be: the server does not get CAP_NET_RAW "
          "(alarm confinement-lost)");
    CHECK(said[1] == "replica 1: this replica's certificate expires in 1 days (alarm certificate)");
    CHECK(said[2] == "replica 2: crane audit: replica 2 differs (alarm audit-differs)");
    CHECK(text(assess_cluster(rows)) == "replica 3 is down: not running\n");
}

TEST_CASE("cluster health: missing replicas, no primary and no quorum are problems", "[proxy]") {
    CHECK(text(assess_cluster(json::array({down(1), down(2), down(3)}))) == "no replica runs\n");
    CHECK(text(assess_cluster(json::array({row(1), row(2), down(3)}))) == "replica 3 is down: not running\n");
    json cut = row(2);
    cut["peers"][1]["connected"] = false;
    CHECK(text(assess_cluster(json::array({cut}))) == "replica 3 is not connected to any replica here\n");
    cut["peers"][0]["connected"] = false;
    cut["leader"] = 0;
    const std::string alone = text(assess_cluster(json::array({cut})));
    CHECK(alone.find("no primary") != std::string::npos);
    CHECK(alone.find("no quorum: 1 of 3") != std::string::npos);
    json removed = row(1);
    removed["membership"]["members"].erase(2);
    CHECK(text(assess_cluster(json::array({removed, row(2), down(3)}))).find("replica 3 is down") !=
          std::string::npos);
    json other = row(2);
    other["membership"]["members"].erase(2);
    CHECK(text(assess_cluster(json::array({removed, other, down(3)}))).empty());  // only its folder is left
}

TEST_CASE("cluster health: a voter that lacks the log is a problem, and no quorum is made of it", "[proxy]") {
    json primary = row(1);
    primary["peers"][1]["needs_checkpoint"] = true;
    const std::string lacks =
        "replica 3 lacks what the others no longer have in their logs, and does not count before it has got "
        "a "
        "checkpoint from them: stop no other replica before\n";
    CHECK(text(assess_cluster(json::array({primary, row(2), row(3)}))) == lacks);
    // From another host, the primary is asked.
    ClusterHealth remote = assess_cluster(json::array({row(2)}));
    CHECK(text(remote).empty());
    add_word_of_primary(primary, remote);
    CHECK(text(remote) == lacks);
    // It alone is left beside the primary, and takes itself for one that can decide something.
    primary["peers"][0]["connected"] = false;
    json lacking = row(3);
    lacking["peers"][1]["connected"] = false;
    const std::string no_quorum =
        "no quorum: 1 of 3 voting replicas are connected, replica 3 not being counted before it has the log, "
        "and nothing can be decided";
    CHECK(text(assess_cluster(json::array({primary, down(2), lacking}))).find(no_quorum) !=
          std::string::npos);
    CHECK(why_unhealthy(primary) == no_quorum);
    CHECK(why_not_primary(primary) == no_quorum);
    primary["peers"][1]["needs_checkpoint"] = false;
    CHECK(why_not_primary(primary).empty());
    primary["peers"][1]["rejoining"] = true;
    CHECK(why_not_primary(primary) == no_quorum);
    // One without a vote is nobody's hope.
    primary = row(1);
    primary["membership"]["members"][2]["voter"] = primary["peers"][1]["voter"] = false;
    primary["peers"][1]["needs_checkpoint"] = true;
    CHECK(text(assess_cluster(json::array({primary}))).empty());
}

TEST_CASE("cluster health: who was removed is no replica of the cluster that is missing", "[proxy]") {
    const auto without_third = [](uint32_t self) {
        json one = row(self);
        one["membership"]["members"].erase(2);
        one["membership"]["highest_id"] = 3;
        return one;
    };
    CHECK(was_removed(json::array({without_third(1), without_third(2), down(3)}), down(3)));
    CHECK_FALSE(was_removed(json::array({without_third(1), without_third(2), down(2)}), down(2)));
    // As long as one does not know it, who runs, who is still to come, and where nobody knows anything.
    CHECK_FALSE(was_removed(json::array({without_third(1), row(2), down(3)}), down(3)));
    CHECK_FALSE(was_removed(json::array({without_third(1), row(3)}), row(3)));
    CHECK_FALSE(was_removed(json::array({without_third(1), down(4)}), down(4)));
    CHECK_FALSE(was_removed(json::array({down(1), down(3)}), down(3)));
}

TEST_CASE("cluster health: what differs, and what serves nobody, is named", "[proxy]") {
    json leader = row(1);
    leader["divergence"]["diverged"].push_back({{"replica", 3}, {"index", 77}, {"exact", true}});
    CHECK(text(assess_cluster(json::array({leader, row(2), row(3)})))
              .find("replica 3 differs from the majority at log index 77") != std::string::npos);
    leader = row(1);
    leader["divergence"]["diverged"].push_back({{"replica", 0}, {"index", 77}, {"exact", false}});
    CHECK(text(assess_cluster(json::array({leader, row(2), row(3)}))).find("nobody knows which is right") !=
          std::string::npos);
    leader = row(1);
    leader["divergence"]["schedule_differences"] = 3850;  // in all, since it was started
    CHECK(assess_cluster(json::array({leader, row(2), row(3)})).warnings.empty());
    leader["divergence"]["schedule_differs"] = {{{"replica", 3}, {"index", 77}}};
    const ClusterHealth apart = assess_cluster(json::array({leader, row(2), row(3)}));
    CHECK(text(apart).empty());
    REQUIRE(apart.warnings.size() == 1);
    CHECK(apart.warnings[0].find("the schedule of replica 3 differs from that of replica 1, seen at log "
                                 "index 77") == 0);
    json fenced = row(3);
    fenced["alarms"] = json::array({"FENCED: it differs"});
    CHECK(text(assess_cluster(json::array({row(1), row(2), fenced}))) == "replica 3: FENCED: it differs\n");
    json empty = row(2);
    empty["server"] = "exited";
    empty["message"] = "the server exited with status 3";
    CHECK(text(assess_cluster(json::array({row(1), empty, row(3)}))) ==
          "replica 2: its server is exited: the server exited with status 3\n");
}

TEST_CASE("health of a replica: clients are sent where they can be served", "[proxy]") {
    CHECK(why_unhealthy(row(1)).empty());
    CHECK(why_unhealthy(row(3)).empty());
    CHECK(why_unhealthy(down(3)) == "not running");
    json one = row(3);
    one["leader"] = 0;
    CHECK(why_unhealthy(one) == "there is no primary");
    one = row(3);
    one["peers"][0]["connected"] = false;
    CHECK(why_unhealthy(one) == "it is not connected to the primary, replica 1");
    one = row(3);
    one["listen"] = json::array({{{"client", "10.0.0.3:80"}, {"open", true}, {"error", "no descriptors"}}});
    CHECK(why_unhealthy(one) == "clients cannot be served at 10.0.0.3:80");
    CHECK(text(assess_cluster(json::array({row(1), row(2), one}))) ==
          "replica 3 cannot serve clients at 10.0.0.3:80: no descriptors\n");
    one = row(3);
    one["fenced"] = "it differs";
    CHECK(why_unhealthy(one) == "it differs");
    one = row(1);
    one["input_stopped"] = true;
    one["message"] = "DISK FULL";
    CHECK(why_unhealthy(one) == "input is stopped: DISK FULL");
}

TEST_CASE("cluster health: a witness that is left alone serves nobody", "[proxy]") {
    json left = row(1);
    left["witness"] = true;
    left["server"] = "witness";
    left["peers"] = json::array();
    left["membership"]["members"] = json::array({members()[0]});
    CHECK(text(assess_cluster(json::array({left}))).find("no member has a server") != std::string::npos);
    json beside = row(1);
    beside["witness"] = true;
    CHECK(text(assess_cluster(json::array({beside, row(2), row(3)}))).empty());
    CHECK(text(assess_cluster(json::array({beside}))).empty());  // what the others have is not known here
}
