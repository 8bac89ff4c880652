#include "proxy/loop_lag.hpp"

#include <inttypes.h>
#include <stdio.h>

namespace crane::proxy {

void LoopLag::worked(const char* name, uint64_t ns) {
    if (ns <= work_ns_) return;
    work_ns_ = ns;
    work_ = name;
}

uint64_t LoopLag::observe(uint64_t now_ns, uint64_t waited_ns) {
    const uint64_t due_ns = rang_ns_ + period_ns_;
    const uint64_t late_ns = rang_ns_ != 0 && now_ns > due_ns ? now_ns - due_ns : 0;
    last_ = {late_ns, now_ns, "callbacks"};
    if (work_ns_ >= late_ns / 2) last_.held_up_by = work_;
    if (waited_ns - waited_ns_ >= late_ns / 2) last_.held_up_by = "no CPU";
    if (late_ns > longest_.ns) longest_ = last_;
    rang_ns_ = now_ns;
    waited_ns_ = waited_ns;
    work_ns_ = 0;
    work_ = "";
    return late_ns;
}

uint64_t waited_for_cpu_ns() {
    uint64_t waited_ns = 0;
    if (FILE* file = fopen("/proc/thread-self/schedstat", "re")) {
        if (fscanf(file, "%*u %" SCNu64, &waited_ns) != 1) waited_ns = 0;
        fclose(file);
    }
    return waited_ns;
}

}  // namespace crane::proxy
