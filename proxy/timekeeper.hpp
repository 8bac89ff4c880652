// This replica's part in keeping the cluster's time: what it tells the others of its clocks, what it makes of
// what they tell, when a new leader may take timestamps, and whose clock is wrong. Pure; the replica reads
// this host's clocks for it and carries the words.
//
// A backup's acknowledgement carries a Reading, the leader sends each second a LeaderTime. A host's real-time
// clock moves nothing by itself: it is one voice of those that say what real time is.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proxy/cluster_clock.hpp"
#include "proxy/config.hpp"
#include "proxy/host_clocks.hpp"

namespace crane::proxy {

/// This host's clocks, read together.
struct HostTime {
    uint64_t mono_ns;
    uint64_t real_ns;
};

/// On the wire, from a backup: its host's clock, and what it knows of the cluster's (0: nothing).
struct Reading {
    uint64_t real_ns;
    uint64_t cluster_ns;
};

/// On the wire, from the leader: the cluster's clock, and the real time that the hosts agree on (0: none).
struct LeaderTime {
    uint64_t cluster_ns;
    uint64_t real_ns;
};

class Timekeeper {
  public:
    Timekeeper(uint32_t self, const ClockLimits& limits);

    void set_voters(std::vector<uint32_t> voters) { voters_ = std::move(voters); }
    void decided(uint64_t timestamp_ns, const HostTime& now) { clock_.decided(timestamp_ns, now.mono_ns); }
    /// Elected: timestamps can be taken once begin() says so.
    void lead();
    void stop_leading();
    /// On a leader that has seen all that was decided. `first`: there is no timestamp in the log yet. False:
    /// not all is known yet that has to be; ask again.
    bool begin(const HostTime& now, bool first);
    bool begun() const { return begun_; }
    /// The cluster's time, on a leader that has begun.
    uint64_t now(const HostTime& now) { return clock_.now(now.mono_ns, real_); }

    Reading reading(const HostTime& now) const { return {now.real_ns, clock_.estimate(now.mono_ns)}; }
    void heard(uint32_t from, const Reading& reading, const HostTime& now);
    LeaderTime leader_time(const HostTime& now) const;
    void follow(const LeaderTime& said, const HostTime& now);
    /// A few times a second: looks at the clocks anew.
    void tick(const HostTime& now);

    struct Skew {
        bool agreed = false;                ///< a majority agrees on real time (as far as this replica knows)
        std::optional<int64_t> host_ns;     ///< this host's clock beyond real time
        std::optional<int64_t> cluster_ns;  ///< the cluster's clock beyond real time
        std::vector<std::pair<uint32_t, int64_t>> others_ns;  ///< on the leader
    };
    Skew skew(const HostTime& now) const;
    /// What the operator has to know; empty when all is well.
    std::string alarm(const HostTime& now) const;
    /// This host's clock has differed from that of a majority for as long as it takes to be sure.
    bool unfit_to_lead(const HostTime& now) const;
    /// Of another replica: nothing is known against its clock.
    bool fit_to_lead(uint32_t replica, const HostTime& now) const;

  private:
    uint32_t self_;
    ClockLimits limits_;
    ClusterClock clock_;
    HostClocks hosts_;
    std::vector<uint32_t> voters_;
    RealOffset real_;
    bool leads_ = false;
    bool begun_ = false;
    std::set<uint32_t> heard_;  ///< since this replica leads
    std::optional<uint64_t> asked_since_ns_;
    std::optional<uint64_t> wrong_since_ns_;
};

}  // namespace crane::proxy
