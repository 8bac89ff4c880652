// What the program asks libc about the machine. The files that say the same are in core/machine.cpp.
#include <ifaddrs.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "base/shown_files.hpp"
#include "interpose/core/machine.hpp"
#include "interpose/core/user_memory.hpp"

using namespace crane::interpose;

namespace {

int fail(int error) {
    errno = error;
    return -1;
}

}  // namespace

CRANE_EXPORT long sysconf(int name) noexcept {
    if (!active()) return resolve_real(), real.sysconf(name);
    switch (name) {
        case _SC_NPROCESSORS_ONLN:
        case _SC_NPROCESSORS_CONF:
            return virtual_cpus();
        case _SC_PHYS_PAGES:
            return static_cast<long>(virtual_memory_bytes() / kPageBytes);
        case _SC_AVPHYS_PAGES:
            return static_cast<long>(virtual_free_bytes() / kPageBytes);
        case _SC_LEVEL1_ICACHE_SIZE:
        case _SC_LEVEL1_DCACHE_SIZE:
            return 32 * 1024;
        case _SC_LEVEL2_CACHE_SIZE:
            return 1024 * 1024;
        case _SC_LEVEL3_CACHE_SIZE:
            return 16 * 1024 * 1024;
        case _SC_LEVEL1_ICACHE_LINESIZE:
        case _SC_LEVEL1_DCACHE_LINESIZE:
        case _SC_LEVEL2_CACHE_LINESIZE:
        case _SC_LEVEL3_CACHE_LINESIZE:
            return 64;
        case _SC_LEVEL1_ICACHE_ASSOC:
        case _SC_LEVEL1_DCACHE_ASSOC:
        case _SC_LEVEL2_CACHE_ASSOC:
        case _SC_LEVEL3_CACHE_ASSOC:
            return 8;
        case _SC_LEVEL4_CACHE_SIZE:
        case _SC_LEVEL4_CACHE_ASSOC:
        case _SC_LEVEL4_CACHE_LINESIZE:
            return 0;
        default:
            return real.sysconf(name);
    }
}

CRANE_EXPORT int get_nprocs() noexcept {
    return active() ? static_cast<int>(virtual_cpus()) : real.get_nprocs();
}
CRANE_EXPORT int get_nprocs_conf() noexcept {
    return active() ? static_cast<int>(virtual_cpus()) : real.get_nprocs_conf();
}
CRANE_EXPORT long get_phys_pages() noexcept {
    return active() ? static_cast<long>(virtual_memory_bytes() / kPageBytes) : real.get_phys_pages();
}
CRANE_EXPORT long get_avphys_pages() noexcept {
    return active() ? static_cast<long>(virtual_free_bytes() / kPageBytes) : real.get_avphys_pages();
}

CRANE_EXPORT int sched_getcpu() noexcept {
    if (!active()) return resolve_real(), real.sched_getcpu();
    count_cheap_call();
    return 0;
}
CRANE_EXPORT int getcpu(unsigned int* cpu, unsigned int* node) noexcept {
    if (!active()) return resolve_real(), real.getcpu(cpu, node);
    count_cheap_call();
    const bool told = (!cpu || store(cpu, 0U)) && (!node || store(node, 0U));
    return told ? 0 : fail(EFAULT);
}

CRANE_EXPORT int sysinfo(struct sysinfo* out) noexcept {
    if (!active()) return resolve_real(), real.sysinfo(out);
    struct sysinfo told {};
    told.uptime = static_cast<long>(now_monotonic_ns() / kNsPerSecond);
    told.totalram = virtual_memory_bytes();
    told.freeram = virtual_free_bytes();
    told.procs = 1;
    told.mem_unit = 1;
    return store(out, told) ? 0 : fail(EFAULT);
}

CRANE_EXPORT int getloadavg(double* averages, int count) noexcept {
    if (!active()) return resolve_real(), real.getloadavg(averages, count);
    const int given = std::clamp(count, 0, 3);
    for (int i = 0; i < given; ++i) averages[i] = 0;
    return given;
}

CRANE_EXPORT int uname(utsname* out) noexcept {
    const int rc = real.uname(out);
    if (rc != 0 || !active()) return rc;
    const auto show = [](auto& place, const char* text) {
        std::memset(place, 0, sizeof(place));
        strncpy(place, text, sizeof(place) - 1);
    };
    show(out->nodename, virtual_hostname());
    show(out->domainname, "(none)");
    show(out->release, crane::kShownRelease);
    show(out->version, crane::kShownVersion);
    return 0;
}

CRANE_EXPORT int gethostname(char* place, size_t room) noexcept {
    if (!active()) return resolve_real(), real.gethostname(place, room);
    const size_t bytes = strlen(virtual_hostname()) + 1;
    std::memcpy(place, virtual_hostname(), std::min(bytes, room));
    return bytes <= room ? 0 : fail(ENAMETOOLONG);
}

CRANE_EXPORT int __gethostname_chk(char* place, size_t room, size_t) {
    return ::gethostname(place, room);
}

CRANE_EXPORT int getdomainname(char* place, size_t room) noexcept {
    if (!active()) return resolve_real(), real.getdomainname(place, room);
    constexpr char kNone[] = "(none)";
    std::memcpy(place, kNone, std::min(sizeof(kNone), room));
    return sizeof(kNone) <= room ? 0 : fail(EINVAL);
}

CRANE_EXPORT long gethostid() {
    constexpr long kLoopbackId = 0x007f0101;  // what glibc makes of 127.0.1.1
    return active() ? kLoopbackId : real.gethostid();
}
