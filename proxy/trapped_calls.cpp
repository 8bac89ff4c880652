#include "proxy/trapped_calls.hpp"

#include <seccomp.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace crane::proxy {

namespace {

constexpr size_t kShownSites = 10;

std::string name_of(uint32_t number) {
    char* name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, static_cast<int>(number));
    std::string text = name ? name : std::to_string(number);
    free(name);
    return text;
}

std::string hex(uint64_t value) {
    char text[19];
    snprintf(text, sizeof(text), "0x%lx", value);
    return text;
}

struct Site {
    uint64_t calls;
    uint32_t number;
    std::string from;
};

/// The shim has written the name before it counts the first call.
std::string place_of(const timebubble::TrapSite& site) {
    char object[sizeof(site.object)];
    std::memcpy(object, site.object, sizeof(object));
    std::string text(object, strnlen(object, sizeof(object)));
    for (char& one : text)
        if (!isprint(static_cast<unsigned char>(one))) one = '?';
    return text.empty() ? hex(site.at.load()) : text + "+" + hex(site.offset.load());
}

std::vector<Site> hottest(const timebubble::TrappedCalls& trapped) {
    std::vector<Site> sites;
    for (const timebubble::TrapSite& site : trapped.sites) {
        const uint64_t calls = site.calls.load(std::memory_order_acquire);
        if (calls != 0) sites.push_back({calls, site.number.load(), place_of(site)});
    }
    std::stable_sort(sites.begin(), sites.end(),
                     [](const Site& a, const Site& b) { return a.calls > b.calls; });
    if (sites.size() > kShownSites) sites.resize(kShownSites);
    return sites;
}

}  // namespace

nlohmann::json trapped_calls_json(const timebubble::TrappedCalls& trapped) {
    uint64_t all = 0;
    nlohmann::json calls = nlohmann::json::object();
    for (uint32_t number = 0; number < timebubble::kSystemCalls; ++number) {
        const uint64_t count = trapped.by_number[number].load();
        if (count == 0) continue;
        all += count;
        calls[name_of(number)] = count;
    }
    nlohmann::json sites = nlohmann::json::array();
    for (const Site& site : hottest(trapped))
        sites.push_back({{"call", name_of(site.number)}, {"from", site.from}, {"calls", site.calls}});
    return {{"all", all}, {"calls", calls}, {"sites", sites}};
}

}  // namespace crane::proxy
