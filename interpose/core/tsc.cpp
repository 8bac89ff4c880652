#include "interpose/core/tsc.hpp"

#include <sys/auxv.h>
#include <sys/prctl.h>
#include <x86intrin.h>

#include <cstring>

#include "interpose/core/environment.hpp"
#include "interpose/core/tsc_patch.hpp"

namespace crane::interpose {

namespace {

constexpr uint64_t kTicksPerNs = 2;  // a 2 GHz processor
constexpr uint8_t kRdtsc[] = {0x0f, 0x31};
constexpr uint8_t kRdtscp[] = {0x0f, 0x01, 0xf9};

void set_mode(long mode) {
    raw(SYS_prctl, PR_SET_TSC, mode, 0, 0, 0);
}

bool in_kernel_code(uint64_t at) {
    static const uint64_t start = getauxval(AT_SYSINFO_EHDR);
    constexpr uint64_t kMostBytes = 16 * 1024;
    return start != 0 && at >= start && at < start + kMostBytes;
}

uint64_t real_counter() {
    set_mode(PR_TSC_ENABLE);
    const uint64_t value = __rdtsc();
    set_mode(PR_TSC_SIGSEGV);
    return value;
}

uint64_t read_tsc() {
    return self.active ? now_monotonic_ns() * kTicksPerNs : real_counter();
}

}  // namespace

void choose_tsc(char** environment) {
    const char* wanted = find_variable(environment, "CRANE_TSC");
    domain().trap_tsc = !wanted || strcmp(wanted, "real") != 0;
}

void install_tsc_trap() {
    if (tsc_trapped()) set_mode(PR_TSC_SIGSEGV);
}

void remove_tsc_trap() {
    if (tsc_trapped()) set_mode(PR_TSC_ENABLE);
}

bool emulate_tsc(const siginfo_t& info, ucontext_t& context) {
    // A protection fault of an instruction that was fetched: its bytes can be read.
    if (info.si_code != SI_KERNEL || !runtime.domain || !tsc_trapped()) return false;
    if (self.active && domain().threads[self.slot].counter_denied) return false;
    greg_t* registers = context.uc_mcontext.gregs;
    const auto at = static_cast<uint64_t>(registers[REG_RIP]);
    const auto* code = reinterpret_cast<const uint8_t*>(at);
    const bool simple = std::memcmp(code, kRdtsc, sizeof(kRdtsc)) == 0;
    if (!simple && std::memcmp(code, kRdtscp, sizeof(kRdtscp)) != 0) return false;
    const size_t bytes = simple ? sizeof(kRdtsc) : sizeof(kRdtscp);
    // Once patched it is made again, and reads the counter then.
    if (self.active && !in_kernel_code(at) && note_tsc_fault(at, bytes, read_tsc)) return true;
    const uint64_t value = in_kernel_code(at) ? real_counter() : read_tsc();
    registers[REG_RAX] = static_cast<greg_t>(value & 0xffff'ffff);
    registers[REG_RDX] = static_cast<greg_t>(value >> 32);
    if (!simple) registers[REG_RCX] = 0;
    registers[REG_RIP] += static_cast<greg_t>(bytes);
    return true;
}

}  // namespace crane::interpose
