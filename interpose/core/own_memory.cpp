#include "interpose/core/own_memory.hpp"

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

namespace {

OwnRange range_of(const void* place, size_t bytes) {
    const auto from = reinterpret_cast<uintptr_t>(place);
    return place ? OwnRange{from, from + bytes} : OwnRange{0, 0};
}

}  // namespace

void own_ranges(OwnRange ranges[kOwnRanges]) {
    ranges[0] = range_of(runtime.domain, sizeof(DomainState));
    ranges[1] = range_of(runtime.view.control, timebubble::kControlBytes);
    // A ring is mapped twice, one behind the other.
    ranges[2] = range_of(runtime.view.input, 2 * timebubble::kInputRingBytes);
    ranges[3] = range_of(runtime.view.output, 2 * timebubble::kOutputRingBytes);
    for (int i = 1; i < kOwnRanges; ++i) {
        const OwnRange one = ranges[i];
        int at = i;
        for (; at > 0 && one.from < ranges[at - 1].from; --at) ranges[at] = ranges[at - 1];
        ranges[at] = one;
    }
}

bool is_own_memory(const void* place, size_t bytes) {
    const auto from = reinterpret_cast<uintptr_t>(place);
    OwnRange ranges[kOwnRanges];
    own_ranges(ranges);
    const uintptr_t to = bytes < ~from ? from + bytes : ~uintptr_t{0};
    for (const OwnRange& own : ranges)
        if (from < own.to && own.from < to) return true;
    return false;
}

}  // namespace crane::interpose
