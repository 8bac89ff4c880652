// POSIX message queues. The kernel keeps them; waiting is scheduled.
#include <mqueue.h>

#include "interpose/core/epolls.hpp"
#include "interpose/core/ipc_waits.hpp"
#include "interpose/core/queue_notices.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/uncancelled.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/notice_threads.hpp"

namespace crane::interpose {
namespace {

/// Which queue a descriptor names has no number that is the same on every replica: who waits for one looks
/// again after each call to any.
uint64_t queues_key() {
    return make_key(ObjectKind::kFiles, uint64_t{4} << 32);
}

/// Who polls one does not say so: descriptors of queues are like those of files to the shim.
void tell_who_polls() {
    const uint64_t unknown = set_bit(ObjectKind::kStream, 0);
    scheduler().signal_set(unknown);
    kernel_stream_event(unknown);
}

/// As the kernel takes it: absent, or a time by CLOCK_REALTIME.
struct Deadline {
    const timespec* given;

    uint64_t ns() const { return given ? deadline_from_absolute(CLOCK_REALTIME, *given) : dmt::kNoDeadline; }
};

/// The kernel looks at it before all else.
struct TakenDeadline {
    explicit TakenDeadline(const timespec* where) {
        if (!where) return;
        deadline.given = &time;
        if (!fetch(time, where))
            error = -EFAULT;
        else if (!valid_timespec(&time))
            error = -EINVAL;
    }
    TakenDeadline(const TakenDeadline&) = delete;
    TakenDeadline& operator=(const TakenDeadline&) = delete;

    timespec time{};
    Deadline deadline{nullptr};
    long error = 0;
};

/// The kernel is given a deadline that has passed, so what would have to wait is told that it has waited.
template <typename Call>
long transfer(const Deadline& deadline, Call call) {
    test_cancel();
    const timespec at_once{};
    IpcWait wait{Op::kMessageQueue, queues_key(), deadline.ns(), -ETIMEDOUT, -ETIMEDOUT, true};
    const long rc = wait.until_done([&] { return call(&at_once); }, [] { return true; });
    if (rc == -EINTR) test_cancel();
    return rc;
}

long send(mqd_t queue, const char* message, size_t bytes, unsigned priority, const Deadline& deadline) {
    return transfer(deadline, [&](const timespec* until) {
        const uint64_t number = domain().queue_notices_used != 0 ? queue_number(queue) : 0;
        const bool due = number != 0 && notice_is_due(queue, number);
        const long rc = raw(SYS_mq_timedsend, queue, message, bytes, priority, until);
        if (rc == 0 && due) give_queue_notice(number);
        if (rc == 0) tell_who_polls();
        return rc;
    });
}

long receive(mqd_t queue, char* message, size_t bytes, unsigned* priority, const Deadline& deadline) {
    return transfer(deadline, [&](const timespec* until) {
        const long got = raw(SYS_mq_timedreceive, queue, message, bytes, priority, until);
        domain().threads[self.slot].awaits = got == -ETIMEDOUT ? queue_number(queue) : 0;
        if (got >= 0) tell_who_polls();
        return got;
    });
}

struct Told {
    void (*function)(sigval);
    sigval value;
    uint64_t made;
};

/// Waits for its notice, or for its end, in a thread of its own.
void* await_notice(void* argument) {
    const Told told = *static_cast<Told*>(argument);
    free(argument);
    NoticeState state = NoticeState::kWaits;
    {
        Operation turn(Op::kMessageQueue, queues_key());
        while ((state = look_at_notice(told.made)) == NoticeState::kWaits) turn.wait(queues_key());
    }
    if (state != NoticeState::kGiven) return nullptr;
    unblock_all_signals();
    told.function(told.value);
    return nullptr;
}

/// 0, or -EINVAL for one that no queue could give.
long check_notice(const sigevent& event) {
    const int how = event.sigev_notify;
    if (how != SIGEV_SIGNAL && how != SIGEV_NONE && how != SIGEV_THREAD) return -EINVAL;
    return how == SIGEV_SIGNAL && (event.sigev_signo < 0 || event.sigev_signo >= kSignals) ? -EINVAL : 0;
}

long register_notice(mqd_t queue, const sigevent* event, uint64_t& made) {
    Operation turn(Op::kMessageQueue, queues_key());
    if (const long wrong = event ? check_notice(*event) : 0; wrong != 0) return wrong;
    mq_attr attributes{};
    const long known = raw(SYS_mq_getsetattr, queue, nullptr, &attributes);
    if (known < 0) return known;
    const uint64_t number = queue_number(queue);
    if (!event) {
        drop_queue_notices(runtime.process_index, number);
        scheduler().signal(queues_key(), ~uint32_t{0});
        return 0;
    }
    return add_queue_notice(number, *event, made);
}

long ask_for_notice(mqd_t queue, const sigevent* event) {
    uint64_t made = 0;
    const long rc = register_notice(queue, event, made);
    if (rc < 0 || !event || event->sigev_notify != SIGEV_THREAD) return rc;
    auto* told = static_cast<Told*>(malloc(sizeof(Told)));
    pthread_t thread;
    if (told) *told = {event->sigev_notify_function, event->sigev_value, made};
    const auto* attributes = static_cast<const pthread_attr_t*>(event->sigev_notify_attributes);
    if (!told || ::pthread_create(&thread, attributes, await_notice, told) != 0) {
        free(told);
        register_notice(queue, nullptr, made);
        return -EAGAIN;
    }
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes) pthread_attr_getdetachstate(attributes, &state);
    if (state == PTHREAD_CREATE_JOINABLE) ::pthread_detach(thread);
    return 0;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int mq_send(mqd_t queue, const char* message, size_t bytes, unsigned priority) {
    if (!active()) return resolve_real(), real.mq_send(queue, message, bytes, priority);
    return static_cast<int>(as_libc(send(queue, message, bytes, priority, {nullptr})));
}

CRANE_EXPORT int mq_timedsend(mqd_t queue, const char* message, size_t bytes, unsigned priority,
                              const timespec* deadline) {
    if (!active()) return resolve_real(), real.mq_timedsend(queue, message, bytes, priority, deadline);
    const TakenDeadline taken(deadline);
    if (taken.error != 0) return static_cast<int>(as_libc(taken.error));
    return static_cast<int>(as_libc(send(queue, message, bytes, priority, taken.deadline)));
}

CRANE_EXPORT ssize_t mq_receive(mqd_t queue, char* message, size_t bytes, unsigned* priority) {
    if (!active()) return resolve_real(), real.mq_receive(queue, message, bytes, priority);
    return as_libc(receive(queue, message, bytes, priority, {nullptr}));
}

CRANE_EXPORT ssize_t mq_timedreceive(mqd_t queue, char* message, size_t bytes, unsigned* priority,
                                     const timespec* deadline) {
    if (!active()) return resolve_real(), real.mq_timedreceive(queue, message, bytes, priority, deadline);
    const TakenDeadline taken(deadline);
    if (taken.error != 0) return as_libc(taken.error);
    return as_libc(receive(queue, message, bytes, priority, taken.deadline));
}

CRANE_EXPORT int mq_notify(mqd_t queue, const sigevent* event) noexcept {
    if (!active()) return resolve_real(), real.mq_notify(queue, event);
    return static_cast<int>(as_libc(ask_for_notice(queue, event)));
}

/// A process that closes a queue is told of it no more.
CRANE_EXPORT int mq_close(mqd_t queue) noexcept {
    if (!active()) return resolve_real(), real.mq_close(queue);
    if (domain().queue_notices_used != 0) {
        Operation turn(Op::kMessageQueue, queues_key());
        if (const uint64_t number = queue_number(queue)) drop_queue_notices(runtime.process_index, number);
        scheduler().signal(queues_key(), ~uint32_t{0});
    }
    const Uncancelled whole;
    return ::close(queue);
}
