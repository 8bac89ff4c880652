#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "proxy/pace.hpp"

using crane::proxy::Pace;

namespace {

constexpr uint64_t kMs = 1'000'000, kStepNs = 100 * kMs, kEntriesPerStep = 100;

/// A cluster under load that takes all of the primary's time, and others whose servers are of other speeds.
struct Cluster {
    Pace pace;
    std::map<uint32_t, double> speeds;  // of the primary's; 0: stands still
    std::map<uint32_t, double> admitted;
    double last = 100'000;
    uint64_t now_ns = 7'000'000 * kMs;
    uint32_t most_shut = 0;

    Cluster(const Pace::Settings& settings, std::map<uint32_t, double> given)
        : pace(settings), speeds(std::move(given)) {
        for (const auto& [replica, speed] : speeds) admitted[replica] = last;
    }

    void run(unsigned seconds) {
        for (unsigned step = 0; step < 10 * seconds; ++step) {
            last += kEntriesPerStep * (100.0 - pace.shut_percent()) / 100;
            for (auto& [replica, at] : admitted) {
                at = std::min(last, at + kEntriesPerStep * speeds[replica]);
                pace.heard(replica, static_cast<uint64_t>(at), now_ns);
            }
            pace.look(now_ns, static_cast<uint64_t>(last));
            most_shut = std::max(most_shut, pace.shut_percent());
            now_ns += kStepNs;
        }
    }

    double behind(uint32_t replica) { return last - admitted[replica]; }
};

}  // namespace

TEST_CASE("proxy pace: where all keep up the primary has all of its time") {
    Cluster cluster({2'000 * kMs, 50}, {{2, 1.0}, {3, 1.0}});
    cluster.run(60);
    CHECK(cluster.most_shut == 0);
    CHECK(cluster.pace.waits_for() == 0);
    CHECK(cluster.pace.open(cluster.now_ns));
}

TEST_CASE("proxy pace: slower servers are no further behind than is allowed, however long the load lasts") {
    Cluster cluster({2'000 * kMs, 50}, {{2, 0.7}, {3, 0.6}});
    cluster.run(600);
    const double second = 10 * kEntriesPerStep;
    CHECK(cluster.behind(2) < 4 * second);  // unlimited: 180
    CHECK(cluster.most_shut <= 50);
    cluster.speeds[2] = cluster.speeds[3] = 1.0;
    cluster.run(600);
    CHECK(cluster.pace.shut_percent() == 0);
}

TEST_CASE("proxy pace: what one has lost it has back, and costs little meanwhile") {
    Cluster cluster({2'000 * kMs, 50}, {{2, 1.0}, {3, 1.0}});
    cluster.admitted[3] = cluster.last - 30'000;
    cluster.run(1);
    CHECK(cluster.pace.waits_for() == 0);  // from before this one led: nobody knows how long that is
    cluster.run(5);
    CHECK(cluster.pace.waits_for() == 3);
    CHECK(cluster.pace.lags(3, cluster.now_ns));
    CHECK_FALSE(cluster.pace.lags(2, cluster.now_ns));
    cluster.run(400);
    CHECK(cluster.behind(3) <= 2'000);
    CHECK(cluster.pace.waits_for() == 0);
    CHECK(cluster.most_shut == Pace::kForTheRestPercent);
}

TEST_CASE(
    "proxy pace: one that is a minute behind is level within minutes, though it loses some seconds in each") {
    Cluster cluster({2'000 * kMs, 50}, {{2, 1.0}, {3, 1.0}});
    cluster.run(90);
    cluster.admitted[3] -= 60'000;
    unsigned seconds = 0;
    for (; cluster.behind(3) > 2'000 && seconds < 600; ++seconds) {
        cluster.run(1);
        if (seconds % 60 == 30) cluster.admitted[3] -= 6'000;  // a checkpoint of it
    }
    CHECK(seconds < 360);
    CHECK(cluster.most_shut == Pace::kForTheFarPercent);
    cluster.run(60);
    CHECK(cluster.pace.shut_percent() == 0);
}

TEST_CASE("proxy pace: nobody waits for a server that does not come on, nor for one that is gone") {
    Cluster cluster({2'000 * kMs, 50}, {{2, 1.0}, {3, 0.0}});
    cluster.run(4);
    CHECK(cluster.pace.waits_for() == 3);
    cluster.run(60);
    CHECK(cluster.pace.waits_for() == 0);
    CHECK(cluster.pace.shut_percent() == 0);
    cluster.speeds[3] = 0.5;
    cluster.run(5);
    CHECK(cluster.pace.waits_for() == 3);
    cluster.speeds.erase(3);
    cluster.admitted.erase(3);
    cluster.pace.gone(3);
    cluster.run(5);
    CHECK(cluster.pace.waits_for() == 0);
}

TEST_CASE("proxy pace: the time is shut in parts that are short, and as much of it as is said") {
    Cluster cluster({2'000 * kMs, 40}, {{2, 0.1}});
    cluster.run(60);
    REQUIRE(cluster.pace.shut_percent() == 40);
    uint64_t shut_ns = 0, longest_ns = 0;
    for (uint64_t now = cluster.now_ns; now < cluster.now_ns + 1000 * kMs; now += kMs / 10) {
        const uint64_t at = cluster.pace.open_at_ns(now);
        CHECK(at >= now);
        CHECK(cluster.pace.open(at));
        if (at != now) shut_ns += kMs / 10;
        longest_ns = std::max(longest_ns, at - now);
    }
    CHECK(shut_ns == 400 * kMs);
    CHECK(longest_ns < 20 * kMs);
}

TEST_CASE("proxy pace: it can be switched off, and begins anew with who leads") {
    Cluster off({0, 50}, {{2, 0.1}, {3, 0.1}});
    off.run(60);
    CHECK(off.most_shut == 0);
    Cluster cluster({2'000 * kMs, 50}, {{2, 0.1}, {3, 0.1}});
    cluster.run(60);
    REQUIRE(cluster.pace.shut_percent() == 50);
    cluster.pace.begin();
    CHECK(cluster.pace.shut_percent() == 0);
    CHECK(cluster.pace.waits_for() == 0);
}
