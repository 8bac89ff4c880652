// crane top: what is in a frame.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "proxy/tool/top_frame.hpp"

using namespace crane::proxy;
using nlohmann::json;

namespace {

json histogram(std::vector<unsigned> counts) {
    return {{"count", 0},
            {"sum_us", 0},
            {"buckets", {{1000, counts[0]}, {5000, counts[1]}, {nullptr, counts[2]}}}};
}

json row(uint32_t replica, const char* role, uint64_t decided, std::vector<unsigned> counts) {
    json members = json::array();
    json peers = json::array();
    for (uint32_t n = 1; n <= 3; ++n) {
        members.push_back(
            {{"replica", n}, {"voter", true}, {"address", "host" + std::to_string(n) + ":7400"}});
        if (n != replica) peers.push_back({{"replica", n}, {"connected", true}});
    }
    return {{"alive", true},
            {"asked_s", 1'000'100},
            {"replica", replica},
            {"cluster", "ab12"},
            {"role", role},
            {"leader", 1},
            {"leader_since_s", 1'000'000 - 3600 * replica},
            {"view", 4},
            {"pid", 100 + replica},
            {"server", "listening"},
            {"decided", decided},
            {"lag", 0},
            {"connections", 12'345},
            {"listen", json::array()},
            {"alarms", json::array()},
            {"alarm_names", json::array()},
            {"membership", {{"members", members}}},
            {"peers", peers},
            {"checkpoint", {{"since_s", 1'000'000}}},
            {"latency", {{"consensus", histogram(std::move(counts))}}}};
}

std::string text_of(const std::vector<TopLine>& frame) {
    std::string out;
    for (const TopLine& line : frame) out += line.text + "\n";
    return out;
}

}  // namespace

TEST_CASE("top: a frame has all replicas, their rates and latencies since the one before", "[top]") {
    const json before = {row(1, "primary", 1000, {10, 0, 0}), row(2, "backup", 1000, {0, 0, 0})};
    json now = {row(1, "primary", 1500, {110, 100, 0}), row(2, "backup", 1500, {0, 0, 0})};
    const std::string shown = text_of(top_frame({before, 1'000'000'000}, {now, 3'000'000'000}, 132, 100));
    CAPTURE(shown);
    CHECK(shown.find("cluster ab12, primary: replica 1 for 61 min, all is well") == 0);
    CHECK(shown.find("250") != std::string::npos);        // entries a second
    CHECK(shown.find("1.0 / 5.0") != std::string::npos);  // half were decided in 1 ms, all in 5
    CHECK(shown.find("12.3k") != std::string::npos);      // clients
    CHECK(shown.find("100s") != std::string::npos);       // the checkpoint's age
    CHECK(shown.find("- / -") != std::string::npos);      // nothing was decided by the backup
    now[0]["pid"] = 7;  // another life: its counters began anew, and no rate is told
    const std::string anew = text_of(top_frame({before, 1'000'000'000}, {now, 3'000'000'000}, 132, 100));
    CHECK(anew.find("1.0 / 5.0") == std::string::npos);
}

TEST_CASE("top: a replica that is down and every alarm are shown, what has no room is counted", "[top]") {
    const json rows = {row(1, "primary", 5, {0, 0, 0}),
                       {{"replica", 2}, {"alive", false}, {"role", "down"}, {"error", "not\x1b[2J running"}}};
    json now = rows;
    now[0]["peers"][0]["connected"] = false;
    now[0]["alarm_names"] = {"disk-full"};
    now[0]["alarms"] = {"DISK FULL: 3 MiB are left"};
    const auto frame = top_frame({rows, 1}, {now, 2}, 132, 100);
    const std::string shown = text_of(frame);
    CAPTURE(shown);
    CHECK(shown.find("SOMETHING IS WRONG") != std::string::npos);
    CHECK(shown.find("replica 2 is down: not?[2J running") != std::string::npos);
    CHECK(shown.find("replica 1: DISK FULL: 3 MiB are left") != std::string::npos);
    CHECK(shown.find("not connected here: replica 2") != std::string::npos);
    for (const size_t height : {1u, 2u, 5u}) {
        const auto small = top_frame({rows, 1}, {now, 2}, 20, height);
        CHECK(small.size() == height);
        CHECK(small.back().text.find(std::to_string(frame.size() - height + 1) + " more l") !=
              std::string::npos);
        for (const TopLine& line : small) CHECK(line.text.size() <= 20 + 2);  // of bytes: … has three
    }
    CHECK(top_frame({rows, 1}, {now, 2}, 1, 1).size() == 1);
}

TEST_CASE("top: quantiles are of what came between two frames", "[top]") {
    CHECK(quantile_ms(histogram({5, 5, 5}), histogram({5, 5, 5}), 0.5) == "-");
    CHECK(quantile_ms(json(), json(), 0.5) == "-");
    CHECK(quantile_ms(json(), histogram({5, 0, 0}), 0.99) == "1.0");
    CHECK(quantile_ms(histogram({100, 0, 0}), histogram({101, 9, 0}), 0.5) == "5.0");
    CHECK(quantile_ms(json(), histogram({0, 0, 4}), 0.5) == ">5");
}
