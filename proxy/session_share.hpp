// Whether this daemon's session is to have processors before other sessions, and its loop before all that is
// not in real time. Pure: time is handed in.
//
// To be preferred costs throughput where clients, servers and daemons share few cores: the daemon then runs
// at each word it is told instead of at many together. Not to be preferred costs an election where builds or
// backups keep the loop from its heartbeats. So where there is a boost (loop_boost.hpp), which helps a loop
// that waits and only until it has run, it is never preferred; else while it begins, and for a while after
// its loop was late.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace crane::proxy {

class SessionShare {
  public:
    /// `late_ns`: of the loop; far below what anybody calls a failure. `boosted`: there is a boost.
    SessionShare(uint64_t late_ns, bool boosted) : late_limit_ns_(late_ns), boosted_(boosted) {}

    /// The loop looked, and was so late. Returns whether preferred() has changed.
    bool observe(uint64_t now_ns, uint64_t late_ns);
    bool preferred() const { return preferred_; }

  private:
    uint64_t late_limit_ns_;
    bool boosted_;
    uint64_t until_ns_ = 0;  ///< 0: it did not look yet
    bool preferred_ = false;
};

/// The thread, 0 for the caller, is served before all that is not in real time, or no more so; its nice value
/// stays. Between groups (sessions, control groups) a fair share is kept over long: a group that has seldom
/// something to do on a processor may have to wait there for a second, whatever its nice value, while threads
/// that hand over to each other every few microseconds go on. Real time is not shared that way. False: not
/// without the right to.
bool make_real_time(pid_t thread, bool wanted);
/// Whether this process has that right.
bool may_be_real_time();
/// Makes it so, for the session that this process leads; other sessions are none of its business. Where the
/// system does not let it, nothing changes.
void prefer_this_session(bool preferred);

}  // namespace crane::proxy
