// What the user of consensus is told, and asked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "paxos/core/membership.hpp"
#include "paxos/core/types.hpp"

namespace crane::paxos {

struct NodeCallbacks {
    /// Every decided entry, NewView entries included (kind tells), from `first_index` on, strictly in index
    /// order. May call propose(), send_app_message() and pause_delivery(); must not destroy the node.
    std::function<void(const Entry&)> on_decided;
    /// Role, view or known leader changed. leader is 0 while none is known. Role::kLeader is reported when
    /// the view change is won, before the NewView entry of that view is decided; propose() works from here
    /// on.
    std::function<void(Role role, uint64_t view, uint32_t leader)> on_role;
    /// A decided entry changed who the replicas are. Also called from start(), with what holds then. When
    /// membership.removed() has this replica, it should be shut down.
    std::function<void(const MembershipAt& membership)> on_membership;
    /// Opaque bytes (at most kMaxReportBytes) that this replica attaches to its acknowledgements to the
    /// leader. Called for every acknowledgement, so keep it cheap. Empty: nothing attached.
    std::function<std::string()> make_report;
    /// On the leader: the report of replica `from`.
    std::function<void(uint32_t from, const std::string& report)> on_report;
    /// A message sent with send_app_message by replica `from`.
    std::function<void(uint32_t from, std::string message)> on_app_message;
    /// The pipeline was full (propose said false while leader) and has room again.
    std::function<void()> on_writable;
    /// The link to a peer came up or went down. Application messages queued on a link that went down are
    /// lost.
    std::function<void(uint32_t peer, bool up)> on_peer;
    /// This replica cannot go on (disk full, corrupt database): the node has stopped, the process should log
    /// the reason and exit. Default: the reason goes to stderr and the process aborts.
    std::function<void(const std::string& reason)> on_fatal;
};

}  // namespace crane::paxos
