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
        // None at all: a thread of an earlier test may close one at any time.
        const rlimit now{0, before_.rlim_max};
        REQUIRE(setrlimit(RLIMIT_NOFILE, &now) == 0);
    }
    ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

}  // namespace crane::test
