// Random numbers by the processor's own instructions: natively others each time, here the same on all replicas.
#include <cpuid.h>
#include <pthread.h>
#include <stdint.h>

#include "serve.h"

#define DRAW(name, type, instruction)                                                   \
    static int name(type* value) {                                                      \
        unsigned char drawn;                                                            \
        __asm__ volatile(instruction " %0; setc %1" : "=r"(*value), "=qm"(drawn) : : "cc"); \
        return drawn;                                                                   \
    }
DRAW(short_one, uint16_t, "rdrand")
DRAW(middle_one, uint32_t, "rdrand")
DRAW(long_one, uint64_t, "rdrand")
DRAW(short_seed, uint16_t, "rdseed")
DRAW(middle_seed, uint32_t, "rdseed")
DRAW(long_seed, uint64_t, "rdseed")

static int drawn_into_high_register(uint64_t* value) {
    register uint64_t high __asm__("r13");
    unsigned char drawn;
    __asm__ volatile("rdrand %0; setc %1" : "=r"(high), "=qm"(drawn) : : "cc");
    *value = high;
    return drawn;
}

// The processor may have none left, and says so.
#define SHOW(draw, type)                                                 \
    do {                                                                 \
        type one = 0, other = 0;                                         \
        while (!draw(&one)) {}                                           \
        while (!draw(&other)) {}                                         \
        order(#draw " %llx %llx", (unsigned long long)one, (unsigned long long)other); \
        if (sizeof(type) > 2) say(#draw ": %s", one != other ? "two of them differ" : "the same"); \
    } while (0)

static void* beside(void* unused) {
    (void)unused;
    for (int i = 0; i < 100; ++i) {
        uint64_t one;
        while (!long_one(&one)) {}
        if (i % 25 == 0) order("beside %llx", (unsigned long long)one);
    }
    return NULL;
}

static void scenario(void) {
    unsigned a, b, c, d, has_rdseed = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_RDRND)) {
        say("no rdrand here");
        return;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) has_rdseed = b & bit_RDSEED;
    SHOW(short_one, uint16_t);
    SHOW(middle_one, uint32_t);
    SHOW(long_one, uint64_t);
    SHOW(drawn_into_high_register, uint64_t);
    if (has_rdseed) {
        SHOW(short_seed, uint16_t);
        SHOW(middle_seed, uint32_t);
        SHOW(long_seed, uint64_t);
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
    beside(NULL);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
