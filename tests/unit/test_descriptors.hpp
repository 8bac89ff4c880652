// Want of descriptors, for tests of what survives it.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace crane::test {

/// No descriptor is free while this lives.
class NoDescriptors {
  public:
    NoDescriptors() {
        getrlimit(RLIMIT_NOFILE, &before_);
        const int lowest = dup(0);
        REQUIRE(lowest >= 0);
        close(lowest);
        const rlimit now{static_cast<rlim_t>(lowest), before_.rlim_max};
        REQUIRE(setrlimit(RLIMIT_NOFILE, &now) == 0);
    }
    ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

}  // namespace crane::test
