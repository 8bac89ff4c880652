#include "interpose/core/vdso.hpp"

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstring>

namespace crane::interpose {

KernelFunctions kernel_functions{};

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr size_t kJumpBytes = 12;  // mov $…,%rax; jmp *%rax

/// What is needed of the tables that a loader would read.
struct Symbols {
    const char* base = nullptr;
    const ElfW(Sym) * first = nullptr;
    const char* names = nullptr;
    uint32_t count = 0;
};

/// The number of symbols by the older table of names, or else by the newer one.
uint32_t count_symbols(const uint32_t* hash, const uint32_t* gnu_hash) {
    if (hash) return hash[1];
    if (!gnu_hash) return 0;
    const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], words = gnu_hash[2];
    const uint32_t* bucket = gnu_hash + 4 + 2 * words;
    const uint32_t* chain = bucket + buckets;
    uint32_t last = 0;
    for (uint32_t i = 0; i < buckets; ++i)
        if (bucket[i] > last) last = bucket[i];
    if (last < first) return 0;
    while (!(chain[last - first] & 1)) ++last;
    return last + 1;
}

bool read_symbols(Symbols& out) {
    const auto* image = reinterpret_cast<const char*>(getauxval(AT_SYSINFO_EHDR));
    if (!image) return false;
    const auto* head = reinterpret_cast<const ElfW(Ehdr)*>(image);
    const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(image + head->e_phoff);
    const ElfW(Dyn)* dynamic = nullptr;
    for (unsigned i = 0; i < head->e_phnum; ++i) {
        if (parts[i].p_type == PT_LOAD && !out.base) out.base = image + parts[i].p_offset - parts[i].p_vaddr;
        if (parts[i].p_type == PT_DYNAMIC)
            dynamic = reinterpret_cast<const ElfW(Dyn)*>(image + parts[i].p_offset);
    }
    const uint32_t *hash = nullptr, *gnu_hash = nullptr;
    for (; out.base && dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
        const char* at = out.base + dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_STRTAB) out.names = at;
        if (dynamic->d_tag == DT_SYMTAB) out.first = reinterpret_cast<const ElfW(Sym)*>(at);
        if (dynamic->d_tag == DT_HASH) hash = reinterpret_cast<const uint32_t*>(at);
        if (dynamic->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const uint32_t*>(at);
    }
    out.count = count_symbols(hash, gnu_hash);
    return out.names && out.first;
}

/// The whole of it, which the kernel lets nobody divide: up to its table of sections, the last thing in it.
bool protect(int protection) {
    const uint64_t image = getauxval(AT_SYSINFO_EHDR);
    const auto* head = reinterpret_cast<const ElfW(Ehdr)*>(image);
    const uint64_t bytes = head->e_shoff + uint64_t{head->e_shnum} * head->e_shentsize;
    const uint64_t whole = (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
    return raw(SYS_mprotect, image, whole, protection) == 0;
}

void lead(const Symbols& symbols, const char* name, const void* target) {
    uint8_t jump[kJumpBytes] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    std::memcpy(jump + 2, &target, sizeof(target));
    for (uint32_t i = 0; i < symbols.count; ++i) {
        const ElfW(Sym)& one = symbols.first[i];
        if (one.st_size < kJumpBytes || strcmp(symbols.names + one.st_name, name) != 0) continue;
        const auto at = reinterpret_cast<uint64_t>(symbols.base) + one.st_value;
        auto* code = reinterpret_cast<uint8_t*>(at);
        if (std::memcmp(code, jump, sizeof(jump)) == 0) return;
        if (!protect(PROT_READ | PROT_WRITE | PROT_EXEC)) return;
        std::memcpy(code, jump, sizeof(jump));
        protect(PROT_READ | PROT_EXEC);
        return;
    }
}

}  // namespace

void lead_kernel_functions() {
    Symbols symbols;
    if (!domain().backstop || !read_symbols(symbols)) return;
    const KernelFunctions& to = kernel_functions;
    lead(symbols, "__vdso_clock_gettime", reinterpret_cast<const void*>(to.clock_gettime));
    lead(symbols, "__vdso_gettimeofday", reinterpret_cast<const void*>(to.gettimeofday));
    lead(symbols, "__vdso_time", reinterpret_cast<const void*>(to.time));
    lead(symbols, "__vdso_clock_getres", reinterpret_cast<const void*>(to.clock_getres));
    lead(symbols, "__vdso_getcpu", reinterpret_cast<const void*>(to.getcpu));
    lead(symbols, "__vdso_getrandom", reinterpret_cast<const void*>(to.getrandom));
}

}  // namespace crane::interpose
