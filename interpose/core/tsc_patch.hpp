// Reads of the time stamp counter that come again and again are patched in place: a jump to a piece of code
// that reads virtual time costs some 30 ns, the fault and its handler a hundred times as much. MariaDB reads
// the counter 250 times a transaction.
//
// Rules:
//  - a place that is patched gives the same values as one that faults, so it does not matter when, and
//    whether, it is patched;
//  - only under `serial`, where no other thread is in the midst of the code that changes;
//  - only code of a file, which nobody makes anew while it runs; and only where what has to make room for the
//    jump can stand elsewhere (x86_code.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

/// What the patched code calls: the counter as the thread is to see it.
using TscReader = uint64_t (*)();

/// Called at each fault of an instruction of `bytes` bytes at `at` (rdtsc, or rdtscp, which clears rcx as
/// well); patches it when it has come often enough. True: it is another instruction now.
bool note_tsc_fault(uint64_t at, size_t bytes, TscReader read);

}  // namespace crane::interpose
