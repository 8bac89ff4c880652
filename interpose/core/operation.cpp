#include "interpose/core/operation.hpp"

#include <algorithm>

#include "interpose/core/raw.hpp"
#include "interpose/core/virtual_time.hpp"
#include "timebubble/limits.hpp"

namespace crane::interpose {

void trace_operation(Op op, const void* caller, uint64_t object, uint64_t second) {
    const dmt::State& state = domain().scheduler;
    const TraceRecord record{
        state.clock, self.slot, static_cast<uint32_t>(op), reinterpret_cast<uint64_t>(caller), state.now_ns,
        object,      second};
    raw(SYS_write, runtime.trace_fd, &record, sizeof(record));
}

namespace {

/// How often in a row a thread makes way before it naps where nobody else could go on.
uint32_t patience(Awaited what) {
    return what == Awaited::kTime ? 0 : what == Awaited::kMemory || what == Awaited::kSearched ? 8 : 16;
}

/// Who is at work loses time by each nap, which may take as long as deciding on a bubble: some 5 % so.
bool naps_now(Awaited what, uint32_t in_vain) {
    constexpr uint32_t kSeldom = 8;
    return what != Awaited::kNothing || in_vain % kSeldom == 0;
}

/// Who waits for memory is woken by what others do. For the others it is below what deciding on a batch
/// takes, so that time never waits for a nap to end; longer for one that waits for ever. As long as looking
/// at it again takes where that is done each time.
uint64_t nap_ns(Awaited what, uint32_t in_vain) {
    constexpr uint32_t kManyTimes = 10'000;
    if (what == Awaited::kSearched) return 250'000'000;
    const bool for_ever = what != Awaited::kNothing && in_vain >= kManyTimes;
    return what == Awaited::kMemory || for_ever ? 5'000'000 : 250'000;
}

}  // namespace

void make_way(Awaited what) {
    constexpr uint32_t kMostYields = 4096;  // where others go on, but nothing comes of it for this thread
    const uint32_t in_vain = self.spins.in_vain;
    // Several that spin would else keep each other from their naps. (Under `parallel` a thread may stand in
    // the run queue while it computes, and those spin beside each other.)
    if (serial()) scheduler().set_spinning(self.slot, in_vain >= patience(what));
    Operation turn(Op::kYield, own_key());
    if (serial()) scheduler().set_spinning(self.slot, false);
    const bool alone = !scheduler().others_can_work();
    if (in_vain < (alone ? patience(what) : kMostYields) || !naps_now(what, in_vain))
        turn.yield();
    else if (!interruption_due())
        scheduler().nap(self.slot, static_cast<uint32_t>(Op::kYield),
                        now_realtime_ns() + nap_ns(what, in_vain));
    self.spins.in_vain = in_vain + 1;
}

bool others_may_come() {
    const dmt::State& state = domain().scheduler;
    const auto from_outside = [](uint32_t operation) {
        switch (static_cast<Op>(operation)) {
            case Op::kAccept:
            case Op::kConnect:
            case Op::kReceive:
            case Op::kSend:
            case Op::kPoll:
            case Op::kEpollWait:
            case Op::kResolve:
                return true;
            default:
                return false;
        }
    };
    const auto may_come = [&](const dmt::Slot& other) {
        switch (other.state) {
            case dmt::SlotState::kFree:
                return false;
            case dmt::SlotState::kWaiting:
                if (static_cast<Op>(other.operation) == Op::kYield) return false;  // it naps
                return other.deadline_ns != dmt::kNoDeadline || from_outside(other.operation);
            default:
                return other.spinning == 0;
        }
    };
    for (dmt::SlotId slot = 0; slot < state.high_water; ++slot)
        if (slot != self.slot && may_come(state.slots[slot])) return true;
    return false;
}

namespace {

/// Lets in what was decided while the thread computed. With clients calling, batches wait that are as old as
/// that computing is long, each for a nap of its own. A bubble is proposed when none waits: it tells the time
/// as it is, but for one that was asked for while the thread still computed.
void catch_up() {
    constexpr uint64_t kMost = timebubble::kBatchesUnderWay + 2, kMuchNs = 20'000'000;
    if (!serial())
        return make_way(Awaited::kTime);  // what others admit meanwhile is no matter of the schedule
    const DomainState& d = domain();
    const uint64_t begin_ns = now_realtime_ns();
    for (uint64_t i = 0; i < kMost; ++i) {
        const uint64_t index = d.admission.admitted_index;
        const bool asked = d.admission.asked != 0;
        make_way(Awaited::kTime);
        if (d.admission.admitted_index == index || now_realtime_ns() - begin_ns >= kMuchNs) return;
        if (d.admitted_calls == 0 && !asked) return;
    }
}

}  // namespace

void let_time_pass() {
    // More than deciding on a batch takes; so much that looking more often costs little beside it; and a
    // measure that doubles what it computes has gone on for long with so many readings.
    constexpr uint64_t kSomeNs = 2'000'000, kMuchNs = 20'000'000;
    constexpr uint32_t kClose = 6;
    // There a turn costs the round of all threads.
    if (!serial() && self.readings.count < kMostCheapCalls) {
        self.readings.most = kMostCheapCalls;
        return;
    }
    Readings readings = self.readings;
    const uint64_t before_ns = now_realtime_ns();
    catch_up();
    const uint64_t passed_ns = now_realtime_ns() - before_ns;
    const bool again = passed_ns >= kSomeNs && readings.most != 1;
    ++readings.let_in;
    if (passed_ns >= kMuchNs) {
        readings.spacing = Readings{}.spacing;
        readings.let_in = 0;
    } else if (readings.let_in > kClose) {
        readings.spacing = std::min(readings.spacing + readings.spacing / 2, kMostCheapCalls);
    }
    readings.count = 0;
    readings.most = again ? 1 : readings.spacing;
    self.readings = readings;
}

dmt::WaitResult Operation::outlast(uint64_t key, uint64_t deadline_ns, bool contends, uint64_t set_mask) {
    const dmt::WaitResult result = interruption_due()
                                       ? dmt::WaitResult::kInterrupted
                                       : scheduler().wait(self.slot, static_cast<uint32_t>(op_), key,
                                                          set_mask, deadline_ns, true, contends);
    if (result != dmt::WaitResult::kInterrupted) return result;
    deliver_signals();
    scheduler().get_turn(self.slot);
    return dmt::WaitResult::kSignaled;
}

}  // namespace crane::interpose
