// Which process is the server: the one whose end is the domain's, and to whom the operator's signals go.
//
// At first the one that craned started. Daemons start another one that goes on in their stead, and end well:
// then that one is the server. The first process itself stays, unscheduled and without a descriptor, as the
// parent of all that are left without one: images are taken of its tree, and crane-init waits for it.
#pragma once

#include <cstdint>

namespace crane::interpose {

/// Index of the process that goes on as the server when this one, which is it, ends with that wait status;
/// kNone: the domain ends with it. Turn in hand.
uint32_t heir_of_main(int wait_status);
/// Makes that process the server. Turn in hand.
void pass_main_to(uint32_t heir);
/// This process is the one that craned started.
bool is_first_process();
/// What the others see of this process's end though it stays: all that it has open is closed, and nothing is
/// sent to it.
void vanish();
/// Whether it is that one.
bool has_vanished(int pid);
/// The rest of the first process's life: waits for all that die below it, and ends as the server ends.
[[noreturn]] void stay_for_the_others();

}  // namespace crane::interpose
