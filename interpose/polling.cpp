// poll, ppoll, select, pselect over any mixture of virtual and kernel descriptors.
#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/epolls.hpp"
#include "interpose/core/nested_epolls.hpp"
#include "interpose/core/opaque.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/signal_masks.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/timers.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

constexpr nfds_t kMaxPollFds = 65536;

/// Readiness of what is ours; false for descriptors that the kernel has to be asked about.
bool virtual_events(int fd, const FdEntry& entry, uint32_t& events) {
    switch (entry.kind) {
        case FdKind::kSocket:
            events = socket_events(entry.object);
            return true;
        case FdKind::kTimer:
            events = timer_due(entry.object) ? uint32_t{EPOLLIN} : 0;
            return true;
        case FdKind::kSignals:
            events = signal_fd_ready(entry.object) ? uint32_t{EPOLLIN} : 0;
            return true;
        case FdKind::kEpoll:
            events = epoll_ready(entry.object, fd) ? uint32_t{EPOLLIN} : 0;
            return true;
        default:
            return false;
    }
}

/// Who asks: select() is not told of what it did not ask for, poll() is of errors and ends.
enum class Asked { kPoll, kSelect };

constexpr short kReadEvents = POLLIN | POLLHUP | POLLERR | POLLRDNORM;
constexpr short kWriteEvents = POLLOUT | POLLERR | POLLWRNORM;

/// Of a descriptor that was asked about for `events`.
short told_by_select(short events) {
    short told = POLLNVAL;
    if (events & POLLIN) told |= kReadEvents;
    if (events & POLLOUT) told |= kWriteEvents;
    if (events & POLLPRI) told |= POLLPRI;
    return told;
}

/// One look at all of them, without blocking. Returns how many have something to say.
int look(pollfd* fds, nfds_t count, Asked asked) {
    int ready = 0;
    constexpr size_t kPieces = 64;
    pollfd kernel[kPieces];
    nfds_t places[kPieces];
    size_t waiting = 0;
    const auto tell = [&](pollfd& one, short events) {
        one.revents =
            asked == Asked::kSelect ? static_cast<short>(events & told_by_select(one.events)) : events;
        if (one.revents) ++ready;
    };
    const auto ask_kernel = [&] {
        if (waiting == 0) return;
        probe_streams(kernel, waiting, 0);
        for (size_t i = 0; i < waiting; ++i) tell(fds[places[i]], kernel[i].revents);
        waiting = 0;
    };
    for (nfds_t i = 0; i < count; ++i) {
        fds[i].revents = 0;
        if (fds[i].fd < 0) continue;
        const FdEntry* entry = fd_entry(fds[i].fd);
        uint32_t events = 0;
        if (entry && virtual_events(fds[i].fd, *entry, events)) {
            tell(fds[i], static_cast<short>(
                             events & (static_cast<unsigned short>(fds[i].events) | POLLERR | POLLHUP)));
            continue;
        }
        kernel[waiting] = {fds[i].fd, fds[i].events, 0};
        places[waiting++] = i;
        if (waiting == kPieces) ask_kernel();
    }
    ask_kernel();
    return ready;
}

struct WaitSet {
    uint64_t mask = 0;
    uint64_t deadline;
    bool kernel = false;
};

WaitSet wait_set(const pollfd* fds, nfds_t count, uint64_t deadline) {
    WaitSet set{0, deadline};
    const auto earlier = [&](uint64_t ns) { set.deadline = earlier_ns(set.deadline, ns); };
    for (nfds_t i = 0; i < count; ++i) {
        const FdEntry* entry = fds[i].fd < 0 ? nullptr : fd_entry(fds[i].fd);
        if (!entry) continue;
        if (entry->kind == FdKind::kSocket) set.mask |= set_bit(ObjectKind::kSocket, entry->object);
        if (entry->kind == FdKind::kTimer) earlier(timer_deadline(entry->object));
        if (entry->kind == FdKind::kSignals) set.mask |= signal_fd_bit();
        if (entry->kind == FdKind::kEpoll) {
            set.mask |= set_bit(ObjectKind::kEpoll, entry->object);
            earlier(epoll_deadline(entry->object));
            if (const uint64_t streams = epoll_streams(entry->object); streams != 0) {
                set.kernel = true;
                set.mask |= streams;
            }
        }
        // What is no stream and not ready all the same: a message queue.
        if (entry->kind == FdKind::kStream || entry->kind == FdKind::kPlain) {
            set.kernel = true;
            set.mask |= stream_bit(*entry) | (entry->object == 0 ? ~uint64_t{0} : 0);
        }
    }
    return set;
}

/// `deadline` kNoDeadline: for ever; `just_look`: timeout 0.
long poll_in_schedule(pollfd* fds, nfds_t count, bool just_look, uint64_t deadline, Asked asked) {
    if (count > kMaxPollFds) return -EINVAL;
    if (!writable(fds, count * sizeof(*fds))) return -EFAULT;
    Operation turn(Op::kPoll, count == 1 ? descriptor_key(fds->fd) : address_key(fds));
    for (uint32_t looks = 0;;) {
        settle_opaque();
        const int ready = look(fds, count, asked);
        if (ready > 0) return ready;
        if (just_look) {
            turn.yield();
            return 0;
        }
        WaitSet set = wait_set(fds, count, deadline);
        if (set.kernel && is_left_to_chance(set.mask))
            set.deadline = earlier_ns(set.deadline, next_look_ns(looks));
        const uint64_t key = own_key();
        switch (turn.wait(key, set.deadline, true, set.mask)) {
            case dmt::WaitResult::kTimedOut:
                if (set.deadline == deadline) return look(fds, count, asked);
                break;
            case dmt::WaitResult::kInterrupted:
                return -EINTR;  // never restarted, whatever the handler's flags
            case dmt::WaitResult::kSignaled:
                break;
        }
    }
}

long poll_timespec(pollfd* fds, nfds_t count, const timespec* timeout, Asked asked = Asked::kPoll) {
    if (!readable_if_given(timeout)) return -EFAULT;
    if (timeout && !valid_timespec(timeout)) return -EINVAL;
    const bool just_look = timeout && to_ns(*timeout) == 0;
    const uint64_t deadline =
        timeout && !just_look ? deadline_from_relative_ns(to_ns(*timeout)) : dmt::kNoDeadline;
    return poll_in_schedule(fds, count, just_look, deadline, asked);
}

// --- select

constexpr int kWordBits = 8 * sizeof(unsigned long);

/// A program's set, which may be larger than an fd_set: as large as its highest descriptor asks for.
class DescriptorSet {
  public:
    explicit DescriptorSet(fd_set* set) : words_(reinterpret_cast<unsigned long*>(set)) {}
    static size_t bytes(int count) {
        return static_cast<size_t>((count + kWordBits - 1) / kWordBits) * sizeof(unsigned long);
    }
    bool can_hold(int count) const { return !words_ || writable(words_, bytes(count)); }
    bool has(int fd) const { return words_ && (words_[fd / kWordBits] >> (fd % kWordBits) & 1) != 0; }
    /// 1: it is in the set and stays there.
    int note(int fd, bool ready) {
        if (!has(fd)) return 0;
        if (ready) return 1;
        words_[fd / kWordBits] &= ~(1UL << (fd % kWordBits));
        return 0;
    }

  private:
    unsigned long* words_;
};

/// Room for what to poll: few fit on the stack, and the caller may be a signal handler.
class PollRoom {
  public:
    explicit PollRoom(int count) {
        if (count <= FD_SETSIZE) return;
        bytes_ = static_cast<size_t>(count) * sizeof(pollfd);
        const long mapped =
            raw(SYS_mmap, nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fds_ = mapped < 0 && mapped > -4096 ? nullptr : reinterpret_cast<pollfd*>(mapped);
    }
    ~PollRoom() {
        if (fds_ && fds_ != few_) raw(SYS_munmap, fds_, bytes_);
    }
    PollRoom(const PollRoom&) = delete;
    PollRoom& operator=(const PollRoom&) = delete;
    pollfd* fds() { return fds_; }  ///< null: no memory

  private:
    pollfd few_[FD_SETSIZE];
    pollfd* fds_ = few_;
    size_t bytes_ = 0;
};

/// How many descriptors the kernel looks at: sets may be shorter than what is asked about. Its table grows in
/// powers of two.
int size_of_kernel_table() {
    int size = FD_SETSIZE;
    while (size < static_cast<int>(runtime.process->fds_end)) size *= 2;
    return size;
}

long select_in_schedule(int count, fd_set* reads, fd_set* writes, fd_set* others, const timespec* timeout) {
    if (count < 0) return -EINVAL;
    const int most = size_of_kernel_table();
    if (count > most) count = most;
    DescriptorSet read(reads), write(writes), other(others);
    if (!read.can_hold(count) || !write.can_hold(count) || !other.can_hold(count)) return -EFAULT;
    PollRoom room(count);
    pollfd* const fds = room.fds();
    if (!fds) return -ENOMEM;
    nfds_t used = 0;
    for (int fd = 0; fd < count; ++fd) {
        short events = 0;
        if (read.has(fd)) events |= POLLIN | POLLRDNORM;
        if (write.has(fd)) events |= POLLOUT | POLLWRNORM;
        if (other.has(fd)) events |= POLLPRI;
        if (events) fds[used++] = {fd, events, 0};
    }
    const long rc = poll_timespec(fds, used, timeout, Asked::kSelect);
    if (rc < 0) return rc;
    int bits = 0;
    for (nfds_t i = 0; i < used; ++i) {
        if (fds[i].revents & POLLNVAL) return -EBADF;
        bits += read.note(fds[i].fd, fds[i].revents & kReadEvents);
        bits += write.note(fds[i].fd, fds[i].revents & kWriteEvents);
        bits += other.note(fds[i].fd, fds[i].revents & POLLPRI);
    }
    return bits;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int poll(pollfd* fds, nfds_t count, int timeout_ms) {
    if (!active()) return resolve_real(), real.poll(fds, count, timeout_ms);
    const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
    return static_cast<int>(as_libc(at_cancellation_point(
        [&] { return poll_timespec(fds, count, timeout_ms < 0 ? nullptr : &timeout); })));
}

CRANE_EXPORT int __poll_chk(pollfd* fds, nfds_t count, int timeout_ms, size_t room) {
    CRANE_CHECK(count <= room / sizeof(*fds));
    return poll(fds, count, timeout_ms);
}

CRANE_EXPORT int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    if (!active()) return resolve_real(), real.ppoll(fds, count, timeout, mask);
    return static_cast<int>(as_libc(at_cancellation_point([&] {
        TemporaryMask temporary(mask);
        const long error = temporary.error();
        return error != 0 ? error : poll_timespec(fds, count, timeout);
    })));
}

CRANE_EXPORT int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask,
                             size_t room) {
    CRANE_CHECK(count <= room / sizeof(*fds));
    return ppoll(fds, count, timeout, mask);
}

CRANE_EXPORT int select(int count, fd_set* reads, fd_set* writes, fd_set* others, timeval* timeout) {
    if (!active()) return resolve_real(), real.select(count, reads, writes, others, timeout);
    timespec limit{};
    timeval asked{};
    if (timeout) {
        if (!fetch(asked, timeout)) return static_cast<int>(as_libc(-EFAULT));
        if (asked.tv_sec < 0 || asked.tv_usec < 0) return static_cast<int>(as_libc(-EINVAL));
        limit = {asked.tv_sec + asked.tv_usec / 1'000'000, asked.tv_usec % 1'000'000 * 1000};
    }
    const uint64_t start = now_realtime_ns();
    const long rc = at_cancellation_point(
        [&] { return select_in_schedule(count, reads, writes, others, timeout ? &limit : nullptr); });
    if (timeout) {
        // Linux leaves the time that was not slept.
        const uint64_t spent = now_realtime_ns() - start, given = to_ns(limit);
        const timespec left = to_timespec(spent < given ? given - spent : 0);
        store(timeout, timeval{left.tv_sec, left.tv_nsec / 1000});  // if it can be: the kernel says nothing
    }
    return static_cast<int>(as_libc(rc));
}

CRANE_EXPORT int pselect(int count, fd_set* reads, fd_set* writes, fd_set* others, const timespec* timeout,
                         const sigset_t* mask) {
    if (!active()) return resolve_real(), real.pselect(count, reads, writes, others, timeout, mask);
    return static_cast<int>(as_libc(at_cancellation_point([&] {
        TemporaryMask temporary(mask);
        const long error = temporary.error();
        return error != 0 ? error : select_in_schedule(count, reads, writes, others, timeout);
    })));
}
