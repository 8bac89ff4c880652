// The cluster's clock, with hosts' clocks that are wrong, step and drift, across elections and restarts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <vector>

#include "proxy/timekeeper.hpp"

using namespace crane::proxy;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;
constexpr uint64_t kHour = 3600 * kSecond;
constexpr uint64_t kNow = 1'700'000'000 * kSecond;  ///< real time when a world begins

/// Hosts with clocks, a timekeeper on each, and a log of timestamps. Messages take as long as they are told.
class World {
  public:
    struct Host {
        uint64_t boot_ns;       ///< its monotonic clock when the world began
        int64_t wrong_ns = 0;   ///< its real-time clock beyond real time
        int64_t drift_ppm = 0;  ///< of both its clocks
        std::unique_ptr<Timekeeper> keeper = {};
    };

    explicit World(size_t replicas, ClockLimits limits = {}) : limits_(limits) {
        for (uint32_t id = 1; id <= replicas; ++id) voters_.push_back(id);
        for (uint32_t id = 1; id <= replicas; ++id) {
            hosts.push_back({id * 1000 * kSecond});
            start(id);
        }
    }

    void start(uint32_t id) {
        auto& keeper = hosts[id - 1].keeper;
        keeper = std::make_unique<Timekeeper>(id, limits_);
        keeper->set_voters(voters_);
        for (const uint64_t stamp : log) keeper->decided(stamp, time(id));
        if (leader == id) leader = 0;
    }
    HostTime time(uint32_t id) const {
        const Host& host = hosts[id - 1];
        const auto drift =
            static_cast<uint64_t>(static_cast<int64_t>(passed_ns) / 1'000'000 * host.drift_ppm);
        return {host.boot_ns + passed_ns + drift,
                kNow + passed_ns + drift + static_cast<uint64_t>(host.wrong_ns)};
    }
    Timekeeper& keeper(uint32_t id) { return *hosts[id - 1].keeper; }
    Timekeeper& leading() { return keeper(leader); }
    uint64_t real() const { return kNow + passed_ns; }

    void elect(uint32_t id) {
        if (leader != 0) leading().stop_leading();
        leader = id;
        leading().lead();
    }
    /// What replica `from` says reaches the leader, as it was `late_ns` ago.
    void report(uint32_t from, uint64_t late_ns = 0) {
        passed_ns -= late_ns;
        const Reading reading = keeper(from).reading(time(from));
        passed_ns += late_ns;
        leading().heard(from, reading, time(leader));
    }
    void tell(uint32_t to, uint64_t late_ns = 0) {
        passed_ns -= late_ns;
        const LeaderTime said = leading().leader_time(time(leader));
        passed_ns += late_ns;
        keeper(to).follow(said, time(to));
    }
    void report_all() {
        for (const uint32_t id : voters_)
            if (id != leader) report(id);
    }
    void tell_all() {
        for (const uint32_t id : voters_)
            if (id != leader) tell(id);
    }
    bool begin() { return leading().begin(time(leader), log.empty()); }
    /// The leader takes a timestamp, as the batcher does, and it is decided.
    uint64_t stamp() {
        const uint64_t last = log.empty() ? 0 : log.back();
        log.push_back(std::max(last + 1, leading().now(time(leader))));
        for (const uint32_t id : voters_) keeper(id).decided(log.back(), time(id));
        return log.back();
    }
    /// Everybody hears of everybody, and a second passes, in steps like the daemon's.
    void second() {
        for (int quarter = 0; quarter < 4; ++quarter) {
            report_all();
            passed_ns += kSecond / 4;
            for (const uint32_t id : voters_) keeper(id).tick(time(id));
        }
        tell_all();
    }
    void lead_from_now(uint32_t id) {
        elect(id);
        report_all();
        REQUIRE(begin());
        tell_all();
    }

    std::vector<Host> hosts;
    std::vector<uint64_t> log;
    uint32_t leader = 0;
    uint64_t passed_ns = kSecond;

  private:
    ClockLimits limits_;
    std::vector<uint32_t> voters_;
};

int64_t apart(uint64_t a, uint64_t b) {
    return static_cast<int64_t>(a - b);
}

}  // namespace

TEST_CASE("proxy: the first timestamp is the majority's, whoever leads") {
    World world(3);
    world.hosts[0].wrong_ns = -static_cast<int64_t>(2 * kHour);
    world.elect(1);
    REQUIRE_FALSE(world.begin());  // has heard of nobody
    world.report(2);
    REQUIRE_FALSE(world.begin());  // the two differ: who is right?
    world.report(3);
    REQUIRE(world.begin());
    REQUIRE(world.stamp() == world.real());
}

TEST_CASE("proxy: without a majority that agrees service begins all the same, and says so") {
    World world(3);
    world.hosts[0].wrong_ns = -static_cast<int64_t>(2 * kHour);
    world.hosts[1].wrong_ns = static_cast<int64_t>(5 * kHour);
    world.elect(1);
    world.report(2);
    REQUIRE_FALSE(world.begin());
    world.passed_ns += kSecond + kMs;
    REQUIRE(world.begin());  // the third one may be dead
    REQUIRE(world.stamp() == world.real() - 2 * kHour);
    for (int i = 0; i < 20; ++i) world.second();
    REQUIRE(world.stamp() == world.real() - 2 * kHour);  // slewed towards nobody
    REQUIRE(world.leading().alarm(world.time(1)).find("do not agree") != std::string::npos);
    for (uint32_t id = 1; id <= 3; ++id) REQUIRE_FALSE(world.keeper(id).unfit_to_lead(world.time(id)));
}

TEST_CASE("proxy: a leader whose clock is off by hours moves no time, either way, and is found out") {
    for (const int64_t wrong : {static_cast<int64_t>(3 * kHour), -static_cast<int64_t>(3 * kHour)}) {
        World world(3);
        world.lead_from_now(1);
        world.stamp();
        for (int i = 0; i < 5; ++i) world.second();
        world.hosts[0].wrong_ns = wrong;  // a step while it leads
        for (int i = 0; i < 60; ++i) {
            world.second();
            REQUIRE(std::abs(apart(world.stamp(), world.real())) < static_cast<int64_t>(10 * kMs));
        }
        REQUIRE(world.leading().unfit_to_lead(world.time(1)));
        REQUIRE(world.leading().alarm(world.time(1)).find("this host's clock is 10800.0 s") == 0);
        REQUIRE(world.leading().fit_to_lead(2, world.time(1)));
        // The same clock on a backup is known to the leader, and to the backup itself.
        world.lead_from_now(2);
        for (int i = 0; i < 10; ++i) world.second();
        REQUIRE(world.keeper(1).unfit_to_lead(world.time(1)));
        REQUIRE_FALSE(world.leading().fit_to_lead(1, world.time(2)));
        REQUIRE(world.leading().alarm(world.time(2)).find("replica 1's clock") == 0);
        world.hosts[0].wrong_ns = 0;
        for (int i = 0; i < 10; ++i) world.second();
        REQUIRE_FALSE(world.keeper(1).unfit_to_lead(world.time(1)));
        REQUIRE(world.leading().alarm(world.time(2)).empty());
    }
}

TEST_CASE("proxy: a clock that all hosts share and that is set jumps nothing, and is neared") {
    World world(3, {kSecond, 100'000});
    world.lead_from_now(1);
    const uint64_t before = world.stamp();
    for (auto& host : world.hosts) host.wrong_ns = -static_cast<int64_t>(60 * kSecond);
    for (int i = 0; i < 100; ++i) world.second();
    const int64_t passed = apart(world.stamp(), before);
    // A timer of 90 s has ended, none stands still.
    REQUIRE(passed >= static_cast<int64_t>(90 * kSecond - kMs));
    REQUIRE(passed <= static_cast<int64_t>(91 * kSecond));
    REQUIRE(world.leading().alarm(world.time(1)).find("the cluster's clock is") == 0);
    for (int i = 0; i < 510; ++i) world.second();
    REQUIRE(apart(world.stamp(), world.real() - 60 * kSecond) < static_cast<int64_t>(kMs));
    REQUIRE(world.leading().alarm(world.time(1)).empty());
}

TEST_CASE("proxy: a cluster that stood still for a day goes on a day later, if its hosts agree") {
    for (const bool agree : {true, false}) {
        World world(3);
        world.lead_from_now(1);
        world.stamp();
        world.passed_ns += 24 * kHour;
        for (uint32_t id = 1; id <= 3; ++id) world.start(id);
        if (!agree) {
            world.hosts[0].wrong_ns = -static_cast<int64_t>(kHour);
            world.hosts[2].wrong_ns = static_cast<int64_t>(kHour);
        }
        const uint64_t last = world.log.back();
        world.lead_from_now(2);
        REQUIRE(apart(world.stamp(), agree ? world.real() : last) <= 1);
    }
}

TEST_CASE("proxy: what one replica lived through is known to the next leader, which did not") {
    World world(3);
    world.lead_from_now(1);
    world.stamp();
    // The hosts' clock is set to tomorrow; 1 and 2 are started anew. Replica 3 knows that no day has passed.
    for (auto& host : world.hosts) host.wrong_ns = static_cast<int64_t>(24 * kHour);
    world.passed_ns += 10 * kSecond;
    world.start(1);
    world.start(2);
    world.lead_from_now(2);
    REQUIRE(std::abs(apart(world.stamp(), world.real())) < static_cast<int64_t>(kMs));
}

TEST_CASE("proxy: a clock that was set back before a restart of all takes no time back") {
    World world(3);
    world.lead_from_now(1);
    const uint64_t last = world.stamp();
    for (auto& host : world.hosts) host.wrong_ns = -static_cast<int64_t>(kHour);
    for (uint32_t id = 1; id <= 3; ++id) world.start(id);
    world.lead_from_now(3);
    REQUIRE(world.stamp() == last + 1);
    world.second();
    REQUIRE(apart(world.stamp(), last + kSecond) > -static_cast<int64_t>(6 * kMs));
}

TEST_CASE("proxy: a replica alone keeps its time when its only clock is set") {
    World world(1);
    world.lead_from_now(1);
    const uint64_t before = world.stamp();
    world.hosts[0].wrong_ns = static_cast<int64_t>(3 * kHour);
    world.second();
    REQUIRE(apart(world.stamp(), before + kSecond) < static_cast<int64_t>(6 * kMs));
    REQUIRE_FALSE(world.leading().unfit_to_lead(world.time(1)));
}

TEST_CASE("proxy: the cluster's time under random clocks, delays and elections") {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto below = [&](uint64_t limit) { return random() % limit; };
        const size_t replicas = seed % 3 == 0 ? 5 : 3;
        World world(replicas);
        for (auto& host : world.hosts) {
            host.drift_ppm = static_cast<int64_t>(below(200)) - 100;
            host.wrong_ns = static_cast<int64_t>(below(200 * kMs)) - static_cast<int64_t>(100 * kMs);
        }
        std::vector<int64_t> sane;
        for (const auto& host : world.hosts) sane.push_back(host.wrong_ns);
        // At most a minority's clocks are wrong at any time.
        const size_t minority = (replicas - 1) / 2;
        std::vector<uint32_t> wrong;
        world.lead_from_now(1);
        world.stamp();
        uint64_t then = world.passed_ns;
        for (int step = 0; step < 600; ++step) {
            switch (below(12)) {
                case 0:  // some clock is wrong now, or right again
                    for (const uint32_t id : wrong) world.hosts[id - 1].wrong_ns = sane[id - 1];
                    wrong.clear();
                    while (wrong.size() < minority) {
                        const auto id = static_cast<uint32_t>(1 + below(replicas));
                        if (std::count(wrong.begin(), wrong.end(), id)) continue;
                        wrong.push_back(id);
                        world.hosts[id - 1].wrong_ns =
                            static_cast<int64_t>(below(20 * kHour)) - static_cast<int64_t>(10 * kHour);
                    }
                    break;
                case 1: {  // another leader, which has heard of a majority
                    world.elect(static_cast<uint32_t>(1 + below(replicas)));
                    for (uint32_t other = 1; other <= replicas; ++other)
                        if (other != world.leader) world.report(other, below(50 * kMs));
                    REQUIRE(world.begin());
                    break;
                }
                case 2: {  // a backup is started anew
                    const auto id = static_cast<uint32_t>(1 + below(replicas));
                    if (id != world.leader) world.start(id);
                    break;
                }
                default: {
                    for (uint32_t other = 1; other <= replicas; ++other) {
                        if (other == world.leader) continue;
                        world.report(other, below(50 * kMs));
                        world.report(other, below(50 * kMs));
                        world.tell(other, below(50 * kMs));
                    }
                    world.passed_ns += below(400 * kMs);
                    for (uint32_t id = 1; id <= replicas; ++id) world.keeper(id).tick(world.time(id));
                }
            }
            const uint64_t last = world.log.back();
            const uint64_t stamp = world.stamp();
            REQUIRE(stamp > last);
            const auto passed = static_cast<int64_t>(world.passed_ns - then);
            // Slewing, drift, and that the last leader's word was up to 50 ms late.
            const auto slack = passed / 100 + static_cast<int64_t>(60 * kMs);
            REQUIRE(std::abs(apart(stamp, last) - passed) <= slack);
            REQUIRE(std::abs(apart(stamp, world.real())) < static_cast<int64_t>(1500 * kMs));
            then = world.passed_ns;
        }
    }
}
