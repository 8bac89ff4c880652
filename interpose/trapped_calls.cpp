// A system call that was made past every wrapper: what the kernel says of it by SIGSYS, led to where the
// wrapper would have led it. See core/backstop.hpp.
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <sys/auxv.h>

#include <cstring>
#include <optional>

#include "interpose/core/addresses.hpp"
#include "interpose/core/backstop.hpp"
#include "interpose/core/mapped_object.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/uncancelled.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/core/vdso.hpp"
#include "interpose/futex.hpp"
#include "interpose/plain_call.hpp"
#include "interpose/system_calls.hpp"

namespace crane::interpose {

namespace {

/// The dynamic loader's code. What it does is the same on every replica, and it has locks in its hand that no
/// operation may stand between.
CodeRange loader_code() {
    const uint64_t base = getauxval(AT_BASE);
    if (base == 0) return {0, 0};
    ElfW(Ehdr) head;
    std::memcpy(&head, reinterpret_cast<const void*>(base), sizeof(head));
    for (unsigned i = 0; i < head.e_phnum; ++i) {
        ElfW(Phdr) part;
        std::memcpy(&part, reinterpret_cast<const void*>(base + head.e_phoff + i * sizeof(part)),
                    sizeof(part));
        if (part.p_type == PT_LOAD && (part.p_flags & PF_X))
            return {base + part.p_vaddr, base + part.p_vaddr + part.p_memsz};
    }
    return {0, 0};
}

bool of_loader(uint64_t at) {
    static const CodeRange code = loader_code();
    return at >= code.begin && at < code.end;
}

CodeRange libc_code{0, 0};

int find_libc(dl_phdr_info* object, size_t, void*) {
    const auto wanted = reinterpret_cast<uint64_t>(&::gnu_get_libc_version);
    for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = object->dlpi_phdr[i];
        const uint64_t begin = object->dlpi_addr + part.p_vaddr;
        if (part.p_type != PT_LOAD || wanted < begin || wanted >= begin + part.p_memsz) continue;
        libc_code = {begin, begin + part.p_memsz};
        return 1;
    }
    return 0;
}

bool of_libc(uint64_t at) {
    return at >= libc_code.begin && at < libc_code.end;
}

/// libc looks up a name, or by which way an address would be reached: there is none to the outside, and who
/// asks is told at once, not after long waits for answers.
bool asks_outside(long number, const long* a, uint64_t at) {
    if (number != SYS_connect || !of_libc(at)) return false;
    constexpr uint16_t kNameService = 53;
    Address to{};
    const auto* address = reinterpret_cast<const sockaddr*>(a[1]);
    if (!readable(address, static_cast<size_t>(a[2])) || address->sa_family == AF_UNSPEC) return false;
    if (address_from_sockaddr(address, static_cast<socklen_t>(a[2]), to) != 0) return false;
    return !is_loopback(plain(to)) || to.port == kNameService;
}

void count(long number, uint64_t at) {
    timebubble::TrappedCalls& trapped = runtime.view.control->trapped;
    const auto index = static_cast<size_t>(number);
    if (index < timebubble::kSystemCalls) trapped.by_number[index].fetch_add(1, std::memory_order_relaxed);
    constexpr size_t kSites = sizeof(trapped.sites) / sizeof(*trapped.sites), kMostTries = 8;
    const size_t first = (at * 0x9e37'79b9'7f4a'7c15) >> 56;
    for (size_t i = 0; i < kMostTries; ++i) {
        timebubble::TrapSite& site = trapped.sites[(first + i) % kSites];
        uint64_t before = site.at.load(std::memory_order_relaxed);
        if (before == 0 && site.at.compare_exchange_strong(before, at)) {
            // Once for each: it reads the whole of /proc/self/maps.
            site.number.store(static_cast<uint32_t>(number), std::memory_order_relaxed);
            uint64_t offset = 0;
            find_mapped_object(at, site.object, sizeof(site.object), offset);
            site.offset.store(offset, std::memory_order_relaxed);
            before = at;
        }
        if (before != at) continue;
        site.calls.fetch_add(1, std::memory_order_release);
        return;
    }
}

bool inherits_priority(long operation) {
    switch (operation & FUTEX_CMD_MASK) {
        case FUTEX_LOCK_PI:
        case FUTEX_LOCK_PI2:
        case FUTEX_UNLOCK_PI:
        case FUTEX_TRYLOCK_PI:
        case FUTEX_WAIT_REQUEUE_PI:
        case FUTEX_CMP_REQUEUE_PI:
            return true;
        default:
            return false;
    }
}

/// Who has to wait for a lock of libc's is chance where threads run beside each other: it must not show in
/// the schedule. And libc tries whether the kernel has locks with priorities; their waits are in the
/// wrappers.
bool is_left_to_kernel(long number, const long* a, uint64_t at) {
    return number == SYS_futex && of_libc(at) && (!serial() || inherits_priority(a[1]));
}

long as_kernel(long rc) {
    return rc == -1 ? -errno : rc;
}

/// A child on a stack of its own, as libc starts programs: it shares no memory here, but finds the same in
/// it.
long begin_on_stack(const long* given, ucontext_t& context) {
    const long stack = given[1];
    const long arguments[6] = {given[0], 0, given[2], given[3], given[4], given[5]};
    const long rc = as_kernel(lead_system_call(SYS_clone, arguments));
    if (rc == 0) context.uc_mcontext.gregs[REG_RSP] = stack;
    return rc;
}

/// What the kernel takes back at the end of a handler has to be in the handler's frame.
long set_alternate_stack(const long* a, ucontext_t& context) {
    const long rc = as_kernel(lead_system_call(SYS_sigaltstack, a));
    if (rc == 0 && a[0] != 0) raw(SYS_sigaltstack, nullptr, &context.uc_stack);
    return rc;
}

/// Those of libc that sleep in the kernel (a thread that is told of a change of user) are woken, too.
long wake(const long* a) {
    const long woken = as_kernel(lead_system_call(SYS_futex, a));
    raw(SYS_futex, a[0], a[1], a[2], 0, 0, 0);
    return woken;
}

long lead(long number, const long* a, uint64_t at, ucontext_t& context) {
    constexpr long kAsVfork = CLONE_VM | CLONE_VFORK;
    self.trapped_at = at;
    if (asks_outside(number, a, at)) return -ENETUNREACH;
    switch (number) {
        case SYS_clone:
            if (a[1] != 0 && (!(a[0] & CLONE_VM) || (a[0] & kAsVfork) == kAsVfork))
                return begin_on_stack(a, context);
            break;
        case SYS_futex:
            if ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) return wake(a);
            break;
        case SYS_sigaltstack:
            return set_alternate_stack(a, context);
        default:
            break;
    }
    return as_kernel(lead_system_call(number, a));
}

/// Where libc can be cancelled it makes its call with asynchronous cancellation on: a request would end the
/// thread anywhere in the shim, by a signal. It is looked at when the call is done. Where it is not on, the
/// thread is in the midst of something that is no cancellation point.
class AsLibcCancels {
  public:
    AsLibcCancels() {
        real.pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type_);
        if (type_ == PTHREAD_CANCEL_DEFERRED) whole_.emplace(Uncancelled::By::kLibcToo);
    }
    ~AsLibcCancels() noexcept(false) {
        if (type_ != PTHREAD_CANCEL_DEFERRED) real.pthread_setcanceltype(type_, nullptr);
    }
    AsLibcCancels(const AsLibcCancels&) = delete;
    AsLibcCancels& operator=(const AsLibcCancels&) = delete;

  private:
    int type_ = PTHREAD_CANCEL_DEFERRED;
    std::optional<Uncancelled> whole_;
};

/// malloc asks for memory with its locks in hand: no place to let others go on, however often it does.
class Uncounted {
  public:
    explicit Uncounted(long number) : memory_(is_of_memory(number)), before_(self.spins.cheap_calls) {
        if (memory_) self.spins.cheap_calls = 0;
    }
    ~Uncounted() {
        if (memory_) self.spins.cheap_calls = before_;
    }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

  private:
    static bool is_of_memory(long number) {
        return number == SYS_brk || number == SYS_mmap || number == SYS_munmap || number == SYS_mremap ||
               number == SYS_mprotect || number == SYS_madvise;
    }
    bool memory_;
    uint32_t before_;
};

long lead_for_libc(long number, const long* a, uint64_t at, ucontext_t& context) {
    const AsLibcCancels cancels;
    const Uncounted memory(number);
    return lead(number, a, at, context);
}

long lead_uncancelled(long number, const long* a, uint64_t at, ucontext_t& context) {
    const Uncancelled whole;
    return lead(number, a, at, context);
}

void on_trapped_call(siginfo_t& info, ucontext_t& context) {
    greg_t* registers = context.uc_mcontext.gregs;
    const long number = info.si_syscall;
    const auto at = reinterpret_cast<uint64_t>(info.si_call_addr);
    if (number == SYS_rt_sigreturn) {  // the frame to leave is where the stack pointer says
        registers[REG_RIP] = reinterpret_cast<greg_t>(crane_restore);
        return;
    }
    const long a[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                       registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    const int saved = errno;
    long result;
    if (info.si_arch != AUDIT_ARCH_X86_64) {
        if (self.active && !in_operation()) refuse_call("a 32-bit system call");
        result = -ENOSYS;
    } else if (self.active && in_operation() && number == SYS_futex && !is_left_to_kernel(number, a, at)) {
        result = futex_in_operation(a);
    } else if (!self.active || in_operation() || is_left_to_kernel(number, a, at) ||
               (of_loader(at) && number != SYS_futex)) {
        result = raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    } else {
        count(number, at);
        result =
            of_libc(at) ? lead_for_libc(number, a, at, context) : lead_uncancelled(number, a, at, context);
    }
    registers[REG_RAX] = result;
    errno = saved;
}

// --- the functions of the kernel's that are called without a system call

template <typename Call>
long by_wrapper(long number, const long (&a)[6], Call call) {
    if (!self.active || in_operation()) return raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const int saved = errno;
    const long result = as_kernel(call());
    errno = saved;
    return result;
}

template <typename T>
long word_of(T* pointer) {
    return reinterpret_cast<long>(pointer);
}

long kernel_clock_gettime(clockid_t clock, timespec* time) {
    return by_wrapper(SYS_clock_gettime, {clock, word_of(time)},
                      [&] { return ::clock_gettime(clock, time); });
}
long kernel_gettimeofday(timeval* time, void* zone) {
    return by_wrapper(SYS_gettimeofday, {word_of(time), word_of(zone)},
                      [&] { return ::gettimeofday(time, zone); });
}
long kernel_time(time_t* place) {
    return by_wrapper(SYS_time, {word_of(place)}, [&] { return ::time(place); });
}
long kernel_clock_getres(clockid_t clock, timespec* time) {
    return by_wrapper(SYS_clock_getres, {clock, word_of(time)}, [&] { return ::clock_getres(clock, time); });
}
long kernel_getcpu(unsigned* cpu, unsigned* node, void*) {
    return by_wrapper(SYS_getcpu, {word_of(cpu), word_of(node)}, [&] { return ::getcpu(cpu, node); });
}
/// Who first asks how much state it needs is told that there is none, and goes on by the system call.
long kernel_getrandom(void* place, size_t bytes, unsigned flags, void*, size_t state_bytes) {
    if (state_bytes == ~size_t{0}) return -ENOSYS;
    return by_wrapper(SYS_getrandom, {word_of(place), static_cast<long>(bytes), static_cast<long>(flags)},
                      [&] { return ::getrandom(place, bytes, flags); });
}

/// Before anything is attached.
__attribute__((constructor(101))) void offer_trapped_calls() {
    dl_iterate_phdr(find_libc, nullptr);
    trapped_call = on_trapped_call;
    kernel_functions = {kernel_clock_gettime, kernel_gettimeofday, kernel_time,
                        kernel_clock_getres,  kernel_getcpu,       kernel_getrandom};
}

}  // namespace
}  // namespace crane::interpose
