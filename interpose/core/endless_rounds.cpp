#include "interpose/core/endless_rounds.hpp"

#include <algorithm>

#include "interpose/core/frame_state.hpp"
#include "interpose/core/operation.hpp"
#include "interpose/core/pauses.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/state_cycle.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/core/x86_length.hpp"
#include "timebubble/look.hpp"

/// Where the shim's own code begins and ends, from the linker.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[], _etext[];

namespace crane::interpose {

namespace {

constexpr greg_t kTrapFlag = 0x100;
/// Of the first search at one place in the schedule; each further one may take twice as many.
constexpr uint32_t kFirstSteps = 8192, kMostSteps = 1 << 17;

constexpr uint32_t kMostWaysInVain = 16;

enum class Stage : uint8_t {
    kNone,
    kSearch,   ///< for a round
    kMeasure,  ///< goes through it once more: where does it close?
    kReturn,   ///< to there
};

/// Only the thread with the turn looks at itself, so there is one of these in a process.
struct Search {
    Stage stage;
    dmt::SlotId slot;
    uint64_t clock;  ///< where the latest began
    uint32_t most_steps;
    uint32_t left;  ///< steps of the round
    StateCycle cycle;
    RoundTop top;
};
Search search;

bool may_follow() {
    return runtime.scheduled && self.active && domain().trap_pauses && serial() &&
           scheduler().holds_turn(self.slot) && !scheduler().is_at_work();
}

bool is_own(uint64_t place) {
    return place >= reinterpret_cast<uint64_t>(__ehdr_start) && place < reinterpret_cast<uint64_t>(_etext);
}

/// Another thread may have begun a search since this one's was over: that one goes on.
void stop(ucontext_t& context) {
    context.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    if (search.stage == Stage::kNone || search.slot != self.slot) return;
    search.stage = Stage::kNone;
    step_on_signal_stack(false);
}

void begin(ucontext_t& context) {
    // In the midst of a step, whose own context goes on with it, or elsewhere in the shim: another time.
    if (search.stage != Stage::kNone || is_own(registers_of(context).instruction)) return;
    if (!may_follow() || !others_may_come()) return;
    const uint64_t clock = scheduler().place().clock;
    const bool again = search.clock == clock && search.slot == self.slot && search.most_steps != 0;
    search.most_steps = again ? std::min(search.most_steps * 2, kMostSteps) : kFirstSteps;
    search.clock = clock;
    search.slot = self.slot;
    search.stage = Stage::kSearch;
    search.cycle.begin(search.most_steps);
    step_on_signal_stack(true);
    context.uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}

/// `place`: of a jump that is taken nowhere else in the round, or 0.
void close_round(uint64_t place, ucontext_t& context) {
    if (place != 0 && trap_jump_at(place)) return;
    stop(context);  // as a handler may run, and take long
    // Looking again takes long: it naps at once where nobody else can go on.
    self.spins.in_vain = kMostWaysInVain;
    leave_loops_in_place(static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]));
    make_way(Awaited::kSearched);
}

/// The thread is about to make a step. False: the search is over.
bool follow(const Registers& now, const uint8_t* code, size_t bytes, ucontext_t& context) {
    if (search.stage == Stage::kSearch) {
        const StateCycle::Verdict verdict =
            search.cycle.step(now, vectors_of(context), code, bytes, thread_base());
        if (verdict == StateCycle::Verdict::kGoOn) return true;
        if (verdict == StateCycle::Verdict::kGivenUp) return false;
        search.stage = Stage::kMeasure;
        search.left = search.cycle.length();
        search.top.begin();
    }
    if (search.stage == Stage::kMeasure) {
        if (search.left > 0) {
            search.top.step(now, code, bytes);
            --search.left;
            return true;
        }
        search.stage = Stage::kReturn;
        search.left = search.cycle.length();
    }
    if (!search.top.found()) return false;
    if (search.top.is_at(now)) {
        close_round(search.top.place(), context);
        return false;
    }
    return search.left-- > 0;
}

/// A trap in the place of a jump is gone through here: behind its handler a step would be missed. One that is
/// taken gives way, and ends the search.
void follow(ucontext_t& context) {
    for (;;) {
        const Registers now = registers_of(context);
        if (!may_follow() || is_own(now.instruction)) return stop(context);
        uint8_t trapped[kLongestJumpBytes], code[kLongestInstructionBytes];
        Jump jump{};
        if (read_trapped_jump(now.instruction, trapped, jump)) {
            if (jump.is_taken(now.flags)) return stop(context);
            if (!follow(now, trapped, jump.length, context)) return stop(context);
            context.uc_mcontext.gregs[REG_RIP] += jump.length;
            pass_trapped_jump(now.instruction);
            continue;
        }
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        const void* const at = reinterpret_cast<const void*>(now.instruction);
        const size_t bytes = sizeof(code) - crane_copy(code, at, sizeof(code));
        if (!follow(now, code, bytes, context)) stop(context);
        return;
    }
}

}  // namespace

void look_for_round(const siginfo_t& info, ucontext_t& context) {
    if (info.si_code == SI_QUEUE && reinterpret_cast<uint64_t>(info.si_ptr) == timebubble::kLookForRound)
        begin(context);
}

void leave_round(ucontext_t& context) {
    if (search.stage != Stage::kNone && search.slot == self.slot) stop(context);
}

bool follow_round(const siginfo_t& info, ucontext_t& context) {
    // Of a step that a virtual machine's host was in the midst of, the kernel may not know what it was for:
    // it is no TRAP_TRACE then. What a trap in the code is, pauses.hpp has taken.
    const bool from_kernel = info.si_code > 0 && info.si_code != SI_KERNEL;
    if (!from_kernel || search.stage == Stage::kNone || search.slot != self.slot) return false;
    follow(context);
    return true;
}

}  // namespace crane::interpose
