// What a program may ask for of the kernel's scheduler (sched.h): checked as the kernel does.
#pragma once

#include <pthread.h>
#include <sched.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// 0, -EINVAL or -EPERM.
long check_policy(int policy, int priority);
/// What the attributes of a new thread ask for in place of its maker's; -errno, 0 also if nothing.
long explicit_policy(const pthread_attr_t& attributes, SchedulingPolicy& policy);
/// Processors that somebody binds a thread to, as ThreadExtra::processors_off; -EINVAL: there is none of
/// them.
long processors_left_out(const cpu_set_t* set, size_t bytes, uint64_t& off);

}  // namespace crane::interpose
