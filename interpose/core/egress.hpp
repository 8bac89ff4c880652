// Connections from the server to the outside, and questions for the addresses of names (docs/design.md, "To
// the outside"). The domain puts out what it wants; the primary's craned does it, and what comes of it is
// decided.
//
// Every function is called with the turn.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/core/domain.hpp"

namespace crane::interpose {

/// Whether the setting lets the server out at all.
bool egress_allowed();
/// Says, once, that a name server is not asked.
void refuse_name_server(const Address& to);

/// Begins to connect the new socket to that plain address. -EINPROGRESS: it is under way; or -errno.
int egress_connect(uint32_t socket, const Address& to);
/// 0: the socket's connection is there; -EINPROGRESS: not yet; else -errno of why not, told once.
int egress_outcome(uint32_t socket);
/// Ends what is under way, as shutdown() does: who waits for it is told that it was reset.
void egress_give_up(uint32_t socket);
/// The same as SO_ERROR has it, which tells nothing of a connection that is there.
int egress_take_error(uint32_t socket);
/// The call kConnected.
void egress_connected(uint64_t connection, const char* payload, size_t bytes);
/// The server's number, with which its decided start begins.
void egress_started(const char* payload, size_t bytes);

/// Asks for a name's addresses. The question, or kNone: too many are asked already, or the name is too long.
uint32_t ask_for_name(const char* name);
/// The call kResolved.
void name_resolved(uint64_t connection, const char* payload, size_t bytes);
/// What a thread waits for that has asked, until the question is answered.
uint64_t question_key(uint32_t question);
/// Copies the answer, at most kMaxResolved addresses, and frees the question. An error as getaddrinfo has it.
int take_answer(uint32_t question, timebubble::ResolvedAddress* addresses, uint32_t& count);

}  // namespace crane::interpose
