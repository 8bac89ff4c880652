// The output log: every output record of the domain, in order (output_format.hpp), in files
// (output_files.hpp).
//
// Rules kept here:
//   - the loop never waits for the disk: what is appended goes into chunks, and a thread of its own writes
//     them (a kernel that has more to write than its disk takes holds back whoever writes);
//   - what is not written yet is bounded. Beyond kHoldBytes the caller should take no more output from the
//     domain (must_wait), as long as the disk takes any; where it stands still, or is full, service goes on:
//     records wait up to kMaxBytes, and are dropped beyond. The files tell how many (crane diff says so);
//   - position and chain are those of what was appended, written or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/config.hpp"
#include "proxy/output_files.hpp"
#include "timebubble/transport.hpp"

struct event_base;

namespace crane::proxy {

class Worker;

class OutputLog {
  public:
    static constexpr size_t kHoldBytes = 8 * 1024 * 1024;
    static constexpr size_t kMaxBytes = 16 * 1024 * 1024;
    static constexpr uint64_t kStandsStillNs = 500'000'000;

    /// `from`: where it begins; later than at the start when that is not replayed. Without `base` what is
    /// written is written by the caller's thread.
    OutputLog(const std::string& state_dir, const Config& config, const OutputPosition& from = {},
              event_base* base = nullptr);
    /// Waits for what is still to be written, 2 s at most.
    ~OutputLog();
    OutputLog(const OutputLog&) = delete;
    OutputLog& operator=(const OutputLog&) = delete;

    /// Appends a record; kConsumed and kMessage are not logged.
    void append(const timebubble::OutputHeader& header, std::string_view payload);
    /// Has all written that was appended, and tries again what could not be.
    void flush();
    /// After flush(): waits until that is done, so long at most, and not at all for a disk that stands still.
    void settle(int patience_ms);
    /// The file may have been moved away (log rotation): goes on in a new one at the old place.
    void reopen();
    /// The disk is behind by more than it should be, and still takes what it is given.
    bool must_wait(uint64_t now_ns);
    bool buffered() const;
    /// It is made anew by replay: what is not written yet is not worth waiting for.
    void abandon();

    const OutputPosition& position() const { return at_; }
    const Hash128& chain() const { return at_.chain; }
    uint64_t records() const { return at_.records; }
    uint64_t bytes() const { return bytes_; }
    /// Why the log cannot be written now; empty if it can.
    std::string error() const;

  private:
    struct Shared;
    using Job = std::function<void(Shared&)>;
    /// In the thread that writes. `bytes`: that it holds.
    void run(Job job, size_t bytes = 0);
    /// What is pending, which ends there.
    void hand_over(const OutputPosition& to);
    bool room_for(const OutputPosition& before);

    std::shared_ptr<Shared> shared_;  ///< with the thread, which may outlive this
    std::unique_ptr<Worker> worker_;
    const LogContent content_;
    const size_t chunk_bytes_;
    OutputChunk pending_;
    OutputPosition at_;
    uint64_t bytes_ = 0;
    bool losing_ = false;  ///< what comes is only counted, until all that waits is written
    bool reopen_wanted_ = false;
    uint64_t moved_ns_ = 0;  ///< when the disk was last seen to be up to date or to take something
    uint64_t jobs_seen_ = 0;
    std::optional<uint64_t> stuck_at_;  ///< as many jobs were done when settle() waited in vain
};

}  // namespace crane::proxy
