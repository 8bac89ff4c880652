#include "interpose/notice_threads.hpp"

#include <cstdlib>

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

}  // namespace crane::interpose
