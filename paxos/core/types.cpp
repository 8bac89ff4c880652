#include "paxos/core/types.hpp"

#include <xxhash.h>

#include "base/check.hpp"

namespace crane::paxos {

std::string view_name(View view) {
    return std::to_string(view_counter(view)) + "." + std::to_string(view_leader(view));
}

uint64_t chain_hash(uint64_t previous, const Entry& entry) {
    CRANE_CHECK(entry.value != nullptr);
    const uint64_t head[4] = {previous, entry.index, entry.view, static_cast<uint64_t>(entry.kind)};
    return XXH64(entry.value->data(), entry.value->size(), XXH64(head, sizeof head, 0));
}

const char* role_name(Role role) {
    switch (role) {
        case Role::kFollower:
            return "follower";
        case Role::kPreCandidate:
            return "pre-candidate";
        case Role::kCandidate:
            return "candidate";
        case Role::kLeader:
            return "leader";
    }
    return "?";
}

}  // namespace crane::paxos
