#include "interpose/core/nested_epolls.hpp"

#include <algorithm>
#include <cerrno>

#include "interpose/core/fds.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

namespace {

constexpr int kMostLinks = 4;  // of a chain, as fs/eventpoll.c has it (EP_MAX_NESTS)

const EpollItem& item_at(uint32_t index) {
    return domain().items[index];
}

/// How many are inside each other, below `epoll`. kMostLinks + 1: too many, or `found` is one of them.
int links_below(uint32_t epoll, uint32_t found, int depth) {
    if (epoll == found || depth > kMostLinks) return kMostLinks + 1;
    int most = 0;
    for (uint32_t at = domain().epolls[epoll].items; at != kNone; at = item_at(at).item_next)
        if (item_at(at).watched == Watched::kEpoll)
            most = std::max(most, 1 + links_below(item_at(at).object, found, depth + 1));
    return most;
}

int links_above(uint32_t epoll) {
    int most = 0;
    for (uint32_t at = domain().epolls[epoll].watchers; at != kNone; at = item_at(at).watch_next)
        most = std::max(most, 1 + links_above(item_at(at).epoll));
    return most;
}

}  // namespace

int may_nest(uint32_t outer, uint32_t inner) {
    return links_below(inner, outer, 0) + 1 + links_above(outer) > kMostLinks ? -ELOOP : 0;
}

int descriptor_of_epoll(uint32_t epoll, int fd) {
    if (domain().epolls[epoll].kernel_items == 0) return -1;
    const FdEntry* entry = entry_of_kind(fd, FdKind::kEpoll);
    if (entry && entry->object == epoll) return fd;
    for (int other = 0; static_cast<size_t>(other) < kMaxFds; ++other) {
        entry = entry_of_kind(other, FdKind::kEpoll);
        if (entry && entry->object == epoll) return other;
    }
    return -1;
}

uint64_t epoll_streams(uint32_t epoll) {
    const Epoll& e = domain().epolls[epoll];
    uint64_t mask = e.kernel_items != 0 ? e.kernel_mask : 0;
    if (e.looked_at_items == 0) return mask;
    for (uint32_t at = e.items; at != kNone; at = item_at(at).item_next)
        if (item_at(at).watched == Watched::kEpoll) mask |= epoll_streams(item_at(at).object);
    return mask;
}

}  // namespace crane::interpose
