#include "interpose/core/signal_targets.hpp"

#include "interpose/core/signal_queue.hpp"

namespace crane::interpose {

namespace {

ThreadExtra& own() {
    return domain().threads[self.slot];
}

bool is_of(dmt::SlotId slot, uint32_t process) {
    const dmt::Slot& s = domain().scheduler.slots[slot];
    return s.process == process && s.state != dmt::SlotState::kFree;
}

}  // namespace

bool waits_for(dmt::SlotId slot, int signal) {
    return domain().threads[slot].waiting_signals & signal_bit(signal);
}

dmt::SlotId choose_thread(uint32_t process, int signal) {
    DomainState& d = domain();
    dmt::SlotId chosen = dmt::kNoSlot, waiting = dmt::kNoSlot;
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot) {
        if (!is_of(slot, process)) continue;
        if (waits_for(slot, signal)) {
            if (d.scheduler.slots[slot].state == dmt::SlotState::kWaiting) return slot;
            // It has been woken, perhaps for another signal: others that still sleep come first.
            if (waiting == dmt::kNoSlot) waiting = slot;
            continue;
        }
        if (d.threads[slot].mask & signal_bit(signal)) continue;
        if (chosen == dmt::kNoSlot || slot == d.processes[process].main_slot) chosen = slot;
    }
    return waiting != dmt::kNoSlot ? waiting : chosen;
}

void note_choice(uint32_t process, int signal, dmt::SlotId chosen) {
    DomainState& d = domain();
    const uint64_t bit = signal_bit(signal);
    if (!(d.processes[process].pending.set & bit)) {  // what was noted is of one that was taken
        for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
            if (is_of(slot, process)) d.threads[slot].chosen_for &= ~bit;
    }
    if (chosen != dmt::kNoSlot) d.threads[chosen].chosen_for |= bit;
}

uint64_t not_for_others(uint64_t set) {
    const DomainState& d = domain();
    uint64_t open = set & ~own().chosen_for, others = 0;
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water && open != 0; ++slot) {
        if (!is_of(slot, runtime.process_index)) continue;
        // What that one has blocked since, it takes as little as it passes it on before its operation ends.
        const ThreadExtra& other = d.threads[slot];
        others |= open & other.chosen_for & (~other.mask | other.waiting_signals);
        open &= ~others;
    }
    return set & ~others;
}

bool blocks_what_it_is_chosen_for() {
    return (own().chosen_for & own().mask & runtime.process->pending.set) != 0;
}

void pass_on_signals() {
    const uint64_t given_up = own().chosen_for & own().mask;
    own().chosen_for &= ~given_up;
    for (uint64_t left = given_up & runtime.process->pending.set; left != 0; left &= left - 1) {
        const int signal = 1 + __builtin_ctzll(left);
        const dmt::SlotId next = choose_thread(runtime.process_index, signal);
        if (next == dmt::kNoSlot) continue;
        note_choice(runtime.process_index, signal, next);
        scheduler().interrupt(next);
    }
}

void pass_on_all_signals() {
    own().mask = ~uint64_t{0};
    own().waiting_signals = 0;
    pass_on_signals();
}

}  // namespace crane::interpose
