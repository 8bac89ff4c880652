// What no image may be taken of.
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <stdexcept>

#include "checkpoint/event_counts.hpp"

TEST_CASE("event counts: one that an image would cut is refused", "[checkpoint]") {
    const int fd = eventfd(7, EFD_CLOEXEC);
    REQUIRE(fd >= 0);
    CHECK_NOTHROW(crane::checkpoint::check_event_counts("/proc"));
    const uint64_t most = UINT64_MAX - 10;
    REQUIRE(write(fd, &most, sizeof(most)) == sizeof(most));
    CHECK_THROWS_AS(crane::checkpoint::check_event_counts("/proc"), std::runtime_error);
    close(fd);
    CHECK_NOTHROW(crane::checkpoint::check_event_counts("/proc"));
}
