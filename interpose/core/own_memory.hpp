// The memory that this process shares with the others of its domain and with craned: a program that unmaps
// all that /proc/self/maps lists would else end, with what it was in the midst of, at a place where nobody
// can go on for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

struct OwnRange {
    uintptr_t from, to;
};

constexpr int kOwnRanges = 4;

/// In the order of their addresses; those that are not mapped are empty and come first.
void own_ranges(OwnRange ranges[kOwnRanges]);
/// Whether any of it lies there.
bool is_own_memory(const void* place, size_t bytes);

}  // namespace crane::interpose
