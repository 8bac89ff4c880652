// Reads of the time stamp counter, often, at places of all shapes: what stands around them must not notice that
// the instruction is another one after a while.
#include <x86intrin.h>

#include "serve.h"

enum { kReads = 100 };

// Flags, all registers that a compiler may use, the red zone and a vector register go through it.
static int keeps_all(void) {
    unsigned long wrong = 0;
    for (int i = 0; i < kReads; i++) {
        unsigned long bad = 0;
        __asm__ volatile(
            "mov $1, %%rcx\n mov $2, %%rsi\n mov $3, %%rdi\n mov $4, %%r8\n mov $5, %%r9\n mov $6, %%r10\n"
            "mov $7, %%r11\n mov $8, %%rbx\n"
            "movq %%rbx, %%xmm5\n"
            "movq $99, -64(%%rsp)\n"
            "stc\n"
            "rdtsc\n"
            "mov %%rax, %%r12\n"
            "sbb $0, %%rcx\n"  // carry was set: 0
            "or %%rcx, %0\n"
            "shl $32, %%rdx\n or %%rdx, %%rax\n"
            "xor $2, %%rsi\n or %%rsi, %0\n xor $3, %%rdi\n or %%rdi, %0\n xor $4, %%r8\n or %%r8, %0\n"
            "xor $5, %%r9\n or %%r9, %0\n xor $6, %%r10\n or %%r10, %0\n xor $7, %%r11\n or %%r11, %0\n"
            "movq %%xmm5, %%rcx\n xor $8, %%rcx\n or %%rcx, %0\n"
            "movq -64(%%rsp), %%rcx\n xor $99, %%rcx\n or %%rcx, %0\n"
            "mov %%rax, %%rcx\n shr $32, %%r12\n or %%r12, %0\n"  // the upper half of rax was cleared
            : "+r"(bad)
            :
            : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "rbx", "xmm5", "memory", "cc");
        wrong |= bad;
    }
    return wrong == 0;
}

__attribute__((used)) static unsigned long table[4] = {10, 20, 30, 40};

// What follows reaches memory by its distance from the instruction.
static int reads_beside(void) {
    unsigned long sum = 0;
    for (int i = 0; i < kReads; i++) {
        unsigned long value;
        __asm__ volatile("rdtsc\n mov table+8(%%rip), %0\n" : "=r"(value) : : "rax", "rdx");
        sum += value;
    }
    return sum == 20 * kReads;
}

// Two short instructions have to be moved; behind rdtscp one.
static int rises(int kind) {
    unsigned long before = 0;
    unsigned processor = 7;
    for (int i = 0; i < kReads; i++) {
        unsigned long low, high;
        if (kind == 0)
            __asm__ volatile("rdtsc\n mov %%eax, %%eax\n mov %%edx, %%edx\n" : "=a"(low), "=d"(high));
        else if (kind == 1)
            __asm__ volatile("rdtscp\n shl $1, %%ecx\n" : "=a"(low), "=d"(high), "=c"(processor));
        else  // nothing can be moved: it goes on as before
            __asm__ volatile("rdtsc\n jmp 1f\n 1: nop\n" : "=a"(low), "=d"(high));
        const unsigned long now = high << 32 | low;
        if (now <= before) return 0;
        before = now;
    }
    return kind != 1 || processor < 4096;
}

// Somebody jumps behind the instruction: it must not be patched.
static int jumped_into(void) {
    unsigned long sum = 0;
    for (int i = 0; i < kReads; i++) {
        unsigned long value = 1;
        __asm__ volatile(
            "test $1, %1\n"
            "mov $5, %%eax\n"
            "jz 1f\n"
            "rdtsc\n"
            "mov $6, %%eax\n"
            "1: add $1, %%rax\n"
            "mov %%rax, %0\n"
            : "=r"(value)
            : "r"(i)
            : "rax", "rdx", "cc");
        __asm__ volatile(
            "test $1, %1\n"
            "mov $50, %%eax\n"
            "jz 1f\n"
            "rdtsc\n"
            "1: lea 1(%%rax), %%rax\n"
            "test $1, %1\n"
            "jz 2f\n"
            "mov $51, %%eax\n"
            "2: add %%rax, %0\n"
            : "+r"(value)
            : "r"(i)
            : "rax", "rdx", "cc");
        sum += value;
    }
    return sum == kReads / 2 * (6 + 51) + kReads / 2 * (7 + 51);
}

static void scenario(void) {
    say("all is kept: %d", keeps_all());
    say("reads beside it: %d", reads_beside());
    say("rises: %d %d %d", rises(0), rises(1), rises(2));
    say("jumped into: %d", jumped_into());
    order("counter %llu", (unsigned long long)__rdtsc());
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
