// The one translation unit that holds Catch2's main.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>

#include "tests/unit/test_shared_memory.hpp"

namespace {

/// Names the test at whose end there is something, so that it need not be looked for.
struct LeftoverListener : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;

    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        const size_t left = crane::testing::left_in_shared_memory().size();
        if (left > known) fprintf(stderr, "left in /dev/shm by \"%s\"\n", stats.testInfo.name.c_str());
        known = left;
    }

    size_t known = 0;
};
CATCH_REGISTER_LISTENER(LeftoverListener)

/// Those that tests have left to themselves use what is taken down behind main().
void wait_for_threads() {
    constexpr int kLooks = 1000;
#ifdef __SANITIZE_THREAD__
    constexpr int kThreads = 2;  // TSan has one of its own
#else
    constexpr int kThreads = 1;
#endif
    for (int look = 0; look < kLooks; ++look) {
        const auto threads = std::filesystem::directory_iterator("/proc/self/task");
        if (std::distance(begin(threads), end(threads)) <= kThreads) return;
        usleep(10'000);
    }
    fprintf(stderr, "a thread that a test has begun goes on after all tests\n");
}

}  // namespace

int main(int argc, char** argv) {
    const int failed = Catch::Session().run(argc, argv);
    wait_for_threads();
    const std::vector<std::string> left = crane::testing::left_in_shared_memory();
    for (const std::string& path : left) fprintf(stderr, "FAILED: %s is left behind\n", path.c_str());
    return failed == 0 && !left.empty() ? 1 : failed;
}
