// Is there room left for the log? Pure: told what the file system has, says when input has to stop and when
// it may go on. It stops while there is still room for what is under way, so that nothing dies of a full
// disk. A replica that is low on room leaves leading to one that is not. Room is bytes, and files: a file
// system that has bytes and no inodes takes no new log file either.
//
// Somebody (the server, a neighbour) may write more than the reserve in a quarter of a second: the nearer its
// edge is, the sooner comes the next look, and what counts is what will be left in a moment at the speed
// seen. That moment is short, or who writes a lot where there is room for it would be taken for a disaster.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proxy/disk_space.hpp"

namespace crane::proxy {

/// One thing that a disk may run out of.
class DiskLevel {
  public:
    /// `unseen_per_s`: who begins to take it after a look was not seen to; so much goes at most, or hardly
    /// more. `fast_per_s`: slower than this it does not matter how fast.
    DiskLevel(uint64_t unseen_per_s, uint64_t fast_per_s)
        : unseen_per_s_(unseen_per_s), fast_per_s_(fast_per_s) {}

    void observe(uint64_t free, uint64_t limit, uint64_t now_ns);
    bool low() const { return low_; }
    bool critical() const { return critical_; }
    uint64_t free() const { return free_; }
    uint64_t limit() const { return limit_; }
    /// 0 unless it goes fast.
    uint64_t falls_per_s() const { return falls_per_s_ > fast_per_s_ ? falls_per_s_ : 0; }
    uint64_t next_look_ns() const;

  private:
    uint64_t unseen_per_s_, fast_per_s_;
    uint64_t limit_ = 0;
    uint64_t free_ = 0;
    uint64_t measured_ns_ = 0;  ///< when the speed was, and what was free then
    uint64_t measured_free_ = 0;
    uint64_t falls_per_s_ = 0;
    bool low_ = false;
    bool critical_ = false;
};

class DiskWatch {
  public:
    /// Input stops below `reserve_bytes` or kReserveFiles, but below a twentieth of a file system that is
    /// small.
    explicit DiskWatch(uint64_t reserve_bytes);

    static constexpr uint64_t kReserveFiles = 1024;

    /// Returns whether that has changed anything.
    bool observe(const DiskSpace& space, uint64_t now_ns);
    bool low() const { return bytes_.low() || files_.low(); }
    /// Half of the reserve is gone: nothing more is taken of another replica either, which may have room.
    bool critical() const { return bytes_.critical() || files_.critical(); }
    uint64_t free_bytes() const { return bytes_.free(); }
    /// How many more there can be; kUnboundedFiles where there is no such bound.
    uint64_t free_files() const { return files_.free(); }
    /// The next look is to be taken after so long: half of what is left to the edge cannot be gone by then.
    uint64_t next_look_ns() const;
    /// What to tell the operator; empty while there is room.
    std::string alarm(const std::string& path) const;
    /// How much there is, as words.
    std::string free_text() const;

  private:
    uint64_t reserve_bytes_;
    DiskLevel bytes_, files_;
};

/// As the status has it.
nlohmann::json disk_json(const DiskWatch& disk, uint64_t reserve_bytes);

}  // namespace crane::proxy
