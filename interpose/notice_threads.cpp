#include "interpose/notice_threads.hpp"

#include <cstdlib>

#include "interpose/core/runtime.hpp"
#include "interpose/core/signals.hpp"

namespace crane::interpose {
namespace {

struct Notice {
    void (*function)(sigval);
    sigval value;
    NoticeMask mask;
};

void* run_notice(void* argument) {
    auto* notice = static_cast<Notice*>(argument);
    const Notice told = *notice;
    free(notice);
    if (told.mask == NoticeMask::kNone) unblock_all_signals();
    told.function(told.value);
    return nullptr;
}

}  // namespace

void unblock_all_signals() {
    sigset_t none;
    sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

bool call_in_own_thread(void (*function)(sigval), sigval value, const pthread_attr_t* attributes,
                        NoticeMask mask) {
    auto* notice = static_cast<Notice*>(malloc(sizeof(Notice)));
    if (!notice) return false;
    *notice = {function, value, mask};
    pthread_t thread;
    if (::pthread_create(&thread, attributes, run_notice, notice) != 0) {
        free(notice);
        return false;
    }
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes) pthread_attr_getdetachstate(attributes, &state);
    if (state == PTHREAD_CREATE_JOINABLE) ::pthread_detach(thread);
    return true;
}

void give_notice(const sigevent& event, int code) {
    if (event.sigev_notify == SIGEV_SIGNAL) {
        Operation turn(Op::kSignal, process_key(runtime.process->pid));
        const auto value = reinterpret_cast<uint64_t>(event.sigev_value.sival_ptr);
        post_signal(runtime.process_index, signal_from_self(event.sigev_signo, code, value), dmt::kNoSlot);
    } else if (event.sigev_notify == SIGEV_THREAD) {
        const auto* attributes = static_cast<const pthread_attr_t*>(event.sigev_notify_attributes);
        if (!call_in_own_thread(event.sigev_notify_function, event.sigev_value, attributes,
                                NoticeMask::kNone))
            report("no thread to say in that what was asked for without waiting is done");
    }
}

bool begin_helper(void* (*routine)(void*)) {
    constexpr size_t kStackBytes = 256 * 1024;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error = ::pthread_create(&thread, &attributes, routine, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

}  // namespace crane::interpose
