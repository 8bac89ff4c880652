// How long something takes, for reports.
#pragma once

#include <chrono>
#include <cstdint>

namespace crane::checkpoint {

class Stopwatch {
  public:
    uint64_t us() const {
        const auto taken = std::chrono::steady_clock::now() - begun_;
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(taken).count());
    }

  private:
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

}  // namespace crane::checkpoint
