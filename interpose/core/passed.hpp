// Descriptors that travel between processes of the domain (SCM_RIGHTS), with what they mean under the shim.
//
// The kernel carries the descriptors; their meaning waits in a table of the domain. Each message carries one
// descriptor more, the ticket: its file offset names the entry of the table, so meaning and message cannot
// part, in whatever order sockets are read. The ticket holds a lock for as long as it is open anywhere, under
// way in a message included: an entry whose lock is gone was received, or lost with its socket, and its
// references are dropped.
#pragma once

#include "interpose/core/fds.hpp"

namespace crane::interpose {

/// sendmsg(2), which does not wait, with a ticket if the message carries descriptors. Turn in hand.
long send_message(int fd, const msghdr* message, int flags);
/// recvmsg(2), which does not wait: descriptors get their meaning, the ticket is taken out. Turn in hand.
long receive_message(int fd, msghdr* message, int flags);
/// Tickets are made by way of /proc: a process that will not see it any more (chroot) keeps it.
void before_root_changes();
/// Drops what no message carries any more. To be called after anything that may end a message. Turn in hand.
void settle_passed();
inline void settle_passed_if_any() {
    if (__builtin_expect(domain().passed_under_way != 0, 0)) settle_passed();
}

}  // namespace crane::interpose
