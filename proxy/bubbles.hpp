// When the leader proposes a batch although no client has called: a time bubble, or a timer that is due.
//
// Only while nothing is under way: neither a batch undecided nor one that the domain has not admitted. So an
// idle cluster writes nothing to its log, and a busy one asks once for each grant.
#pragma once

#include <cstdint>
#include <functional>

#include "proxy/config.hpp"
#include "timebubble/bubble_sizer.hpp"

struct event;
struct event_base;

namespace crane::proxy {

class Bubbles {
  public:
    /// `cluster_ns` tells the cluster's time, in which the domain's deadlines are.
    Bubbles(event_base* base, const Config& config, std::function<uint64_t()> cluster_ns);
    ~Bubbles();
    Bubbles(const Bubbles&) = delete;
    Bubbles& operator=(const Bubbles&) = delete;

    /// Should an empty batch be proposed now? If later, a timer is set that ends the loop's sleep.
    bool due(const timebubble::DomainStatus& status, bool under_way);
    /// A batch goes into the ring now: for measuring the domain's speed.
    void fed(const timebubble::DomainStatus& status);
    uint64_t grant(uint64_t calls, bool more_waiting) { return sizer_.next(calls, more_waiting); }
    void proposed_bubble() { ++bubbles_; }
    uint64_t bubbles() const { return bubbles_; }

  private:
    void wake_after_ns(uint64_t delay_ns);
    void note_ask(const timebubble::DomainStatus& status);

    std::function<uint64_t()> cluster_ns_;
    bool enabled_;
    uint64_t w_timeout_ns_;
    timebubble::BubbleSizer sizer_;
    event* timer_;
    uint64_t asked_since_ns_ = 0;
    uint64_t sample_ns_ = 0;
    uint64_t sample_clock_ = 0;
    uint64_t bubbles_ = 0;
};

}  // namespace crane::proxy
