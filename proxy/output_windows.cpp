#include "proxy/output_windows.hpp"

namespace crane::proxy {

using timebubble::kFirstWindowBytes;
using timebubble::kLargestWindowBytes;

namespace {

constexpr uint64_t kOpeningWindowBytes = 256 * 1024;
constexpr uint64_t kLeastRaiseBytes = 16 * 1024;
/// Of what is left of the stock, a connection gets no more than these parts: when it opens, when it uses its
/// window.
constexpr uint64_t kOpeningShare = 1024;
constexpr uint64_t kShare = 8;

}  // namespace

void OutputWindows::set(OutputWindow& window, uint64_t size) {
    used_ -= window.common();
    window.size = size;
    window.end = window.taken + size;
    used_ += window.common();
}

bool OutputWindows::open(OutputWindow& window) {
    const uint64_t more = std::min(kOpeningWindowBytes - kFirstWindowBytes, left() / kOpeningShare);
    if (more < kLeastRaiseBytes) return false;
    set(window, kFirstWindowBytes + more);
    return true;
}

void OutputWindows::taken(OutputWindow& window, uint64_t bytes) {
    used_ -= window.common();
    window.taken += bytes;
    used_ += window.common();
}

bool OutputWindows::raise(OutputWindow& window) {
    if (window.unsent() * 2 >= window.size) return false;
    const uint64_t wanted = std::min(window.size * 2, kLargestWindowBytes) - kFirstWindowBytes;
    const uint64_t size = kFirstWindowBytes + std::min(wanted, (left() + window.common()) / kShare);
    const uint64_t least = std::max(kLeastRaiseBytes, size / 4);
    if (window.taken + size < window.end + least) return false;
    set(window, size);
    return true;
}

}  // namespace crane::proxy
