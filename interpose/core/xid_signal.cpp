#include "interpose/core/xid_signal.hpp"

#include <atomic>

#include "interpose/core/backstop.hpp"

namespace crane::interpose {
namespace {

constexpr int kXidSignal = 33;

using Handler = void (*)(int, siginfo_t*, void*);
std::atomic<Handler> libc_handler = nullptr;

void on_xid_signal(int signal, siginfo_t* info, void* context) {
    const CallsPass pass;
    libc_handler.load(std::memory_order_relaxed)(signal, info, context);
}

}  // namespace

void lead_xid_signal() {
    if (libc_handler.load(std::memory_order_relaxed) || !domain().backstop) return;
    const Handler found = installed_action(kXidSignal);
    if (!found) return;
    libc_handler.store(found, std::memory_order_relaxed);
    install_action(kXidSignal, on_xid_signal, SA_SIGINFO | SA_RESTART);
}

}  // namespace crane::interpose
