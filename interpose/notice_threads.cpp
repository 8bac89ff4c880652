#include "interpose/notice_threads.hpp"

#include <cstdlib>

namespace crane::interpose {
namespace {

struct Notice {
    void (*function)(sigval);
    sigval value;
};

void* run_notice(void* argument) {
    auto* notice = static_cast<Notice*>(argument);
    const Notice told = *notice;
    free(notice);
    told.function(told.value);
    return nullptr;
}

}  // namespace

bool call_in_own_thread(void (*function)(sigval), sigval value, const pthread_attr_t* attributes) {
    auto* notice = static_cast<Notice*>(malloc(sizeof(Notice)));
    if (!notice) return false;
    *notice = {function, value};
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
