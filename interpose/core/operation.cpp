#include "interpose/core/operation.hpp"
#include "interpose/core/raw.hpp"

namespace crane::interpose {

void trace_operation(Op op, const void* caller, uint64_t object, uint64_t second) {
    const dmt::State& state = domain().scheduler;
    const TraceRecord record{
        state.clock, self.slot, static_cast<uint32_t>(op), reinterpret_cast<uint64_t>(caller), state.now_ns,
        object,      second};
    raw(SYS_write, runtime.trace_fd, &record, sizeof(record));
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
