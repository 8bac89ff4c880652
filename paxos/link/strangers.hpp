// Which of those who have not said who they are goes, when there are too many of them. Pure.
//
// A member among them needs some milliseconds to say it (TLS takes some round trips), however many others
// come meanwhile. So who fills the place loses it: one of the source that has most of them. Which one of
// those is drawn by lot: the oldest would be sure to go before it has finished, where thousands come a second
// from the member's own address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct sockaddr;

namespace crane::paxos {

/// What one who connects cannot choose freely: the IPv4 address, the network (/64) of an IPv6 one.
uint64_t source_of(const sockaddr* address);

/// The place of the one that goes, of at least one. `lot`: any number.
size_t one_too_many(const std::vector<uint64_t>& sources, uint64_t lot);

}  // namespace crane::paxos
