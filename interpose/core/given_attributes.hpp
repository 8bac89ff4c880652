// What a program's attributes say of a new thread that is the domain's affair, or the host's: taken out of
// them while libc makes it. What they refer to is shared with the program's own, which shall be as they were.
#pragma once

#include <pthread.h>

#include "interpose/core/scheduling_policy.hpp"
#include "interpose/core/signal_masks.hpp"

namespace crane::interpose {

/// Blocked signals: the kernel would hold back the shim's own.
class GivenMask {
  public:
    GivenMask(pthread_attr_t& attributes, uint64_t& mask) : attributes_(attributes) {
        given_ = pthread_attr_getsigmask_np(&attributes, &set_) == 0;
        if (!given_) return;
        mask = mask_from(&set_);
        pthread_attr_setsigmask_np(&attributes, nullptr);
    }
    ~GivenMask() {
        if (given_) pthread_attr_setsigmask_np(&attributes_, &set_);
    }
    GivenMask(const GivenMask&) = delete;
    GivenMask& operator=(const GivenMask&) = delete;

  private:
    pthread_attr_t& attributes_;
    sigset_t set_{};
    bool given_ = false;
};

/// Processors to run on: which there are differs by host, and the schedule does not care.
class GivenProcessors {
  public:
    explicit GivenProcessors(pthread_attr_t& attributes) : attributes_(attributes) {
        // Where none are given all are told of, and they fit in no room at all.
        const bool some = pthread_attr_getaffinity_np(&attributes, 0, set_) != 0;
        error_ = pthread_attr_getaffinity_np(&attributes, sizeof(set_), set_);
        given_ = error_ == 0 && (some || CPU_COUNT_S(sizeof(set_), set_) == 0);
        if (given_) pthread_attr_setaffinity_np(&attributes, 0, set_);
    }
    ~GivenProcessors() {
        if (given_) pthread_attr_setaffinity_np(&attributes_, sizeof(set_), set_);
    }
    GivenProcessors(const GivenProcessors&) = delete;
    GivenProcessors& operator=(const GivenProcessors&) = delete;
    /// An errno: none of them is there, or there are more than any kernel knows.
    int leave_out(uint64_t& off) const {
        if (error_ != 0) return error_;
        return given_ ? static_cast<int>(-processors_left_out(set_, sizeof(set_), off)) : 0;
    }

  private:
    static constexpr size_t kMostProcessors = 8192;
    pthread_attr_t& attributes_;
    cpu_set_t set_[kMostProcessors / CPU_SETSIZE] = {};
    int error_ = 0;
    bool given_ = false;
};

/// Those that libc would take in place of none, when the program has set some.
class DefaultAttributes {
  public:
    explicit DefaultAttributes(bool wanted) {
        if (wanted) taken_ = pthread_getattr_default_np(&attributes_) == 0;
    }
    ~DefaultAttributes() {
        if (taken_) pthread_attr_destroy(&attributes_);
    }
    DefaultAttributes(const DefaultAttributes&) = delete;
    DefaultAttributes& operator=(const DefaultAttributes&) = delete;
    const pthread_attr_t* get() const { return taken_ ? &attributes_ : nullptr; }

  private:
    pthread_attr_t attributes_{};
    bool taken_ = false;
};

}  // namespace crane::interpose
