// What the kernel does with this thread's system calls that come from outside the shim's own code
// (backstop.hpp): a byte per thread that it reads at each of them.
#pragma once

#include <cstdint>

namespace crane::interpose {

enum class Selector : uint8_t {
    kPass = 0,  ///< SYSCALL_DISPATCH_FILTER_ALLOW
    kTrap = 1,  ///< SYSCALL_DISPATCH_FILTER_BLOCK
};
extern thread_local volatile Selector selector __attribute__((tls_model("initial-exec")));

/// For a scope: what stood there before stands there again, however the scope is left. A jump over it does
/// not come by: see interpose/jumps.cpp.
template <Selector WANTED>
class SelectorScope {
  public:
    SelectorScope() : before_(selector) { selector = WANTED; }
    ~SelectorScope() { selector = before_; }
    SelectorScope(const SelectorScope&) = delete;
    SelectorScope& operator=(const SelectorScope&) = delete;

  private:
    const Selector before_;
};
/// While libc's own function does what the shim wants of it.
using CallsPass = SelectorScope<Selector::kPass>;
/// While the shim runs code of the program.
using CallsTrap = SelectorScope<Selector::kTrap>;

}  // namespace crane::interpose
