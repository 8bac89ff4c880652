// What may block runs beside the event loop: the loop goes on meanwhile, and waits for nothing that hangs.
#include <event2/event.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proxy/loop_boost.hpp"
#include "proxy/loop_lag.hpp"
#include "proxy/session_share.hpp"
#include "proxy/worker.hpp"

using namespace crane::proxy;

namespace {

struct Loop {
    event_base* base = event_base_new();
    ~Loop() { event_base_free(base); }
    void run_until(const std::function<bool()>& met) const {
        while (!met()) event_base_loop(base, EVLOOP_ONCE);
    }
};

}  // namespace

TEST_CASE("worker: jobs run one after the other, and what follows runs in the loop's thread") {
    const Loop loop;
    Worker worker(loop.base, "crane-test");
    std::vector<int> order;
    const auto here = std::this_thread::get_id();
    auto there = std::make_shared<std::thread::id>();
    for (int number = 0; number < 3; ++number) {
        worker.post([there] { *there = std::this_thread::get_id(); },
                    [&, number] {
                        CHECK(std::this_thread::get_id() == here);
                        order.push_back(number);
                    });
    }
    loop.run_until([&] { return order.size() == 3; });
    CHECK(order == std::vector<int>{0, 1, 2});
    CHECK(*there != here);
    CHECK_FALSE(worker.busy());
}

TEST_CASE("worker: the loop goes on, and can end, while a job hangs") {
    const Loop loop;
    auto gate = std::make_shared<std::promise<void>>();
    std::shared_future<void> opened(gate->get_future());
    auto ended = std::make_shared<std::promise<void>>();
    bool called = false;
    {
        Worker worker(loop.base, "crane-test");
        worker.post(
            [opened, ended] {
                opened.wait();
                ended->set_value();
            },
            [&] { called = true; });
        event_base_loop(loop.base, EVLOOP_NONBLOCK);
        CHECK(worker.busy());
        CHECK_FALSE(worker.finish(10));
    }
    gate->set_value();
    ended->get_future().wait();
    CHECK_FALSE(called);
}

TEST_CASE("worker: a thread does not inherit the loop's priority") {
    const Loop loop;
    std::promise<std::pair<int, int>> found;
    auto result = found.get_future();
    const int before = getpriority(PRIO_PROCESS, 0);
    std::thread([&] {
        prefer_this_thread();
        make_real_time(0, true);
        Worker worker(loop.base, "crane-test");
        worker.post([&] { found.set_value({getpriority(PRIO_PROCESS, 0), sched_getscheduler(0)}); }, nullptr);
        CHECK(worker.finish(60'000));
        if (geteuid() == 0) CHECK((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_RR);
        make_real_time(0, false);
        CHECK((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER);
        if (geteuid() == 0) CHECK(getpriority(PRIO_PROCESS, 0) == std::min(before, kPreferredNice));
    }).join();
    CHECK(result.get() == std::pair(before, SCHED_OTHER));
    CHECK(getpriority(PRIO_PROCESS, 0) == before);
}

TEST_CASE("loop lag: tells how late the loop was, and what held it up") {
    constexpr uint64_t kMs = 1'000'000;
    LoopLag lag(250 * kMs);
    CHECK(lag.observe(1000 * kMs, 0) == 0);
    CHECK(lag.observe(1250 * kMs, 0) == 0);
    lag.worked("a sync", 700 * kMs);
    lag.worked("output", 20 * kMs);
    CHECK(lag.observe(2200 * kMs, 10 * kMs) == 700 * kMs);
    CHECK(std::string(lag.longest().held_up_by) == "a sync");
    CHECK(lag.observe(2850 * kMs, 400 * kMs) == 400 * kMs);
    CHECK(std::string(lag.last().held_up_by) == "no CPU");
    CHECK(lag.observe(3300 * kMs, 400 * kMs) == 200 * kMs);
    CHECK(std::string(lag.last().held_up_by) == "callbacks");
    CHECK(lag.longest().ns == 700 * kMs);
}

TEST_CASE("session share: it is preferred while it begins and after the loop was late, and not else",
          "[worker]") {
    constexpr uint64_t kMs = 1'000'000;
    SessionShare share(50 * kMs, false);
    uint64_t now = 1000 * kMs;
    CHECK(share.observe(now, 0));
    CHECK(share.preferred());
    CHECK_FALSE(share.observe(now += 1000 * kMs, 0));
    CHECK(share.observe(now += 3000 * kMs, 10 * kMs));
    CHECK_FALSE(share.preferred());
    CHECK_FALSE(share.observe(now += 1000 * kMs, 50 * kMs));
    CHECK(share.observe(now += 1000 * kMs, 51 * kMs));
    CHECK(share.preferred());
    CHECK_FALSE(share.observe(now += 50'000 * kMs, 60 * kMs));  // once more: from here on anew
    CHECK_FALSE(share.observe(now += 50'000 * kMs, 0));
    CHECK(share.preferred());
    CHECK(share.observe(now += 11'000 * kMs, 0));
    CHECK_FALSE(share.preferred());

    SessionShare boosted(50 * kMs, true);
    CHECK_FALSE(boosted.observe(now, 1000 * kMs));
    CHECK_FALSE(boosted.preferred());
}

TEST_CASE("loop boost: starving is who could run at two looks in a row and did not", "[worker]") {
    Starving starving;
    CHECK_FALSE(starving.observe('S', 10));
    CHECK_FALSE(starving.observe('S', 10));
    CHECK_FALSE(starving.observe('R', 10));
    CHECK(starving.observe('R', 10));
    CHECK_FALSE(starving.observe('R', 11));
    CHECK_FALSE(starving.observe('D', 11));
    CHECK_FALSE(starving.observe('R', 11));
}

TEST_CASE("loop boost: a loop that is kept from running by others is put into real time until it has run",
          "[worker]") {
    if (geteuid() != 0) return;
    std::atomic<bool> done{false};
    std::atomic<int> policy{-1}, after{-1};
    std::vector<std::thread> others;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    const auto bind = [&one] { sched_setaffinity(0, sizeof(one), &one); };
    // Idle threads get hardly anything beside one that computes.
    others.emplace_back([&] {
        bind();
        while (!done) {
        }
    });
    std::thread loop([&] {
        bind();
        sched_param none{};
        sched_setscheduler(0, SCHED_IDLE, &none);
        const LoopBoost boost;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while ((policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_RR)
            if (std::chrono::steady_clock::now() > limit) break;
        // It runs now, as nobody else does.
        while ((after = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_RR)
            if (std::chrono::steady_clock::now() > limit) break;
    });
    loop.join();
    done = true;
    for (std::thread& other : others) other.join();
    CHECK(policy == SCHED_RR);
    CHECK(after == SCHED_OTHER);
}
