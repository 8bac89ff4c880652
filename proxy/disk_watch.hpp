// Is there room left for the log? Pure: told what the file system has, says when input has to stop and when
// it may go on. It stops while there is still room for what is under way, so that nothing dies of a full
// disk. A replica that is low on room leaves leading to one that is not.
//
// Somebody (the server, a neighbour) may write more than the reserve in a quarter of a second: the nearer its
// edge is, the sooner comes the next look, and what counts is what will be left in a moment at the speed
// seen. That moment is short, or who writes a lot where there is room for it would be taken for a disaster.
#pragma once

#include <cstdint>
#include <string>

namespace crane::proxy {

class DiskWatch {
  public:
    /// Input stops below `reserve_bytes`, but below a twentieth of a file system that is small.
    explicit DiskWatch(uint64_t reserve_bytes) : reserve_bytes_(reserve_bytes) {}

    /// Returns whether that has changed anything.
    bool observe(uint64_t free_bytes, uint64_t total_bytes, uint64_t now_ns);
    bool low() const { return low_; }
    /// Half of the reserve is gone: nothing more is taken of another replica either, which may have room.
    bool critical() const { return critical_; }
    uint64_t free_bytes() const { return free_bytes_; }
    /// The next look is to be taken after so long: half of what is left to the edge cannot be gone by then.
    uint64_t next_look_ns() const;
    /// What to tell the operator; empty while there is room.
    std::string alarm(const std::string& path) const;

  private:
    uint64_t reserve_bytes_;
    uint64_t limit_bytes_ = 0;
    uint64_t free_bytes_ = 0;
    uint64_t measured_ns_ = 0;  ///< when the speed was, and what was free then
    uint64_t measured_free_bytes_ = 0;
    uint64_t falls_bytes_per_s_ = 0;
    bool low_ = false;
    bool critical_ = false;
};

}  // namespace crane::proxy
