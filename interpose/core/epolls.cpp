#include "interpose/core/epolls.hpp"

#include <poll.h>

#include "interpose/core/blocking.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/nested_epolls.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/timers.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

Epoll& epoll_at(uint32_t index) {
    return domain().epolls[index];
}
EpollItem& item_at(uint32_t index) {
    return domain().items[index];
}

constexpr uint32_t kControlBits = EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP;

uint32_t wanted_events(const EpollItem& item) {
    return (item.events & ~kControlBits) | EPOLLERR | EPOLLHUP;
}

uint32_t take_item() {
    DomainState& d = domain();
    if (d.item_free) {
        const uint32_t index = d.item_free - 1;
        d.item_free = d.items[index].item_next;
        return index;
    }
    return d.item_high < kMaxEpollItems ? d.item_high++ : kNone;
}

void push_ready(uint32_t index) {
    EpollItem& item = item_at(index);
    if (item.ready) return;
    Epoll& e = epoll_at(item.epoll);
    item.ready = 1;
    item.ready_next = kNone;
    item.ready_previous = e.ready_tail;
    (e.ready_tail != kNone ? item_at(e.ready_tail).ready_next : e.ready_head) = index;
    e.ready_tail = index;
}

void unlink_ready(uint32_t index) {
    EpollItem& item = item_at(index);
    if (!item.ready) return;
    Epoll& e = epoll_at(item.epoll);
    (item.ready_previous != kNone ? item_at(item.ready_previous).ready_next : e.ready_head) = item.ready_next;
    (item.ready_next != kNone ? item_at(item.ready_next).ready_previous : e.ready_tail) = item.ready_previous;
    item.ready = 0;
}

/// Of what tells those who watch it by a list of its own; null: it is looked at.
uint32_t* watchers_of(const EpollItem& item) {
    if (item.watched == Watched::kSocket) return &domain().sockets[item.object].watchers;
    if (item.watched == Watched::kEpoll) return &epoll_at(item.object).watchers;
    return nullptr;
}

void remove_item(uint32_t index) {
    EpollItem& item = item_at(index);
    Epoll& e = epoll_at(item.epoll);
    unlink_ready(index);
    if (e.look_from == index) e.look_from = item.item_next;
    (item.item_previous != kNone ? item_at(item.item_previous).item_next : e.items) = item.item_next;
    if (item.item_next != kNone) item_at(item.item_next).item_previous = item.item_previous;
    if (item.watched != Watched::kSocket) --e.looked_at_items;
    if (uint32_t* watchers = watchers_of(item)) {
        (item.watch_previous != kNone ? item_at(item.watch_previous).watch_next : *watchers) =
            item.watch_next;
        if (item.watch_next != kNone) item_at(item.watch_next).watch_previous = item.watch_previous;
    }
    item = {};
    item.item_next = domain().item_free;
    domain().item_free = index + 1;
}

uint32_t find_item(uint32_t epoll, int fd, uint32_t object, Watched watched) {
    for (uint32_t at = epoll_at(epoll).items; at != kNone; at = item_at(at).item_next) {
        const EpollItem& item = item_at(at);
        if (item.fd == fd && item.object == object && item.watched == watched) return at;
    }
    return kNone;
}

uint32_t find_socket_item(uint32_t epoll, int fd, uint32_t socket) {
    // By the socket's own list: an epoll may hold thousands of items, a socket is in one or two.
    for (uint32_t at = domain().sockets[socket].watchers; at != kNone; at = item_at(at).watch_next) {
        if (item_at(at).epoll == epoll && item_at(at).fd == fd) return at;
    }
    return kNone;
}

/// Wakes one thread that waits on the epoll, and whoever waits on the epoll as a member of a set or of
/// another epoll.
bool wake_epoll(uint32_t epoll, uint32_t most = 1) {
    ++epoll_at(epoll).wakeups;
    bool woke = scheduler().signal(epoll_key(epoll), most) != 0;
    scheduler().signal_set(set_bit(ObjectKind::kEpoll, epoll));
    for (uint32_t at = epoll_at(epoll).watchers; at != kNone; at = item_at(at).watch_next)
        woke |= !item_at(at).disabled && wake_epoll(item_at(at).epoll, most);
    return woke;
}

uint32_t item_events(const EpollItem& item) {
    uint32_t now = 0;
    switch (item.watched) {
        case Watched::kSocket:
            now = socket_events(item.object);
            break;
        case Watched::kTimer:
            now = timer_due(item.object) ? uint32_t{EPOLLIN} : 0;
            break;
        case Watched::kSignals:
            now = signal_fd_ready(item.object) ? uint32_t{EPOLLIN} : 0;
            break;
        case Watched::kEpoll:
            now = epoll_ready(item.object, descriptor_of_epoll(item.object, item.fd)) ? uint32_t{EPOLLIN} : 0;
            break;
    }
    return now & wanted_events(item);
}

/// Changes with every event of what is looked at; what is still due after it was reported is no new edge.
uint64_t edge_number(const EpollItem& item) {
    if (item.watched == Watched::kTimer) return domain().timers[item.object].next_ns;
    if (item.watched == Watched::kSignals) return runtime.process->signals_posted;
    uint64_t sum = epoll_at(item.object).wakeups + 1;
    for (uint32_t at = epoll_at(item.object).items; at != kNone; at = item_at(at).item_next) {
        const EpollItem& inside = item_at(at);
        const bool due = inside.watched == Watched::kTimer && timer_due(inside.object);
        if (due || inside.watched == Watched::kEpoll) sum += edge_number(inside);
    }
    return sum;
}

void arm(uint32_t index, const epoll_event& event) {
    EpollItem& item = item_at(index);
    item.events = event.events;
    item.data = event.data.u64;
    item.disabled = 0;
    item.seen = 0;
    if (item.watched != Watched::kSocket) {
        wake_epoll(item.epoll, UINT32_MAX);  // the sleepers' deadlines know nothing of it
    } else if (item_events(item)) {
        push_ready(index);
        wake_epoll(item.epoll);
    }
}

uint32_t insert_item(uint32_t epoll, int fd, uint32_t object, Watched watched) {
    const uint32_t index = take_item();
    if (index == kNone) return kNone;
    Epoll& e = epoll_at(epoll);
    EpollItem& item = item_at(index);
    item = {};
    item.epoll = epoll;
    item.fd = fd;
    item.object = object;
    item.watched = watched;
    item.item_previous = item.watch_next = item.watch_previous = item.ready_next = item.ready_previous =
        kNone;
    item.item_next = e.items;
    if (e.items != kNone) item_at(e.items).item_previous = index;
    e.items = index;
    if (watched != Watched::kSocket) ++e.looked_at_items;
    if (uint32_t* watchers = watchers_of(item)) {
        item.watch_next = *watchers;
        if (*watchers != kNone) item_at(*watchers).watch_previous = index;
        *watchers = index;
    }
    return index;
}

}  // namespace

int epoll_control(uint32_t epoll, int operation, int fd, Watched watched, uint32_t object,
                  const epoll_event* event) {
    const uint32_t found = watched == Watched::kSocket ? find_socket_item(epoll, fd, object)
                                                       : find_item(epoll, fd, object, watched);
    if (operation == EPOLL_CTL_DEL) {
        if (found == kNone) return -ENOENT;
        remove_item(found);
        return 0;
    }
    if (!event) return -EFAULT;
    if (operation == EPOLL_CTL_MOD) {
        if (found == kNone) return -ENOENT;
        if ((event->events | item_at(found).events) & EPOLLEXCLUSIVE) return -EINVAL;
        unlink_ready(found);
        arm(found, *event);
        return 0;
    }
    if (operation != EPOLL_CTL_ADD) return -EINVAL;
    if (watched == Watched::kEpoll && (event->events & EPOLLEXCLUSIVE)) return -EINVAL;
    if (found != kNone) return -EEXIST;
    if (const int error = watched == Watched::kEpoll ? may_nest(epoll, object) : 0; error != 0) return error;
    const uint32_t index = insert_item(epoll, fd, object, watched);
    if (index == kNone) return -ENOSPC;
    arm(index, *event);
    return 0;
}

uint32_t new_epoll() {
    DomainState& d = domain();
    uint32_t index;
    if (d.epoll_free) {
        index = d.epoll_free - 1;
        d.epoll_free = d.epolls[index].items;
    } else if (d.epoll_high < kMaxEpolls) {
        index = d.epoll_high++;
    } else {
        return kNone;
    }
    d.epolls[index] = {};
    d.epolls[index].references = 1;
    d.epolls[index].items = d.epolls[index].watchers = d.epolls[index].look_from =
        d.epolls[index].ready_head = d.epolls[index].ready_tail = kNone;
    return index;
}

void release_epoll(uint32_t index) {
    Epoll& e = epoll_at(index);
    if (--e.references != 0) return;
    while (e.items != kNone) remove_item(e.items);
    while (e.watchers != kNone) remove_item(e.watchers);
    e.items = domain().epoll_free;
    domain().epoll_free = index + 1;
}

int epoll_control_kernel(uint32_t epoll, int real_epoll, int operation, int fd, epoll_event* event) {
    const long rc = raw(SYS_epoll_ctl, real_epoll, operation, fd, event);
    if (rc < 0) return static_cast<int>(rc);
    Epoll& e = epoll_at(epoll);
    const FdEntry* entry = fd_entry(fd);
    if (operation == EPOLL_CTL_ADD) {
        ++e.kernel_items;
        if (entry) e.kernel_mask |= stream_bit(*entry) | (entry->object == 0 ? ~uint64_t{0} : 0);
        wake_epoll(epoll);
    } else if (operation == EPOLL_CTL_MOD) {
        wake_epoll(epoll);
    } else if (operation == EPOLL_CTL_DEL && e.kernel_items > 0 && --e.kernel_items == 0) {
        e.kernel_mask = 0;
    }
    return 0;
}

namespace {

struct Places {
    epoll_event* events;
    int most, count = 0;

    bool full() const { return count == most; }
    void add(uint32_t what, uint64_t data) {
        events[count].events = what;
        events[count].data.u64 = data;
        ++count;
    }
};

void collect_sockets(Epoll& e, Places& places) {
    // Level-triggered items go back to the tail; the mark keeps them from being met twice in one call.
    const uint32_t last = e.ready_tail;
    while (e.ready_head != kNone && !places.full()) {
        const uint32_t index = e.ready_head;
        EpollItem& item = item_at(index);
        unlink_ready(index);
        const uint32_t now = item.disabled ? 0 : item_events(item);
        if (now) {
            places.add(now, item.data);
            if (item.events & EPOLLONESHOT) {
                item.disabled = 1;
            } else if (!(item.events & EPOLLET)) {
                push_ready(index);
            }
        }
        if (index == last) break;
    }
}

/// In a ring, from behind the last one that was told.
void collect_looked_at(Epoll& e, Places& places) {
    if (!e.looked_at_items) return;
    const uint32_t first = e.look_from != kNone ? e.look_from : e.items;
    uint32_t at = first;
    do {
        if (places.full()) break;
        EpollItem& item = item_at(at);
        at = item.item_next != kNone ? item.item_next : e.items;
        if (item.watched == Watched::kSocket || item.disabled || !item_events(item)) continue;
        const uint64_t edge = edge_number(item);
        if ((item.events & EPOLLET) && item.seen == edge) continue;
        item.seen = edge;
        if (item.events & EPOLLONESHOT) item.disabled = 1;
        places.add(EPOLLIN, item.data);
        e.look_from = at;
    } while (at != first);
}

}  // namespace

int epoll_collect(uint32_t epoll, int real_epoll, epoll_event* events, int most) {
    Epoll& e = epoll_at(epoll);
    if (!writable(events, sizeof(*events)))
        return is_kernels(events) || epoll_ready(epoll, real_epoll) ? -EFAULT : 0;
    Places places{events, most};
    constexpr uint32_t kKinds = 3;
    const uint32_t first = e.asks_first;
    for (uint32_t i = 0; i < kKinds && !places.full(); ++i) {
        const uint32_t kind = (first + i) % kKinds;
        if (kind == 0) collect_sockets(e, places);
        if (kind == 1) collect_looked_at(e, places);
        if (kind == 2 && e.kernel_items) {
            const long got = raw(SYS_epoll_wait, real_epoll, events + places.count, most - places.count, 0);
            if (got > 0) places.count += static_cast<int>(got);
        }
        // Those for whom no place was left come first the next time, however many are always ready.
        if (places.full()) e.asks_first = (kind + 1) % kKinds;
    }
    if (e.ready_head != kNone && places.count > 0) scheduler().signal(epoll_key(epoll), 1);
    return places.count;
}

bool epoll_ready(uint32_t epoll, int real_epoll) {
    const Epoll& e = epoll_at(epoll);
    for (uint32_t at = e.ready_head; at != kNone; at = item_at(at).ready_next) {
        if (!item_at(at).disabled && item_events(item_at(at))) return true;
    }
    for (uint32_t at = e.looked_at_items ? e.items : kNone; at != kNone; at = item_at(at).item_next) {
        const EpollItem& item = item_at(at);
        if (item.watched != Watched::kSocket && !item.disabled && item_events(item)) return true;
    }
    if (!e.kernel_items) return false;
    pollfd probe{real_epoll, POLLIN, 0};
    return probe_streams(&probe, 1, 0) > 0;
}

uint64_t epoll_deadline(uint32_t epoll) {
    const Epoll& e = epoll_at(epoll);
    uint64_t earliest = dmt::kNoDeadline;
    for (uint32_t at = e.looked_at_items ? e.items : kNone; at != kNone; at = item_at(at).item_next) {
        const EpollItem& item = item_at(at);
        if (item.disabled || item.watched == Watched::kSignals || item.watched == Watched::kSocket) continue;
        const uint64_t due =
            item.watched == Watched::kTimer ? timer_deadline(item.object) : epoll_deadline(item.object);
        // What is due already has been told, or nobody asked for it.
        if (due == dmt::kNoDeadline || due <= domain().scheduler.now_ns) continue;
        if (earliest == dmt::kNoDeadline || due < earliest) earliest = due;
    }
    return earliest;
}

void notify_watchers(uint32_t socket, uint32_t events) {
    bool exclusive_served = false;
    for (uint32_t at = domain().sockets[socket].watchers; at != kNone; at = item_at(at).watch_next) {
        EpollItem& item = item_at(at);
        if (item.disabled || !(wanted_events(item) & events)) continue;
        push_ready(at);
        const bool exclusive = item.events & EPOLLEXCLUSIVE;
        if (exclusive && exclusive_served) continue;
        if (wake_epoll(item.epoll) && exclusive) exclusive_served = true;
    }
}

void drop_watches(Watched watched, uint32_t object) {
    DomainState& d = domain();
    if (watched == Watched::kSocket) {
        while (d.sockets[object].watchers != kNone) remove_item(d.sockets[object].watchers);
        return;
    }
    for (uint32_t epoll = 0; epoll < d.epoll_high; ++epoll) {
        const Epoll& e = epoll_at(epoll);
        if (e.references == 0 || e.looked_at_items == 0) continue;
        for (uint32_t at = e.items; at != kNone;) {
            const uint32_t next = item_at(at).item_next;
            if (item_at(at).watched == watched && item_at(at).object == object) remove_item(at);
            at = next;
        }
    }
}

void signal_fd_event(uint64_t signals) {
    for (uint32_t epoll = 0; epoll < domain().epoll_high; ++epoll) {
        const Epoll& e = epoll_at(epoll);
        if (e.references == 0 || e.looked_at_items == 0) continue;
        for (uint32_t at = e.items; at != kNone; at = item_at(at).item_next) {
            const EpollItem& item = item_at(at);
            if (item.watched != Watched::kSignals) continue;
            // All of them: the signal may be for any of the processes that share the epoll.
            if (domain().signal_fds[item.object].mask & signals) wake_epoll(epoll, ~0u);
        }
    }
}

void kernel_stream_event(uint64_t mask) {
    for (uint32_t epoll = 0; epoll < domain().epoll_high; ++epoll) {
        const Epoll& e = epoll_at(epoll);
        if (e.references != 0 && e.kernel_items != 0 && (e.kernel_mask & mask)) wake_epoll(epoll);
    }
}

}  // namespace crane::interpose
