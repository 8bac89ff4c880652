#include "interpose/core/signal_masks.hpp"

#include <csignal>
#include <cstring>

namespace crane::interpose {

uint64_t mask_from(const sigset_t* set) {
    uint64_t mask;
    std::memcpy(&mask, set, sizeof(mask));
    return mask & ~(signal_bit(SIGKILL) | signal_bit(SIGSTOP));
}

void mask_to(uint64_t mask, sigset_t* set) {
    sigemptyset(set);
    std::memcpy(set, &mask, sizeof(mask));
}

}  // namespace crane::interpose
