#include "interpose/core/runtime.hpp"

#include <linux/futex.h>

#include <atomic>
#include <cstring>

#include "interpose/core/backstop.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/file_identity.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/vdso.hpp"
#include "interpose/core/watched_files.hpp"
#include "timebubble/batch.hpp"

namespace crane::interpose {

using timebubble::AdmissionRule;
using timebubble::AdmissionStep;
using timebubble::OutputKind;

// --- output

uint8_t* reserve_output(size_t bytes) {
    return timebubble::OutputRing(runtime.view, runtime.doorbell_fd).reserve(bytes);
}

void emit_reserved(OutputKind kind, uint64_t connection, uint16_t flags, size_t bytes, bool ring) {
    timebubble::OutputRing output(runtime.view, runtime.doorbell_fd);
    timebubble::OutputHeader header{static_cast<uint32_t>(bytes), kind, flags, connection, 0, 0};
    if (runtime.domain) {
        header.clock = domain().scheduler.clock;
        header.schedule_hash = domain().scheduler.hash;
        domain().output_unannounced = !ring;
    }
    output.commit(header);
    if (ring) output.ring();
}

void emit(OutputKind kind, uint64_t connection, uint16_t flags, const void* payload, size_t bytes,
          bool ring) {
    uint8_t* place = reserve_output(bytes);
    if (bytes) std::memcpy(place, payload, bytes);
    emit_reserved(kind, connection, flags, bytes, ring);
}

void report(const char* text) {
    emit(OutputKind::kMessage, 0, 0, text, strlen(text));
}

void refuse_call(const char* what) {
    char text[200] = "not possible under Crane: ";
    const size_t start = strlen(text);
    const size_t bytes = strlen(what) < sizeof(text) - start - 1 ? strlen(what) : sizeof(text) - start - 1;
    std::memcpy(text + start, what, bytes);
    text[start + bytes] = 0;
    report(text);
}

void refuse_domain(const char* why, timebubble::Attachment how) {
    if (runtime.view.control) {
        timebubble::DomainStatus& status = runtime.view.control->status;
        strncpy(status.refusal, why, sizeof(status.refusal) - 1);
        status.attachment.store(static_cast<uint32_t>(how), std::memory_order_release);
    }
    raw(SYS_write, 2, "crane: ", 7);
    raw(SYS_write, 2, why, strlen(why));
    raw(SYS_write, 2, "\n", 1);
    // This may be a child, whose end craned does not see, and who waits for input may be gone.
    if (runtime.view.control) raw(SYS_write, runtime.doorbell_fd, "!", 1);
    raw(SYS_exit_group, 125);
    __builtin_unreachable();
}

// --- hooks of the scheduler

namespace {

void publish_status() {
    const dmt::State& s = domain().scheduler;
    timebubble::DomainStatus& status = runtime.view.control->status;
    status.clock.store(s.clock, std::memory_order_relaxed);
    status.schedule_hash.store(s.hash, std::memory_order_relaxed);
    status.virtual_now_ns.store(s.now_ns, std::memory_order_relaxed);
    status.threads.store(s.used, std::memory_order_relaxed);
    status.handovers.store(s.handovers, std::memory_order_relaxed);
    status.wakeups.store(s.wakeups, std::memory_order_relaxed);
}

void admit(const timebubble::InputHeader* record) {
    timebubble::BatchDecoder batch;
    const auto* bytes = reinterpret_cast<const uint8_t*>(record + 1);
    if (!batch.open(bytes, record->bytes))
        refuse_domain("a decided batch is malformed: craned and shim differ?");
    DomainState& d = domain();
    const uint64_t index = record->index;
    timebubble::DomainStatus& status = runtime.view.control->status;
    AdmissionRule(d.admission).admitted(index, d.scheduler.clock, batch.header().grant_clocks);
    // Time first: what the calls wake reads the batch's own time.
    scheduler().advance_time(batch.header().timestamp_ns);
    if (!d.genesis_seen) {
        d.monotonic_offset_ns = d.scheduler.now_ns - kUptimeAtStartNs;
        d.genesis_seen = 1;
    }
    d.admitted_calls = batch.header().calls;
    if (batch.header().calls == 0) status.bubbles.fetch_add(1, std::memory_order_relaxed);
    timebubble::Call call;
    while (batch.next(call)) {
        apply_call(static_cast<uint16_t>(call.kind), call.connection, call.payload.data(),
                   call.payload.size());
    }
    timebubble::InputRing(runtime.view).pop();
    const timebubble::AdmittedRecord admitted{index, d.scheduler.clock};
    emit(OutputKind::kAdmitted, 0, 0, &admitted, sizeof(admitted));
    status.asks.store(0, std::memory_order_relaxed);
    status.grant_end.store(d.admission.grant_end, std::memory_order_relaxed);
    status.admitted_index.store(index, std::memory_order_release);
    publish_status();
}

/// Tells craned that the leader should propose now, and why.
void ask() {
    runtime.view.control->status.asks.store(1, std::memory_order_seq_cst);
    timebubble::OutputRing(runtime.view, runtime.doorbell_fd).ring();
}

/// An image is taken while every thread sleeps in here, and does not hold what the kernel was told of the
/// time stamp counter and of system calls: a thread that wakes says it again. The first of all also says that
/// the files are others, and as if changed since then at most.
void look_for_restore() {
    const uint32_t image = runtime.view.control->image;
    if (image == self.image) return;
    self.image = image;
    install_tsc_trap();
    if (self.active) start_backstop();
    lead_kernel_functions();
    const uint64_t files_since_ns = runtime.view.control->settings.files_since_ns;
    std::atomic_ref<uint64_t> since_ns(domain().real_start_ns);
    std::atomic_ref<uint32_t> found(domain().image);
    if (since_ns.exchange(files_since_ns) != files_since_ns) {
        raw(SYS_sched_getaffinity, 0, sizeof(domain().given_cpus), &domain().given_cpus);
        find_files_again();
        watch_again();
        found.store(image, std::memory_order_release);
    }
    while (found.load(std::memory_order_acquire) != image) __builtin_ia32_pause();
}

void wait_for_batch(bool quiescent) {
    timebubble::DomainStatus& status = runtime.view.control->status;
    publish_status();
    if (quiescent) {
        const uint64_t deadline = scheduler().earliest_deadline_ns();
        status.deadline_ns.store(deadline, std::memory_order_relaxed);
        status.quiescent.store(1, std::memory_order_seq_cst);
        if (deadline != domain().published_deadline_ns || domain().output_unannounced) {
            domain().published_deadline_ns = deadline;
            domain().output_unannounced = 0;
            timebubble::OutputRing(runtime.view, runtime.doorbell_fd).ring();
        }
    } else {
        ask();
    }
    {
        const CallsPass pass;
        timebubble::InputRing(runtime.view).sleep_until_rung();
    }
    look_for_restore();
    if (quiescent) status.quiescent.store(0, std::memory_order_relaxed);
}

void on_input(void*, bool quiescent) {
    DomainState& d = domain();
    AdmissionRule rule(d.admission);
    timebubble::InputRing ring(runtime.view);
    for (;;) {
        const uint64_t clock = d.scheduler.clock;
        const timebubble::InputHeader* record = ring.front();
        switch (rule.next(clock, quiescent, record != nullptr)) {
            case AdmissionStep::kAdmit:
                admit(record);
                if (quiescent) {
                    d.scheduler.check_clock = rule.check_clock(clock);
                    return;
                }
                break;
            case AdmissionStep::kWait:
                wait_for_batch(quiescent);
                break;
            case AdmissionStep::kRun:
                if (rule.should_ask(clock)) {
                    d.admission.asked = 1;
                    if (!record) ask();
                }
                d.scheduler.check_clock = rule.check_clock(clock);
                publish_status();
                return;
        }
    }
}

void sleep_until_granted(dmt::Slot& slot) {
    const CallsPass pass;
    for (uint32_t i = domain().scheduler.spin; i > 0; --i) {
        if (slot.wake.load(std::memory_order_acquire) == dmt::kGranted && slot.generation == self.generation)
            return;
        __builtin_ia32_pause();
    }
    for (;;) {
        // The slot may have been given to another thread while this one's process was ending: sleep for good.
        const bool mine = slot.generation == self.generation;
        if (mine && slot.wake.load(std::memory_order_acquire) == dmt::kGranted) return;
        uint32_t expected = dmt::kNotGranted;
        slot.wake.compare_exchange_strong(expected, dmt::kAsleep, std::memory_order_acq_rel);
        if (mine && expected == dmt::kGranted) return;
        if (!mine) {
            raw(SYS_pause);
            continue;
        }
        raw(SYS_futex, &slot.wake, FUTEX_WAIT, dmt::kAsleep, 0, 0, 0);
    }
}

void park(void*, dmt::Slot& slot) {
    sleep_until_granted(slot);
    look_for_restore();
}

void unpark(void*, dmt::Slot& slot) {
    ++domain().scheduler.wakeups;
    // All: a thread of an ending process may still sleep on the word of a slot that has a new owner.
    raw(SYS_futex, &slot.wake, FUTEX_WAKE, 0x7fffffff, 0, 0, 0);
}

void resumed(void*) {
    await_ended_thread();
    await_ended_process();
    if (__builtin_expect(domain().opaque_started != 0, 0)) settle_opaque();
}

/// What may still change this is craned's word, or the end of the domain.
void stand(void*) {
    Gate& gate = runtime.view.control->gate;
    for (;;) {
        const uint32_t word = gate.word.load(std::memory_order_acquire);
        const uint64_t clock = gate.clock.load(std::memory_order_acquire);
        const Place told{clock, gate.steps.load(std::memory_order_relaxed)};
        if (told.clock == 0 || scheduler().place() < told) {
            gate.stopped.store(0, std::memory_order_seq_cst);
            if (gate.word.load(std::memory_order_seq_cst) == word) return;  // else it may be closed again
            continue;
        }
        gate.stopped.store(1, std::memory_order_release);
        raw(SYS_futex, &gate.word, FUTEX_WAIT, word, 0, 0, 0);
    }
}

}  // namespace

dmt::Hooks scheduler_hooks() {
    return {nullptr, on_input, park, unpark, resumed, stand, &runtime.view.control->gate};
}

}  // namespace crane::interpose
