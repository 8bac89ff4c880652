#include "paxos/link/accept_pause.hpp"

#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <time.h>

#include <map>
#include <stdexcept>

namespace crane::paxos {
namespace {

constexpr timeval kPause{0, 100'000};
constexpr uint64_t kSayEveryS = 60;

/// libevent hands the callback of an error the pointer that the callback of an accepted socket gets, which is
/// the listener's owner. One thread runs all loops that have these.
std::map<evconnlistener*, AcceptPause*>& pauses() {
    static thread_local std::map<evconnlistener*, AcceptPause*> all;
    return all;
}

}  // namespace

AcceptPause::AcceptPause(event_base* base, evconnlistener* listener, std::string what)
    : listener_(listener), what_(std::move(what)), timer_(evtimer_new(base, &AcceptPause::on_timer, this)) {
    if (!timer_) throw std::runtime_error("no memory for a timer");
    pauses()[listener_] = this;
    evconnlistener_set_error_cb(listener_, &AcceptPause::on_error);
}

AcceptPause::~AcceptPause() {
    pauses().erase(listener_);
    event_free(timer_);
}

void AcceptPause::on_error(evconnlistener* listener, void*) {
    const int error = errno;
    const auto found = pauses().find(listener);
    if (found == pauses().end()) return;
    AcceptPause& self = *found->second;
    evconnlistener_disable(listener);
    evtimer_add(self.timer_, &kPause);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const auto now_s = static_cast<uint64_t>(now.tv_sec) + 1;
    if (self.said_s_ != 0 && now_s < self.said_s_ + kSayEveryS) return;
    self.said_s_ = now_s;
    spdlog::error("cannot accept at {}: {}; it is tried again ten times a second{}", self.what_,
                  strerror(error),
                  error == EMFILE || error == ENFILE ? ": raise the limit of open files (ulimit -n)" : "");
}

void AcceptPause::on_timer(int, short, void* self) {
    evconnlistener_enable(static_cast<AcceptPause*>(self)->listener_);
}

}  // namespace crane::paxos
