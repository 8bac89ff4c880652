// Further names of real.hpp's list: clocks, entropy, files, machine. One line a family.
#pragma once

#include <sys/timex.h>

// clang-format off
#define CRANE_REAL_FAMILIES(X) \
    X(clock_getres) X(clock_settime) X(settimeofday) X(adjtime) X(adjtimex) X(clock_adjtime) X(clock) X(times) \
    X(getrusage) X(timespec_get) X(timer_create) X(timer_settime) X(timer_gettime) X(timer_delete) \
    X(timer_getoverrun) X(ualarm)
// clang-format on
