// What the files about virtual sockets share: the table's places, the connections by number, and telling
// those who wait. Internal to interpose/core/sockets*.cpp.
#pragma once

#include "interpose/core/sockets.hpp"
#include "timebubble/batch.hpp"

namespace crane::interpose {

inline VirtualSocket& socket_at(uint32_t index) {
    return domain().sockets[index];
}

/// The chain of a connection's number.
uint32_t& connection_bucket(uint64_t connection);
uint32_t find_connection(uint64_t connection);  ///< kNone: not there
/// The socket's connection has no number any more.
void unhash_connection(uint32_t index);
/// Input or its end has come, or the window has opened: whoever waits looks again.
void notify(uint32_t index, uint32_t events);
void free_socket(uint32_t index);
/// With what is unread of it; the socket may have another one.
void forget_connection(uint32_t index);
void send_close(uint32_t index, bool reset);
/// Input was taken, or thrown away: tells the proxy when that is news.
void report_consumed(VirtualSocket& s);
/// Tells the proxy how a silent client of this connection is to be found.
void tell_probes(const VirtualSocket& s);

/// What the other end of a connection inside the domain takes now.
uint64_t pair_room(const VirtualSocket& s);

/// How well a socket suits what comes for an address, best last.
enum class Fit { kNone = 0, kLoopback, kElsewhere, kAnyDual, kAny, kMapped, kExact };
Fit listener_fit(const VirtualSocket& listener, const Address& to, bool outside);
/// The listener for a connection to that address, `outside`: by a client; among several that suit equally
/// (SO_REUSEPORT) they take turns. kNone: none.
uint32_t find_listener(const Address& to, bool outside);
/// Whether one more client may wait at that port: all listeners of a port share their places, so that the
/// proxy need not know which of them a client will meet.
bool port_has_place(uint16_t port);
/// A new connection waits to be accepted.
void enqueue(uint32_t listener, uint32_t index);
/// Whether the socket may not have that port. `by_number`: it is this one that is wanted, so it may be
/// shared.
bool port_is_taken(uint32_t index, const Address& wanted, bool by_number);
/// Port 0 is any free one. 0, or -EADDRINUSE.
int choose_port_of(uint32_t index, Address& wanted);
/// Others may not have the socket's port from here on, nor from release_port() on any more.
void hold_port(uint32_t index);
void release_port(uint32_t index);
/// With its connections that nobody has accepted.
void close_listener(uint32_t index);

}  // namespace crane::interpose
