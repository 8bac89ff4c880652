// The limits that who starts craned hands down to it (ulimit, Limit…= of a unit). What harms nobody is raised
// as far as it may be. What is too low all the same is refused at the start, by name: later it would be a
// signal in the midst of the work, or a table that cannot be mapped.
#pragma once

namespace crane::proxy {

/// Before anything else, and while there is one thread. Throws what is to be raised by hand.
void settle_own_limits();

}  // namespace crane::proxy
