// What a domain holds of its clients at most, and how it counts: the one account that both sides keep.
//
// The domain's tables have fixed sizes. The primary proposes input only while the domain has room for it by
// these functions, fed with what it knows: all that it has proposed, and what the domain has reported as
// consumed. The domain counts the same way with what it has really consumed, which is never less; so what the
// primary lets through always fits. If something came that does not (a primary that counts wrongly), the
// domain resets that one connection, at the same place on every replica: a log cannot be poisoned.
#pragma once

#include <cstdint>

namespace crane::timebubble {

/// Connections of clients in a domain, accepted or not; the rest of its 32,768 sockets are the server's own.
constexpr uint32_t kMaxClients = 28672;
/// Listening sockets of a server, of all its processes.
constexpr uint32_t kMaxListeners = 256;
/// As net.core.somaxconn: no listener's queue is longer, whatever the server asks for.
constexpr uint32_t kMaxBacklog = 4096;

/// Batches with calls that are proposed and not admitted by the primary's domain, at most. More calls than
/// these carry coalesce, which is what a busy domain needs: it admits one per grant.
constexpr uint64_t kBatchesUnderWay = 4;

// --- unread input

/// Input lies in chunks at places of the stream that are multiples of this, so that what a connection holds
/// depends on two offsets alone.
constexpr uint64_t kInputChunkBytes = 4096;
/// Each connection may always hold this many chunks, however full the domain is: nobody is starved.
constexpr uint32_t kOwnChunks = 2;
/// What connections hold beyond their own chunks comes out of one common stock.
constexpr uint32_t kCommonChunks = 32768;

/// Chunks that hold the bytes from `consumed` to `received` of a stream.
constexpr uint64_t chunks_held(uint64_t consumed, uint64_t received) {
    return consumed == received ? 0 : (received - 1) / kInputChunkBytes - consumed / kInputChunkBytes + 1;
}
/// Of those, what is taken from the common stock.
constexpr uint64_t common_chunks(uint64_t consumed, uint64_t received, uint32_t own = kOwnChunks) {
    const uint64_t held = chunks_held(consumed, received);
    return held > own ? held - own : 0;
}

/// Whether the domain reports what was consumed of a connection: when it was drained past a chunk's end, else
/// in steps that keep what it has not reported below what is really unread. A drained connection therefore
/// counts as one chunk at most, and short requests cost a report per 4 KiB.
constexpr bool consumption_is_news(uint64_t reported, uint64_t consumed, uint64_t received) {
    constexpr uint64_t kLongestStepChunks = 16;
    uint64_t step = (received - consumed) / kInputChunkBytes;
    step = step < 1 ? 1 : step > kLongestStepChunks ? kLongestStepChunks : step;
    return consumed / kInputChunkBytes - reported / kInputChunkBytes >= step;
}

// --- datagrams

/// The longest that UDP carries.
constexpr uint64_t kMaxDatagramBytes = 65507;
/// Sockets for datagrams, of all processes of a server.
constexpr uint32_t kMaxDatagramSockets = 4096;

// --- output that clients have not taken

/// What a new connection may be sent before the first window call, and always beyond what its client has
/// taken.
constexpr uint64_t kFirstWindowBytes = 64 * 1024;
/// No window is larger.
constexpr uint64_t kLargestWindowBytes = 4 * 1024 * 1024;

// --- connections not accepted yet

/// Places in a listener's queue, by what the server said to listen(): as Linux counts.
constexpr uint32_t backlog_places(int backlog) {
    const auto asked = static_cast<uint32_t>(backlog);  ///< negative: as many as there may be
    return (asked < kMaxBacklog ? asked : kMaxBacklog) + 1;
}

}  // namespace crane::timebubble
