#include "interpose/core/size_limit.hpp"

#include "interpose/core/signal_queue.hpp"
#include "interpose/core/signals.hpp"

namespace crane::interpose {

long after_growth(long result) {
    if (__builtin_expect(result != -EFBIG, 1)) return result;
    rlimit limit{};
    raw(SYS_prlimit64, 0, RLIMIT_FSIZE, nullptr, &limit);
    // Without one it was the file system's bound, which is said by the error alone.
    if (limit.rlim_cur == RLIM_INFINITY || !self.active) return result;
    const Operation turn(Op::kSignal, own_key());
    post_signal(runtime.process_index, signal_from_self(SIGXFSZ, SI_USER), self.slot);
    return result;
}

}  // namespace crane::interpose
