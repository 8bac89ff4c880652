#include "interpose/core/blocking.hpp"

#include <poll.h>

#include "interpose/core/opaque.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/threads.hpp"

namespace crane::interpose {

bool restart_after_signals() {
    if (cancel_due()) return false;
    for (uint64_t due = due_signals(); due != 0; due &= due - 1) {
        const SignalAction& action = runtime.process->actions[1 + __builtin_ctzll(due)];
        const bool handled = action.handler > reinterpret_cast<uint64_t>(SIG_IGN);
        if (handled && !(action.flags & SA_RESTART)) return false;  // it runs when the operation ends
    }
    deliver_signals();
    scheduler().get_turn(self.slot);
    return true;
}

bool kernel_nonblocking(int fd) {
    const long flags = raw(SYS_fcntl, fd, F_GETFL);
    return flags < 0 || (flags & O_NONBLOCK);
}

namespace {

/// Non-blocking, or not open for what is to be waited for: then the call itself says so.
bool never_blocks(int fd, short events) {
    const long flags = raw(SYS_fcntl, fd, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK)) return true;
    const long mode = flags & O_ACCMODE;
    return (events & POLLIN) ? mode == O_WRONLY : mode == O_RDONLY;
}

/// A pidfd can be waited for, but neither be read nor written.
bool only_tells_of_process(int fd, const FdEntry& entry) {
    return entry.object == 0 && process_behind(fd) != -EBADF;
}

}  // namespace

namespace {

/// poll() takes no more descriptors than the program may open, select() does. One by one: what is ready shows
/// as what was asked for.
int probe_by_select(pollfd* fds, size_t count) {
    constexpr int kBits = 64, kMost = 1024;
    int ready = 0;
    for (size_t i = 0; i < count; ++i) {
        uint64_t in[kMost / kBits] = {}, out[kMost / kBits] = {};
        fds[i].revents = 0;
        if (fds[i].fd < 0) continue;
        if (fds[i].fd >= kMost) return -EINVAL;
        const int word = fds[i].fd / kBits;
        const uint64_t bit = uint64_t{1} << fds[i].fd % kBits;
        if (fds[i].events & POLLIN) in[word] = bit;
        if (fds[i].events & POLLOUT) out[word] = bit;
        timespec at_once{};
        if (raw(SYS_pselect6, fds[i].fd + 1, in, out, nullptr, &at_once, nullptr) < 0)
            fds[i].revents = POLLNVAL;
        if (in[word] & bit) fds[i].revents |= POLLIN;
        if (out[word] & bit) fds[i].revents |= POLLOUT;
        ready += fds[i].revents != 0;
    }
    return ready;
}

}  // namespace

int probe_streams(pollfd* fds, size_t count, int timeout_ms) {
    for (;;) {
        const long ready = raw(SYS_poll, fds, count, timeout_ms);
        if (ready == -EINVAL && timeout_ms == 0) return probe_by_select(fds, count);
        if (ready != -EINTR) return static_cast<int>(ready);
    }
}

uint64_t stream_deadline(int fd, short events) {
    timeval limit{};
    socklen_t length = sizeof(limit);
    const int option = events & POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO;
    if (raw(SYS_getsockopt, fd, SOL_SOCKET, option, &limit, &length) != 0) return dmt::kNoDeadline;
    if (limit.tv_sec == 0 && limit.tv_usec == 0) return dmt::kNoDeadline;
    return deadline_from_relative_ns(static_cast<uint64_t>(limit.tv_sec) * 1'000'000'000 +
                                     static_cast<uint64_t>(limit.tv_usec) * 1000);
}

long wait_for_stream(Operation& turn, int fd, const FdEntry& entry, short events) {
    StreamWait wait;
    return wait_for_stream(turn, fd, entry, events, wait);
}

long wait_for_stream(Operation& turn, int fd, const FdEntry& entry, short events, StreamWait& wait) {
    const FdEntry then = entry;
    const uint32_t in_vain = wait.in_vain;
    uint64_t& deadline_ns = wait.deadline_ns;
    bool ready = in_vain == 0;
    for (uint32_t looks = in_vain;;) {
        settle_opaque();
        if (!same_descriptor(fd, then)) return -EBADF;
        pollfd probe{fd, events, 0};
        if (ready && probe_streams(&probe, 1, 0) > 0) return 0;
        ready = true;
        if (never_blocks(fd, events) || only_tells_of_process(fd, then)) {
            turn.yield();
            return 0;
        }
        if (deadline_ns == 0) deadline_ns = stream_deadline(fd, events);
        const uint64_t key = make_key(ObjectKind::kStream, then.object);
        const bool by_chance = in_vain > 0 || is_left_to_chance(stream_bit(then));
        const uint64_t until_ns = earlier_ns(deadline_ns, by_chance ? next_look_ns(looks) : dmt::kNoDeadline);
        switch (turn.wait(key, until_ns, true, stream_bit(then))) {
            case dmt::WaitResult::kTimedOut:
                if (until_ns == deadline_ns) return -EAGAIN;
                break;
            case dmt::WaitResult::kInterrupted:
                if (!restart_on_socket(deadline_ns)) return -EINTR;
                break;
            case dmt::WaitResult::kSignaled:
                break;
        }
    }
}

long wait_on_socket(Operation& turn, SocketHold& hold, uint32_t socket, uint64_t key, uint64_t deadline) {
    hold.take(socket);
    switch (turn.wait(key, deadline, true)) {
        case dmt::WaitResult::kTimedOut:
            return -EAGAIN;
        case dmt::WaitResult::kInterrupted:
            return restart_on_socket(deadline) ? 0 : -EINTR;
        case dmt::WaitResult::kSignaled:
            break;
    }
    return 0;
}

WithoutWaiting::WithoutWaiting(int fd) : fd_(fd) {
    if (fd < 0) return;
    flags_ = raw(SYS_fcntl, fd, F_GETFL);
    if (flags_ < 0 || (flags_ & O_NONBLOCK)) {
        fd_ = -1;
    } else {
        raw(SYS_fcntl, fd, F_SETFL, flags_ | O_NONBLOCK);
    }
}

WithoutWaiting::~WithoutWaiting() {
    if (fd_ >= 0) raw(SYS_fcntl, fd_, F_SETFL, flags_);
}

void raise_sigpipe() {
    post_signal(runtime.process_index, SIGPIPE, self.slot);
}

}  // namespace crane::interpose
