// For what is made of calls that a thread can be cancelled in, and is itself none of them.
#pragma once

#include <pthread.h>

namespace crane::interpose {

class Uncancelled {
  public:
    Uncancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~Uncancelled() { ::pthread_setcancelstate(before_, nullptr); }
    Uncancelled(const Uncancelled&) = delete;
    Uncancelled& operator=(const Uncancelled&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace crane::interpose
