// A libevent listener that outlives a lack of descriptors. accept() then fails while the client still waits,
// and the loop would try again at once, for ever, and say so each time: instead the listener pauses for a
// moment, and says it once in a while.
#pragma once

#include <cstdint>
#include <string>

struct event;
struct event_base;
struct evconnlistener;

namespace crane::paxos {

class AcceptPause {
  public:
    /// `what` names the listener in messages. The listener must outlive this object.
    AcceptPause(event_base* base, evconnlistener* listener, std::string what);
    ~AcceptPause();
    AcceptPause(const AcceptPause&) = delete;
    AcceptPause& operator=(const AcceptPause&) = delete;

  private:
    static void on_error(evconnlistener* listener, void* self);
    static void on_timer(int fd, short what, void* self);

    evconnlistener* listener_;
    std::string what_;
    event* timer_;
    uint64_t said_s_ = 0;  ///< when, by the monotonic clock; 0: never
};

}  // namespace crane::paxos
