// Whether and when a server that has ended is started again. Pure.
//
// Every replica keeps it, from what the log says, and the primary acts by it: what it decides is an entry of
// the log, so replicas need not agree here. All times are the cluster's.
#pragma once

#include <cstdint>

namespace crane::proxy {

enum class Restart { kAlways, kOnFailure, kNo };

class RestartPolicy {
  public:
    explicit RestartPolicy(Restart when) : when_(when) {}

    /// A server begins.
    void started(uint64_t now_ns) {
        started_ns_ = now_ns;
        ended_ = asked_ = listens_ = false;
    }
    /// One begins in the place of another, as was decided: whoever decided it knew that one had listened.
    void started_again(uint64_t now_ns) {
        started(now_ns);
        listened_ = true;
    }
    /// It serves somebody, or could. One that never came so far is not started again: it is not made yet.
    void listened() { listened_ = listens_ = true; }
    /// It has ended, with a status as waitpid gives it.
    void ended(uint64_t now_ns, int32_t status);
    /// The operator wants another one, whatever the setting, and without a pause.
    void ask() {
        asked_ = true;
        due_ns_ = 0;
    }

    bool asked() const { return asked_; }
    /// This one serves somebody, and another one would be started if it were killed.
    bool wanted_if_ended() const { return listens_ && when_ != Restart::kNo; }
    /// Another one is to be started, now or later.
    bool wanted() const;
    bool due(uint64_t now_ns) const { return wanted() && now_ns >= due_ns_; }
    /// What is left of the pause before it.
    uint64_t left_ns(uint64_t now_ns) const { return now_ns >= due_ns_ ? 0 : due_ns_ - now_ns; }

  private:
    Restart when_;
    uint64_t started_ns_ = 0;
    uint64_t due_ns_ = 0;
    uint64_t pause_ns_ = 0;  ///< before the last start; 0: none yet
    int32_t status_ = 0;
    bool listened_ = false;  ///< this server, or one before
    bool listens_ = false;
    bool asked_ = false;
    bool ended_ = false;
};

}  // namespace crane::proxy
