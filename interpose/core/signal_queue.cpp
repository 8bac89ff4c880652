#include "interpose/core/signal_queue.hpp"

#include <sys/wait.h>

#include <algorithm>

namespace crane::interpose {
namespace {

/// 0: none is left.
uint32_t take_record() {
    DomainState& d = domain();
    if (d.signal_free != 0) {
        const uint32_t number = d.signal_free;
        d.signal_free = d.queued_signals[number - 1].next;
        return number;
    }
    return d.signal_high < kMaxQueuedSignals ? ++d.signal_high : 0;
}

void give_back(uint32_t number) {
    DomainState& d = domain();
    d.queued_signals[number - 1].next = d.signal_free;
    d.signal_free = number;
}

SignalInfo& record(uint32_t number) {
    return domain().queued_signals[number - 1];
}

/// The same timer's signal is still under way: it has run out once more.
bool add_overruns(PendingSignals& pending, const SignalInfo& info) {
    for (uint32_t number = pending.first; number != 0; number = record(number).next) {
        SignalInfo& one = record(number);
        if (one.signal != info.signal || one.code != SI_TIMER || one.sender != info.sender) continue;
        one.status = one.status < INT32_MAX - info.status - 1 ? one.status + info.status + 1 : INT32_MAX;
        return true;
    }
    return false;
}

}  // namespace

SignalInfo signal_from_self(int signal, int code, uint64_t value) {
    SignalInfo info{};
    info.signal = signal;
    info.code = code;
    info.sender = runtime.process->pid;
    info.user = static_cast<uint32_t>(raw(SYS_getuid));
    info.value = value;
    return info;
}

SignalInfo signal_as_given(int signal, const siginfo_t& given) {
    SignalInfo info{};
    info.signal = signal;
    info.code = given.si_code;
    info.sender = given.si_pid;
    info.user = given.si_uid;
    if (given.si_code == SI_TIMER) info.status = given.si_overrun;
    info.value = reinterpret_cast<uint64_t>(given.si_value.sival_ptr);
    return info;
}

SignalInfo signal_from_kernel(int signal) {
    SignalInfo info{};
    info.signal = signal;
    info.code = SI_KERNEL;
    return info;
}

SignalInfo signal_from_outside(int signal) {
    SignalInfo info{};
    info.signal = signal;
    info.code = SI_USER;
    return info;
}

SignalInfo signal_of_timer(int signal, int timer, uint64_t overruns, uint64_t value) {
    SignalInfo info{};
    info.signal = signal;
    info.code = SI_TIMER;
    info.sender = timer;
    info.status = static_cast<int32_t>(std::min<uint64_t>(overruns, INT32_MAX));
    info.value = value;
    return info;
}

SignalInfo signal_of_child(uint32_t index, int code, int status) {
    SignalInfo info{};
    info.signal = SIGCHLD;
    info.code = code;
    info.sender = domain().processes[index].pid;
    info.user = static_cast<uint32_t>(raw(SYS_getuid));
    info.status = status;
    return info;
}

SignalInfo signal_of_end(uint32_t index, int wait_status) {
    SignalInfo info =
        WIFEXITED(wait_status)
            ? signal_of_child(index, CLD_EXITED, WEXITSTATUS(wait_status))
            : signal_of_child(index, WCOREDUMP(wait_status) ? CLD_DUMPED : CLD_KILLED, WTERMSIG(wait_status));
    info.signal = domain().processes[index].end_signal;
    return info;
}

bool queue_signal(PendingSignals& pending, const SignalInfo& info) {
    const bool known = pending.set & signal_bit(info.signal);
    if (known && info.code == SI_TIMER && add_overruns(pending, info)) return true;
    if (known && info.signal < kFirstRealtime) return true;
    const uint32_t number = take_record();
    if (number == 0) {
        if (info.signal >= kFirstRealtime && info.code != SI_USER) return false;
        pending.set |= signal_bit(info.signal);  // that it is pending is not lost
        return true;
    }
    record(number) = info;
    record(number).next = 0;
    (pending.last != 0 ? record(pending.last).next : pending.first) = number;
    pending.last = number;
    pending.set |= signal_bit(info.signal);
    return true;
}

int32_t overruns_pending(const PendingSignals& pending, int signal, int timer) {
    if (!(pending.set & signal_bit(signal))) return -1;
    for (uint32_t number = pending.first; number != 0; number = record(number).next) {
        const SignalInfo& one = record(number);
        if (one.signal == signal && one.code == SI_TIMER && one.sender == timer) return one.status;
    }
    return -1;
}

bool unqueue_signal(PendingSignals& pending, uint64_t set, SignalInfo& info) {
    if ((pending.set & set) == 0) return false;
    const int signal = 1 + __builtin_ctzll(pending.set & set);
    info = {};
    info.signal = signal;
    info.code = SI_USER;
    uint32_t found = 0, before = 0;
    bool more = false;
    for (uint32_t* link = &pending.first; *link != 0;) {
        const uint32_t number = *link;
        if (record(number).signal != signal) {
            before = number;
            link = &record(number).next;
        } else if (found == 0) {
            found = number;
            info = record(number);
            *link = record(number).next;
            if (pending.last == number) pending.last = before;
            give_back(number);
        } else {
            more = true;
            break;
        }
    }
    if (!more) pending.set &= ~signal_bit(signal);
    return true;
}

void drop_signals(PendingSignals& pending, uint64_t set) {
    uint32_t before = 0;
    for (uint32_t* link = &pending.first; *link != 0;) {
        const uint32_t number = *link;
        if (set & signal_bit(record(number).signal)) {
            *link = record(number).next;
            if (pending.last == number) pending.last = before;
            give_back(number);
        } else {
            before = number;
            link = &record(number).next;
        }
    }
    pending.set &= ~set;
}

siginfo_t as_siginfo(const SignalInfo& info) {
    siginfo_t shown{};
    shown.si_signo = info.signal;
    shown.si_code = info.code;
    if (info.code > 0 && info.code != SI_KERNEL) {  // of a child, whatever signal it was to end with
        shown.si_pid = info.sender;
        shown.si_uid = info.user;
        shown.si_status = info.status;
    } else if (info.code == SI_TIMER) {
        shown.si_timerid = info.sender;
        shown.si_overrun = info.status;
        shown.si_value.sival_ptr = reinterpret_cast<void*>(info.value);
    } else {
        shown.si_pid = info.sender;
        shown.si_uid = info.user;
        shown.si_value.sival_ptr = reinterpret_cast<void*>(info.value);
    }
    return shown;
}

signalfd_siginfo as_signalfd(const SignalInfo& info) {
    signalfd_siginfo shown{};
    shown.ssi_signo = static_cast<uint32_t>(info.signal);
    shown.ssi_code = info.code;
    if (info.code == SI_TIMER) {
        shown.ssi_tid = static_cast<uint32_t>(info.sender);
        shown.ssi_overrun = static_cast<uint32_t>(info.status);
    } else {
        shown.ssi_pid = static_cast<uint32_t>(info.sender);
        shown.ssi_uid = info.user;
        shown.ssi_status = info.status;
    }
    shown.ssi_int = static_cast<int32_t>(info.value);
    shown.ssi_ptr = info.value;
    return shown;
}

}  // namespace crane::interpose
