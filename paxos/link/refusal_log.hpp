// What is logged about connections that are refused: each reason once in a while, so that a peer which tries
// again and again, or a stranger who wants the disk full, does not fill the log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crane::paxos {

class RefusalLog {
  public:
    static constexpr uint64_t kRepeatAfterMs = 60'000;
    static constexpr size_t kMaxReasons = 64;  ///< within that time; others are only counted

    /// True when it is time to log this reason.
    bool is_news(const std::string& reason, uint64_t now_ms);
    uint64_t suppressed() const { return suppressed_; }

  private:
    struct Seen {
        std::string reason;
        uint64_t at_ms;
    };
    std::vector<Seen> seen_;
    uint64_t suppressed_ = 0;
};

/// Words of somebody else, for the log: bounded, and without what a terminal would obey.
std::string printable(std::string_view words, size_t max_bytes);

}  // namespace crane::paxos
