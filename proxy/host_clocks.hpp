// What the clocks of the replicas' hosts say, and which of them agree. Pure.
//
// A replica's report says what its clock shows. The report's way takes time, so it makes a clock look behind,
// never ahead: of what was heard lately the furthest ahead is nearest to the truth. Clocks agree that lie
// within one bound of each other; if a majority of the voting members' does, the middle of those is real
// time, and who is not among them is wrong. Without such a majority nobody is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proxy/cluster_clock.hpp"

namespace crane::proxy {

class HostClocks {
  public:
    explicit HostClocks(uint64_t max_skew_ns) : max_skew_ns_(static_cast<int64_t>(max_skew_ns)) {}

    /// `replica`'s clock shows `real_ns`, as was heard when this host's monotonic clock showed `mono_ns`.
    void heard(uint32_t replica, uint64_t real_ns, uint64_t mono_ns);
    /// This host's own clock.
    void own(uint32_t self, uint64_t real_ns, uint64_t mono_ns);
    void forget(uint32_t replica) { hosts_.erase(replica); }

    /// Real time, if a majority of `voters` agrees on it.
    RealOffset agreed(const std::vector<uint32_t>& voters, uint64_t mono_ns) const;
    /// A clock's distance from this host's monotonic clock. Nothing: not heard of lately.
    std::optional<int64_t> offset(uint32_t replica, uint64_t mono_ns) const;
    /// How far ahead of `real` a replica's clock is (behind: below 0).
    std::optional<int64_t> skew(uint32_t replica, int64_t real, uint64_t mono_ns) const;
    bool heard_all(const std::vector<uint32_t>& voters, uint64_t mono_ns) const;
    bool within_bound(int64_t skew_ns) const { return skew_ns >= -max_skew_ns_ && skew_ns <= max_skew_ns_; }
    /// Its clock is known to be wrong.
    bool wrong(uint32_t replica, const RealOffset& real, uint64_t mono_ns) const;

  private:
    /// The furthest ahead of two periods, so that a clock that was set back is found out when both are over.
    struct Host {
        uint64_t since_ns;
        uint64_t last_ns;
        int64_t offset;  ///< of this period
        int64_t before;  ///< of the one before it
    };

    int64_t max_skew_ns_;
    std::map<uint32_t, Host> hosts_;
};

}  // namespace crane::proxy
