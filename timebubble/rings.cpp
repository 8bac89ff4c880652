#include "timebubble/rings.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <cstring>

namespace crane::timebubble {

namespace {

/// A bare system call: the libc function of that name may be the shim's own wrapper, and errno is the
/// program's.
long raw_syscall4(long number, long a, long b, long c, long d) noexcept {
    long result;
    register long r10 asm("r10") = d;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                 : "rcx", "r11", "memory");
    return result;
}

constexpr uint64_t kInputMask = kInputRingBytes - 1, kOutputMask = kOutputRingBytes - 1;

}  // namespace

void futex_sleep(std::atomic<uint32_t>& word, uint32_t value) noexcept {
    raw_syscall4(SYS_futex, reinterpret_cast<long>(&word), FUTEX_WAIT, value, 0);
}

void futex_wake(std::atomic<uint32_t>& word) noexcept {
    raw_syscall4(SYS_futex, reinterpret_cast<long>(&word), FUTEX_WAKE, 1, 0);
}

const InputHeader* InputRing::front() const noexcept {
    const Ring& ring = view_.control->input;
    const uint64_t tail = ring.tail.load(std::memory_order_relaxed);
    if (ring.head.load(std::memory_order_acquire) == tail) return nullptr;
    return reinterpret_cast<const InputHeader*>(view_.input + (tail & kInputMask));
}

void InputRing::pop() noexcept {
    Ring& ring = view_.control->input;
    const uint64_t tail = ring.tail.load(std::memory_order_relaxed);
    const auto* header = reinterpret_cast<const InputHeader*>(view_.input + (tail & kInputMask));
    ring.tail.store(tail + sizeof(InputHeader) + padded(header->bytes), std::memory_order_release);
}

void InputRing::sleep_until_rung() noexcept {
    Ring& ring = view_.control->input;
    const uint32_t seen = ring.doorbell.load(std::memory_order_acquire);
    ring.waiting.store(1, std::memory_order_seq_cst);
    if (front() == nullptr) futex_sleep(ring.doorbell, seen);
    ring.waiting.store(0, std::memory_order_relaxed);
}

uint8_t* OutputRing::reserve(size_t bytes) noexcept {
    Ring& ring = view_.control->output;
    const uint64_t head = ring.head.load(std::memory_order_relaxed);
    const size_t need = sizeof(OutputHeader) + padded(bytes);
    while (head + need - ring.tail.load(std::memory_order_acquire) > kOutputRingBytes) {
        ring.producer_waiting.store(1, std::memory_order_seq_cst);
        this->ring();
        if (head + need - ring.tail.load(std::memory_order_seq_cst) <= kOutputRingBytes) break;
        futex_sleep(ring.producer_waiting, 1);
    }
    return view_.output + (head & kOutputMask) + sizeof(OutputHeader);
}

void OutputRing::commit(const OutputHeader& header) noexcept {
    Ring& ring = view_.control->output;
    const uint64_t head = ring.head.load(std::memory_order_relaxed);
    std::memcpy(view_.output + (head & kOutputMask), &header, sizeof(header));
    ring.head.store(head + sizeof(OutputHeader) + padded(header.bytes), std::memory_order_seq_cst);
}

void OutputRing::ring() noexcept {
    Ring& ring = view_.control->output;
    if (ring.waiting.load(std::memory_order_seq_cst) == 0) return;
    if (ring.waiting.exchange(0, std::memory_order_acq_rel) == 0) return;
    view_.control->status.doorbells.fetch_add(1, std::memory_order_relaxed);
    const char bell = 1;
    raw_syscall4(SYS_write, doorbell_fd_, reinterpret_cast<long>(&bell), 1, 0);
}

}  // namespace crane::timebubble
