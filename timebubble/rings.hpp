// The domain's ends of the two rings. Used only by the thread that has the turn. No allocation, no
// exceptions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "timebubble/transport.hpp"

namespace crane::timebubble {

/// Sleeps on `word` while it holds `value`; returns on a wake, a signal, or at once if it differs.
void futex_sleep(std::atomic<uint32_t>& word, uint32_t value) noexcept;
void futex_wake(std::atomic<uint32_t>& word) noexcept;

/// The consumer's end of the input ring.
class InputRing {
  public:
    explicit InputRing(TransportView& view) : view_(view) {}
    /// The oldest record, or nullptr. Its batch follows it. Valid until pop().
    const InputHeader* front() const noexcept;
    void pop() noexcept;
    /// Sleeps until front() may have changed.
    void sleep_until_rung() noexcept;

  private:
    TransportView& view_;
};

/// The producer's end of the output ring.
class OutputRing {
  public:
    OutputRing(TransportView& view, int doorbell_fd) : view_(view), doorbell_fd_(doorbell_fd) {}
    /// Room for a payload of up to `bytes` (at most kMaxOutputPayload), in one piece. Sleeps while the ring
    /// is full.
    uint8_t* reserve(size_t bytes) noexcept;
    /// Publishes the record whose payload was written to reserve()'s place.
    void commit(const OutputHeader& header) noexcept;
    /// Wakes craned if it sleeps.
    void ring() noexcept;

  private:
    TransportView& view_;
    int doorbell_fd_;
};

}  // namespace crane::timebubble
