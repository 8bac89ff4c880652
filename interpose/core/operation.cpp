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

}  // namespace crane::interpose
