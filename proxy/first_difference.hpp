// What each replica has put out at the first record at which they were found to differ, side by side. Pure;
// it outlives the replica that craned makes anew, and is forgotten with craned.
//
// When the primary finds a difference, it asks all for the end of what they have put out up to that log entry
// (output_tail.hpp), before anybody is made anew for it; each tells all others, so that every replica can
// show all sides, whichever of them is the odd one. What was found last is kept, also when all is well again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "proxy/output_tail.hpp"

namespace crane::proxy {

class FirstDifference {
  public:
    static constexpr size_t kExcerptBytes = 96;

    /// `replica` has put out these records up to log entry `index`; none: it does not know any more.
    void heard(uint64_t index, uint32_t replica, std::vector<TailRecord> records, int64_t now_s);
    /// Of the place that was heard of last. Null: there was none. "record" is null where what is known does
    /// not reach it.
    nlohmann::json json() const;

  private:
    /// At which it was found: what is told of two comes mixed.
    static constexpr size_t kPlaces = 4;
    struct Found {
        uint64_t index = 0;
        int64_t told_s = 0;
        std::map<uint32_t, std::vector<TailRecord>> sides;
    };
    std::deque<Found> found_;  ///< the newest is the last
};

}  // namespace crane::proxy
