// Which thread a signal is for that was sent to its process. The one that is chosen is woken for it, so it is
// the one that takes it: another one that ends an operation earlier leaves it alone, unless it asks for it
// (sigwait, signalfd), or the chosen one blocks it meanwhile or ends. All of it in turns.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

bool waits_for(dmt::SlotId slot, int signal);
/// Who waits for it (sigwait), one that still sleeps first, else the main thread if that does not block it,
/// else the lowest slot that does not. kNoSlot: nobody.
dmt::SlotId choose_thread(uint32_t process, int signal);
/// Of a signal about to be pending for the process. kNoSlot: whoever lets it through first.
void note_choice(uint32_t process, int signal, dmt::SlotId chosen);
/// Those of `set`, pending for the process, that this thread may take without asking for them.
uint64_t not_for_others(uint64_t set);
/// True if this thread is chosen for what it blocks by now.
bool blocks_what_it_is_chosen_for();
/// Others are chosen for that, and woken. Turn in hand.
void pass_on_signals();
/// The thread ends.
void pass_on_all_signals();

}  // namespace crane::interpose
