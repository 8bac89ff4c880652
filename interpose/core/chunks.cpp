#include "interpose/core/chunks.hpp"

#include <cstring>

#include "base/check.hpp"

namespace crane::interpose {

using timebubble::chunks_held;
using timebubble::common_chunks;
using timebubble::kInputChunkBytes;

namespace {

uint32_t own_chunks(const InputQueue& queue) {
    return queue.inside ? kOwnPairChunks : timebubble::kOwnChunks;
}

uint32_t common_stock(const InputQueue& queue) {
    return queue.inside ? kCommonPairChunks : timebubble::kCommonChunks;
}

uint64_t common_held(const InputQueue& queue) {
    return common_chunks(queue.consumed, queue.received, own_chunks(queue));
}

/// Places are chained plus one, so that zero is the end.
uint32_t take_chunk(ChunkPool& pool) {
    // Last freed, first used: pages that are warm, and few of them.
    uint32_t chunk = pool.free;
    if (chunk) {
        pool.free = pool.next[chunk - 1];
    } else {
        CRANE_CHECK(pool.high < kMaxChunks);
        chunk = ++pool.high;
    }
    pool.next[chunk - 1] = 0;
    return chunk;
}

void give_chunk(ChunkPool& pool, uint32_t chunk) {
    pool.next[chunk - 1] = pool.free;
    pool.free = chunk;
}

/// After the queue's offsets have moved: what it holds of the common stock now instead of `before`.
void account(ChunkPool& pool, const InputQueue& queue, uint64_t before) {
    uint32_t& used = pool.common_used[queue.inside ? 1 : 0];
    used = static_cast<uint32_t>(used + common_held(queue) - before);
    CRANE_CHECK(used <= common_stock(queue));
}

}  // namespace

uint64_t chunks_room(const ChunkPool& pool, const InputQueue& queue) {
    const uint64_t held = chunks_held(queue.consumed, queue.received);
    const uint64_t left = common_stock(queue) - pool.common_used[queue.inside ? 1 : 0];
    const uint64_t most = (held > own_chunks(queue) ? held : own_chunks(queue)) + left;
    return (queue.consumed / kInputChunkBytes + most) * kInputChunkBytes - queue.received;
}

bool chunks_append(ChunkPool& pool, InputQueue& queue, const uint8_t* bytes, size_t count) {
    if (count > chunks_room(pool, queue)) return false;
    const uint64_t before = common_held(queue);
    while (count > 0) {
        const size_t at = queue.received % kInputChunkBytes;
        if (queue.first_plus1 == 0 || at == 0) {
            const uint32_t fresh = take_chunk(pool);
            (queue.first_plus1 ? pool.next[queue.last_plus1 - 1] : queue.first_plus1) = fresh;
            queue.last_plus1 = fresh;
        }
        const size_t room = kInputChunkBytes - at;
        const size_t n = count < room ? count : room;
        std::memcpy(pool.chunks[queue.last_plus1 - 1].bytes + at, bytes, n);
        queue.received += n;
        bytes += n;
        count -= n;
    }
    account(pool, queue, before);
    return true;
}

size_t chunks_read(ChunkPool& pool, InputQueue& queue, const iovec* vector, int count, bool peek) {
    const uint64_t before = common_held(queue);
    uint32_t chunk = queue.first_plus1;
    uint64_t at = queue.consumed;
    for (int i = 0; i < count && at < queue.received; ++i) {
        auto* out = static_cast<uint8_t*>(vector[i].iov_base);
        size_t want = vector[i].iov_len;
        while (want > 0 && at < queue.received) {
            const size_t place = at % kInputChunkBytes;
            size_t n = kInputChunkBytes - place;
            if (n > queue.received - at) n = queue.received - at;
            if (n > want) n = want;
            std::memcpy(out, pool.chunks[chunk - 1].bytes + place, n);
            out += n;
            at += n;
            want -= n;
            const bool emptied = at % kInputChunkBytes == 0 || at == queue.received;
            if (!emptied) continue;
            const uint32_t next = pool.next[chunk - 1];
            if (!peek) give_chunk(pool, chunk);
            chunk = next;
        }
    }
    const size_t total = at - queue.consumed;
    if (peek) return total;
    queue.consumed = at;
    queue.first_plus1 = chunk;
    if (at == queue.received) queue.first_plus1 = queue.last_plus1 = 0;
    account(pool, queue, before);
    return total;
}

void chunks_peek(const ChunkPool& pool, const InputQueue& queue, uint64_t skip, void* out, size_t bytes) {
    CRANE_CHECK(skip + bytes <= queue.unread());
    if (bytes == 0) return;
    uint32_t chunk = queue.first_plus1;
    const uint64_t first = queue.consumed + skip;
    for (uint64_t k = queue.consumed / kInputChunkBytes; k < first / kInputChunkBytes; ++k)
        chunk = pool.next[chunk - 1];
    auto* to = static_cast<uint8_t*>(out);
    for (size_t at = first % kInputChunkBytes; bytes > 0; at = 0, chunk = pool.next[chunk - 1]) {
        const size_t n = kInputChunkBytes - at < bytes ? kInputChunkBytes - at : bytes;
        std::memcpy(to, pool.chunks[chunk - 1].bytes + at, n);
        to += n;
        bytes -= n;
    }
}

void chunks_skip(ChunkPool& pool, InputQueue& queue, size_t bytes) {
    CRANE_CHECK(bytes <= queue.unread());
    const uint64_t before = common_held(queue), end = queue.consumed + bytes;
    const bool drained = end == queue.received;
    // A chunk goes when all of it, or all that there is, was taken.
    uint64_t gone = end / kInputChunkBytes - queue.consumed / kInputChunkBytes;
    if (drained && bytes > 0 && end % kInputChunkBytes != 0) ++gone;
    for (; gone > 0; --gone) {
        const uint32_t next = pool.next[queue.first_plus1 - 1];
        give_chunk(pool, queue.first_plus1);
        queue.first_plus1 = next;
    }
    queue.consumed = end;
    if (drained) queue.first_plus1 = queue.last_plus1 = 0;
    account(pool, queue, before);
}

void chunks_drop(ChunkPool& pool, InputQueue& queue) {
    const uint64_t before = common_held(queue);
    for (uint32_t chunk = queue.first_plus1; chunk != 0;) {
        const uint32_t next = pool.next[chunk - 1];
        give_chunk(pool, chunk);
        chunk = next;
    }
    queue.first_plus1 = queue.last_plus1 = 0;
    queue.consumed = queue.received;
    account(pool, queue, before);
}

}  // namespace crane::interpose
