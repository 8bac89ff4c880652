#include "interpose/core/chunks.hpp"

#include <cstring>

#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

uint32_t take_chunk() {
    DomainState& d = domain();
    // Last freed, first used: pages that are warm, and few of them. Chained plus one, so that zero is the
    // end.
    if (d.chunk_free) {
        const uint32_t chunk = d.chunk_free - 1;
        d.chunk_free = d.chunk_next[chunk];
        return chunk;
    }
    return d.chunk_high < kMaxChunks ? d.chunk_high++ : kNone;
}

void give_chunk(uint32_t chunk) {
    domain().chunk_next[chunk] = domain().chunk_free;
    domain().chunk_free = chunk + 1;
}

bool pool_has(size_t chunks) {
    const DomainState& d = domain();
    size_t have = kMaxChunks - d.chunk_high;
    for (uint32_t at = d.chunk_free; at != 0 && have < chunks; at = d.chunk_next[at - 1]) ++have;
    return have >= chunks;
}

}  // namespace

bool chunks_append(VirtualSocket& s, const uint8_t* bytes, size_t count) {
    DomainState& d = domain();
    if (!pool_has(count / kChunkBytes + 1)) return false;
    s.unread += count;
    while (count > 0) {
        if (s.chunk_head == kNone || s.chunk_end == kChunkBytes) {
            const uint32_t fresh = take_chunk();
            CRANE_CHECK(fresh != kNone);
            d.chunk_next[fresh] = kNone;
            if (s.chunk_head == kNone) {
                s.chunk_head = fresh;
                s.chunk_at = 0;
            } else {
                d.chunk_next[s.chunk_tail] = fresh;
            }
            s.chunk_tail = fresh;
            s.chunk_end = 0;
        }
        const size_t room = kChunkBytes - s.chunk_end;
        const size_t n = count < room ? count : room;
        std::memcpy(d.chunks[s.chunk_tail].bytes + s.chunk_end, bytes, n);
        s.chunk_end += static_cast<uint32_t>(n);
        bytes += n;
        count -= n;
    }
    return true;
}

long chunks_read(VirtualSocket& s, const iovec* vector, int count, bool peek, bool discard) {
    DomainState& d = domain();
    uint32_t chunk = s.chunk_head, at = s.chunk_at;
    uint64_t left = s.unread;
    size_t total = 0;
    bool bad = false;
    for (int i = 0; i < count && left > 0 && !bad; ++i) {
        auto* out = static_cast<uint8_t*>(vector[i].iov_base);
        size_t want = vector[i].iov_len;
        while (want > 0 && left > 0) {
            const size_t end = chunk == s.chunk_tail ? s.chunk_end : kChunkBytes;
            if (at == end) {
                const uint32_t next = d.chunk_next[chunk];
                if (!peek) give_chunk(chunk);
                chunk = next;
                at = 0;
                continue;
            }
            const size_t here = end - at;
            const size_t n = want < here ? want : here;
            bad = !discard && crane_copy(out, d.chunks[chunk].bytes + at, n) != 0;
            if (bad) break;
            out += n;
            at += static_cast<uint32_t>(n);
            want -= n;
            left -= n;
            total += n;
        }
    }
    const long result = bad && total == 0 ? -EFAULT : static_cast<long>(total);
    if (peek) return result;
    s.chunk_head = chunk;
    s.chunk_at = at;
    s.unread = left;
    if (left == 0) chunks_drop(s);
    return result;
}

void chunks_drop(VirtualSocket& s) {
    for (uint32_t chunk = s.chunk_head; chunk != kNone;) {
        const uint32_t next = chunk == s.chunk_tail ? kNone : domain().chunk_next[chunk];
        give_chunk(chunk);
        chunk = next;
    }
    s.chunk_head = s.chunk_tail = kNone;
    s.chunk_at = s.chunk_end = 0;
    s.unread = 0;
}

}  // namespace crane::interpose
