// The cluster's own clock, from which every timestamp in the log is taken. Pure: it is told what clocks show.
//
// Rules:
//  - It never goes back, on one leader and across elections: it is never behind a decided timestamp.
//  - It advances by the time that a monotonic clock says has passed, and by at most slew_ppm millionths of
//    that more or less: so it nears real time and never jumps, whatever is done to a host's clock.
//  - A new leader goes on where the last one was: the clock runs on in every replica that a leader has told
//    it, and the furthest of those that a new leader hears of holds.
//  - Only where no replica lived through a pause (all were started anew), nobody can say how long it was.
//    Then the clock is set once, forward, to the real time that a majority of the hosts agrees on; without
//    such a majority it goes on from the last timestamp.
#pragma once

#include <cstdint>
#include <optional>

namespace crane::proxy {

/// What the hosts' clocks agree that real time is, as its distance from this host's monotonic clock.
using RealOffset = std::optional<int64_t>;

class ClusterClock {
  public:
    explicit ClusterClock(uint32_t slew_ppm) : slew_ppm_(slew_ppm) {}

    /// A decided timestamp was seen: the clock is not behind it.
    void decided(uint64_t timestamp_ns, uint64_t mono_ns);
    /// The leader says what the clock shows; on a replica that does not lead.
    void follow(uint64_t cluster_ns, uint64_t mono_ns);
    /// Another replica says what the clock shows; on a new leader, before its first timestamp. 0: it does not
    /// know.
    void hear(uint64_t cluster_ns, uint64_t mono_ns);
    /// Sets a clock that does not run, as nobody knows the time; never behind what was decided.
    void set(uint64_t real_ns, uint64_t mono_ns);

    /// On a leader, and on a replica that one has told, since this process began.
    bool runs() const { return runs_; }
    /// What it shows now. Towards `real` it is slewed; without, it keeps the monotonic clock's rate.
    uint64_t now(uint64_t mono_ns, const RealOffset& real);
    /// The same without slewing, and nothing changes. 0: it does not run.
    uint64_t estimate(uint64_t mono_ns) const;
    uint64_t last_decided() const { return decided_ns_; }

  private:
    int64_t slew_bound(uint64_t passed_ns);

    uint32_t slew_ppm_;
    bool runs_ = false;
    uint64_t shows_ns_ = 0;  ///< at mono_ns_
    uint64_t mono_ns_ = 0;
    uint64_t decided_ns_ = 0;
    uint64_t slew_rest_ = 0;  ///< millionths of a nanosecond, left over by the last division
};

}  // namespace crane::proxy
