#include "proxy/host_clocks.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kPeriodNs = 2'000'000'000;
constexpr uint64_t kStaleNs = 10'000'000'000;

int64_t distance(uint64_t real_ns, uint64_t mono_ns) {
    return static_cast<int64_t>(real_ns - mono_ns);
}

}  // namespace

void HostClocks::heard(uint32_t replica, uint64_t real_ns, uint64_t mono_ns) {
    const int64_t offset = distance(real_ns, mono_ns);
    const auto [at, is_new] = hosts_.try_emplace(replica, Host{mono_ns, mono_ns, offset, offset});
    Host& host = at->second;
    if (is_new) return;
    if (mono_ns - host.since_ns >= 2 * kPeriodNs) {
        host = {mono_ns, mono_ns, offset, offset};
    } else if (mono_ns - host.since_ns >= kPeriodNs) {
        host = {mono_ns, mono_ns, offset, host.offset};
    }
    host.offset = std::max(host.offset, offset);
    host.last_ns = mono_ns;
}

void HostClocks::own(uint32_t self, uint64_t real_ns, uint64_t mono_ns) {
    const int64_t offset = distance(real_ns, mono_ns);  // exact
    hosts_[self] = {mono_ns, mono_ns, offset, offset};
}

std::optional<int64_t> HostClocks::offset(uint32_t replica, uint64_t mono_ns) const {
    const auto found = hosts_.find(replica);
    if (found == hosts_.end() || mono_ns - found->second.last_ns > kStaleNs) return std::nullopt;
    return std::max(found->second.offset, found->second.before);
}

RealOffset HostClocks::agreed(const std::vector<uint32_t>& voters, uint64_t mono_ns) const {
    std::vector<int64_t> offsets;
    for (const uint32_t voter : voters) {
        if (const auto one = offset(voter, mono_ns)) offsets.push_back(*one);
    }
    std::sort(offsets.begin(), offsets.end());
    size_t first = 0, most = 0;
    for (size_t low = 0, high = 0; low < offsets.size(); ++low) {
        while (high < offsets.size() && offsets[high] - offsets[low] <= max_skew_ns_) ++high;
        if (high - low > most) {
            most = high - low;
            first = low;
        }
    }
    if (most < voters.size() / 2 + 1) return std::nullopt;
    const int64_t left = offsets[first + (most - 1) / 2], right = offsets[first + most / 2];
    return left + (right - left) / 2;
}

std::optional<int64_t> HostClocks::skew(uint32_t replica, int64_t real, uint64_t mono_ns) const {
    const auto one = offset(replica, mono_ns);
    if (!one) return std::nullopt;
    return *one - real;
}

bool HostClocks::heard_all(const std::vector<uint32_t>& voters, uint64_t mono_ns) const {
    return std::all_of(voters.begin(), voters.end(),
                       [&](uint32_t voter) { return offset(voter, mono_ns).has_value(); });
}

bool HostClocks::wrong(uint32_t replica, const RealOffset& real, uint64_t mono_ns) const {
    if (!real) return false;
    const auto found = skew(replica, *real, mono_ns);
    return found && !within_bound(*found);
}

}  // namespace crane::proxy
