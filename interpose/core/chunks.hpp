// Unread input of virtual sockets: chains of fixed chunks from one pool in the domain's memory.
//
// Pure: plain memory in, plain memory out. Rules:
//  - Chunk k of a stream holds its bytes from k * 4096 on, so what a stream holds depends on its two offsets
//    alone, and the primary can keep the same account (timebubble/limits.hpp).
//  - Each stream may always hold its own few chunks; what is beyond comes from a common stock, one for
//    clients and one for connections inside the domain, so that neither can use up the other's.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "timebubble/limits.hpp"

namespace crane::interpose {

constexpr size_t kMaxSockets = 32768;
constexpr uint32_t kOwnPairChunks = 1;
constexpr uint32_t kCommonPairChunks = 16384;
constexpr size_t kMaxChunks =
    kMaxSockets * timebubble::kOwnChunks + timebubble::kCommonChunks + kCommonPairChunks;

struct Chunk {
    uint8_t bytes[timebubble::kInputChunkBytes];
};

/// Zeroed memory is an empty pool.
struct ChunkPool {
    uint32_t free, high;
    uint32_t common_used[2];  ///< of the clients' stock and of the other
    uint32_t next[kMaxChunks];
    Chunk chunks[kMaxChunks];
};

/// The unread bytes of one stream. Zeroed: empty, of a client.
struct InputQueue {
    uint64_t received, consumed;  ///< offsets in the stream
    uint32_t first_plus1, last_plus1;
    uint32_t inside;  ///< 1: of a connection inside the domain

    uint64_t unread() const { return received - consumed; }
};

/// False, and nothing appended, if the stock is used up.
bool chunks_append(ChunkPool& pool, InputQueue& queue, const uint8_t* bytes, size_t count);
/// How much chunks_append would take now.
uint64_t chunks_room(const ChunkPool& pool, const InputQueue& queue);
size_t chunks_read(ChunkPool& pool, InputQueue& queue, const iovec* vector, int count, bool peek);
/// Copies what lies `skip` bytes behind the first unread one; all of it is there.
void chunks_peek(const ChunkPool& pool, const InputQueue& queue, uint64_t skip, void* out, size_t bytes);
/// Drops the first bytes; they are there.
void chunks_skip(ChunkPool& pool, InputQueue& queue, size_t bytes);
/// Throws away what is unread.
void chunks_drop(ChunkPool& pool, InputQueue& queue);

}  // namespace crane::interpose
