// std::random_device of libstdc++ asks the processor (rdrand, rdseed), past every call of libc's.
#include <cstdlib>

#include "interpose/core/entropy.hpp"
#include "interpose/core/shared_operation.hpp"

using namespace crane::interpose;

namespace {

unsigned random_value() {
    unsigned word = 0;
    if (active()) {
        SharedOperation turn(Op::kEntropy, entropy_key());
        fill_random(&word, sizeof(word));
    } else {
        resolve_real();
        real.getentropy(&word, sizeof(word));
    }
    return word;
}

}  // namespace

// Whatever source an object was made for: nobody can tell the words apart.
#define CRANE_EXPORT_MEMBER(name, symbol)                                           \
    __attribute__((visibility("default"))) unsigned name(void* object) asm(symbol); \
    unsigned name(void*) {                                                          \
        return random_value();                                                      \
    }

CRANE_EXPORT_MEMBER(random_device_value, "_ZNSt13random_device9_M_getvalEv")
CRANE_EXPORT_MEMBER(random_device_old_value, "_ZNSt13random_device16_M_getval_pretr1Ev")

// What is linked into the shim of libstdc++ names this one, and would bring the library's own of the above
// with it.
void random_device_init(void* object, const char* token,
                        size_t length) asm("_ZNSt13random_device7_M_initEPKcm");
void random_device_init(void*, const char*, size_t) {
    abort();
}
