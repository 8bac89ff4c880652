#include "proxy/standing.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kCaughtUp = 500;

}  // namespace

void Standing::heard(uint32_t replica, uint64_t admitted) {
    admitted_[replica] = admitted;
}

uint64_t Standing::others() const {
    uint64_t most = 0;
    for (const auto& [replica, admitted] : admitted_) most = std::max(most, admitted);
    return most;
}

bool Standing::trails(uint32_t replica, uint64_t own) const {
    const auto found = admitted_.find(replica);
    if (found == admitted_.end() || own == 0) return false;
    return found->second == 0 || found->second + kFarBehind < own;
}

bool Standing::far_behind(uint64_t own) {
    const uint64_t most = others();
    const uint64_t by = most > own ? most - own : 0;
    behind_ = by > (behind_ ? kCaughtUp : kFarBehind);
    return behind_;
}

}  // namespace crane::proxy
