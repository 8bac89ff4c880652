// How much of its time the primary proposes, so that the others' servers keep up with its own. Pure: time is
// handed in, and what the others say.
//
// All servers do the same work, so one that has lost time (its checkpoint was taken, it was made anew, its
// host is slower) has it back only if the primary's gives way a little. Else, under load that lasts, the
// whole distance stands between the loss of a primary and service: the next one has to do that work first.
// A time that is shut has neither input nor bubbles in it, so the primary's server stops with its grant.
//
// Rules kept: while the nearest of the others is no further behind than the setting allows, the rest cost at
// most kForTheRestPercent, and kForTheFarPercent where one is further behind than kFarBehindNs (it would go
// on losing what each checkpoint takes of its time, and a cluster of three would be one of two). One that
// does not come on at all is not waited for. Nobody costs more than the setting allows.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

namespace crane::proxy {

class Pace {
  public:
    struct Settings {
        uint64_t behind_ns = 2'000'000'000;  ///< so far behind is well; 0: nobody is waited for
        uint32_t most_shut_percent = 50;     ///< of the time
    };
    static constexpr uint32_t kForTheRestPercent = 20, kForTheFarPercent = 35;
    static constexpr uint64_t kFarBehindNs = 30'000'000'000;

    explicit Pace(const Settings& settings) : settings_(settings) {}

    /// The server of `replica` was given the log up to `admitted`, as its report says.
    void heard(uint32_t replica, uint64_t admitted, uint64_t now_ns);
    void gone(uint32_t replica) { others_.erase(replica); }
    /// Another begins to lead, or this one: what was known of the log's times is of another's.
    void begin();
    /// Looks again, several times a second, where the log ends at `last_index`.
    void look(uint64_t now_ns, uint64_t last_index);

    /// When something may be proposed next: now or later.
    uint64_t open_at_ns(uint64_t now_ns) const;
    bool open(uint64_t now_ns) const { return open_at_ns(now_ns) == now_ns; }
    uint32_t shut_percent() const { return shut_percent_; }
    /// That one is further behind than is well, whether it comes on or not.
    bool lags(uint32_t replica, uint64_t now_ns) const;
    /// Whom it waits for, and how far that one is behind.
    uint32_t waits_for() const { return watched_; }
    uint64_t behind_ns() const { return behind_ns_; }

  private:
    struct Other {
        uint64_t admitted = 0;
        uint64_t came_on_ns = 0;
    };
    struct Mark {
        uint64_t index;
        uint64_t at_ns;
    };

    uint64_t behind_ns(const Other& other, uint64_t now_ns) const;
    void judge(uint64_t now_ns);

    Settings settings_;
    std::map<uint32_t, Other> others_;
    std::deque<Mark> marks_;  ///< where the log ended when, in the order of both
    uint64_t judged_ns_ = 0;
    uint32_t shut_percent_ = 0;
    uint32_t watched_ = 0;
    uint64_t behind_ns_ = 0;
};

}  // namespace crane::proxy
