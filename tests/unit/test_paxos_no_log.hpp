// The log behind a core whose entries are all in memory.
#pragma once

#include <vector>

#include "paxos/core/storage.hpp"

namespace crane::paxos::testing {

class NoLog : public LogReader {
  public:
    void read(uint64_t, uint64_t, size_t, std::vector<Entry>&) const override {
        throw StorageError("everything is in memory");
    }
};

}  // namespace crane::paxos::testing
