// Numbers of processes in a container.
#include <catch2/catch.hpp>

#include "checkpoint/init_pids.hpp"

using namespace crane::checkpoint;

TEST_CASE("a host whose pids begin anew earlier than others' is told of", "[checkpoint]") {
    CHECK(describe_pid_bound(kMostPids).empty());
    CHECK(describe_pid_bound(0).empty());
    const std::string said = describe_pid_bound(32768);
    CHECK(said.find("32768") != std::string::npos);
    CHECK(said.find("kernel.pid_max=4194304") != std::string::npos);
}
