// What is done about a replica whose output differs from the majority's. Pure; it outlives the replica that
// craned makes anew, and is forgotten with craned.
//
// Rules:
//  - It is made anew by itself, once at each place: from what it has itself from before that place (a
//    checkpoint, the log). If it differs again before anybody has found it equal, its own checkpoints are
//    not trusted, and it begins from another replica's, or from the whole log. If it differs once more, what
//    differs is on its host: it stays as it is, for somebody to look at.
//  - Until its output was found equal to the leader's, at that place or behind, it is on trial: it serves
//    nobody and does not lead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::proxy {

class Repairs {
  public:
    enum class Step { kFromOwn, kFromOthers, kNone };

    /// The output differs, first seen at this log index.
    Step differs(uint64_t index);
    /// The output is the leader's, up to this log index.
    void agrees(uint64_t index);
    /// It differs there, and is left as it is: when somebody has it made anew it is on trial.
    void left(uint64_t index);
    /// The operator has it made anew once more: it stays on trial.
    void again() {
        if (tries_ > 1) tries_ = 1;
    }
    /// Whose state counts was decided anew: what was wrong with this one's is of no account any more.
    void forget() {
        tries_ = 0;
        place_ = 0;
        proven_ = false;
    }
    /// Nobody is there to compare it with.
    void acquit() { agrees(place_); }

    bool on_trial() const { return tries_ != 0 && !proven_; }
    /// Where it differed last.
    uint64_t place() const { return place_; }
    /// How often it was made anew.
    size_t count() const { return count_; }

  private:
    uint64_t place_ = 0;
    unsigned tries_ = 0;  ///< at this place
    bool proven_ = false;
    size_t count_ = 0;
};

}  // namespace crane::proxy
