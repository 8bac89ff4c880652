#include "timebubble/transport.hpp"

#include <sys/mman.h>

namespace crane::timebubble {

namespace {

/// Reserves one range and maps the ring's pages into both halves of it.
uint8_t* map_ring_twice(int fd, off_t offset, size_t bytes) noexcept {
    void* range = mmap(nullptr, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return nullptr;
    auto* base = static_cast<uint8_t*>(range);
    for (int half = 0; half < 2; ++half) {
        void* got =
            mmap(base + half * bytes, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset);
        if (got == MAP_FAILED) {
            munmap(base, 2 * bytes);
            return nullptr;
        }
    }
    return base;
}

}  // namespace

bool map_transport(int fd, TransportView& view) noexcept {
    view = {};
    void* control = mmap(nullptr, kControlBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) return false;
    view.control = static_cast<Control*>(control);
    view.input = map_ring_twice(fd, kControlBytes, kInputRingBytes);
    if (view.input) view.output = map_ring_twice(fd, kControlBytes + kInputRingBytes, kOutputRingBytes);
    if (view.output) return true;
    unmap_transport(view);
    return false;
}

void unmap_transport(TransportView& view) noexcept {
    if (view.control) munmap(view.control, kControlBytes);
    if (view.input) munmap(view.input, 2 * kInputRingBytes);
    if (view.output) munmap(view.output, 2 * kOutputRingBytes);
    view = {};
}

}  // namespace crane::timebubble
