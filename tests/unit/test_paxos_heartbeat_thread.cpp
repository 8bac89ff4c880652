// A loop that waits for its disk is spoken for, and nothing is said at any other time.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "paxos/heartbeat_thread.hpp"

using crane::paxos::HeartbeatThread;

TEST_CASE("heartbeat thread: whoever waits for a disk that stands still is spoken for until it answers") {
    std::mutex mutex;
    std::condition_variable signal;
    unsigned spoken = 0;
    std::atomic<bool> waiting = false, spoken_without = false;
    HeartbeatThread thread(1000, [&] {
        const std::lock_guard<std::mutex> guard(mutex);
        if (!waiting) spoken_without = true;
        ++spoken;
        signal.notify_all();
    });
    for (unsigned wait = 1; wait <= 3; ++wait) {
        waiting = true;
        thread.wait_for([&] {
            std::unique_lock<std::mutex> guard(mutex);
            signal.wait(guard, [&] { return spoken >= 3 * wait; });
        });
        waiting = false;
    }
    waiting = true;
    CHECK_THROWS_AS(thread.wait_for([] { throw std::runtime_error("the disk is full"); }),
                    std::runtime_error);
    for (unsigned quick = 0; quick < 10'000; ++quick) thread.wait_for([] {});
    CHECK_FALSE(spoken_without);
}
