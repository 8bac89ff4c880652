#include "proxy/domain_link.hpp"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace crane::proxy {

using namespace timebubble;

namespace {

/// Not the PRIVATE kind: the sleeper is in another process.
void futex_wake(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

constexpr size_t kFreeStepBytes = 1024 * 1024;

}  // namespace

DomainLink::DomainLink(const TransportView& view) : view_(view) {}

void DomainLink::prepare(const DomainSettings& settings) {
    Control& control = *view_.control;
    control.version = kTransportVersion;
    control.settings = settings;
    std::atomic_thread_fence(std::memory_order_release);
    control.magic = kTransportMagic;
}

bool DomainLink::feed(uint64_t index, std::string_view batch) {
    Ring& ring = view_.control->input;
    const uint64_t head = ring.head.load(std::memory_order_relaxed);
    const uint64_t tail = ring.tail.load(std::memory_order_acquire);
    const size_t need = sizeof(InputHeader) + padded(batch.size());
    if (head - tail > kInputRingBytes || kInputRingBytes - (head - tail) < need) return false;
    uint8_t* at = view_.input + head % kInputRingBytes;
    const InputHeader header{static_cast<uint32_t>(batch.size()), 0, index};
    memcpy(at, &header, sizeof(header));
    memcpy(at + sizeof(header), batch.data(), batch.size());
    ring.head.store(head + need, std::memory_order_release);
    ++fed_;
    last_fed_index_ = index;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ring.waiting.load(std::memory_order_relaxed) && ring.waiting.exchange(0)) {
        ring.doorbell.fetch_add(1);
        futex_wake(ring.doorbell);
        ++wakeups_;
    }
    return true;
}

void DomainLink::free_output(uint64_t tail) {
    Ring& ring = view_.control->output;
    ring.tail.store(tail, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ring.producer_waiting.load(std::memory_order_relaxed)) {
        ring.producer_waiting.store(0);
        futex_wake(ring.producer_waiting);
    }
}

size_t DomainLink::drain(const Handler& handler, size_t max_bytes) {
    Ring& ring = view_.control->output;
    const uint64_t head = ring.head.load(std::memory_order_acquire);
    uint64_t tail = ring.tail.load(std::memory_order_relaxed);
    if (head == tail) return 0;
    if (head - tail > kOutputRingBytes) {
        throw std::runtime_error(
            "the server has overwritten the output ring (head and tail do not fit together)");
    }
    size_t records = 0;
    const uint64_t end = tail + max_bytes;
    uint64_t freed = tail;
    while (tail < head && tail < end) {
        const uint8_t* at = view_.output + tail % kOutputRingBytes;
        OutputHeader header;
        memcpy(&header, at, sizeof(header));
        const size_t need = sizeof(header) + padded(header.bytes);
        if (header.bytes > kMaxOutputPayload || head - tail < need) {
            throw std::runtime_error(
                "the server has overwritten the output ring (a record is not well formed)");
        }
        if (header.kind == OutputKind::kAdmitted) ++admitted_;
        handler(header, {reinterpret_cast<const char*>(at + sizeof(header)), header.bytes});
        tail += need;
        ++records;
        if (tail - freed >= kFreeStepBytes) free_output(freed = tail);
    }
    if (freed != tail) free_output(tail);
    return records;
}

bool DomainLink::prepare_sleep() {
    Ring& ring = view_.control->output;
    ring.waiting.store(1, std::memory_order_seq_cst);
    return ring.head.load(std::memory_order_seq_cst) == ring.tail.load(std::memory_order_relaxed);
}

bool DomainLink::at_rest() const {
    const Control& control = *view_.control;
    return control.status.quiescent.load(std::memory_order_seq_cst) &&
           control.output.head.load(std::memory_order_seq_cst) ==
               control.output.tail.load(std::memory_order_relaxed);
}

void DomainLink::awake() {
    view_.control->output.waiting.store(0, std::memory_order_relaxed);
}

}  // namespace crane::proxy
