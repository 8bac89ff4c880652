#include "proxy/output_format.hpp"

#include <stdio.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace crane::proxy {

namespace {

Hash128 from_xxh(XXH128_hash_t hash) {
    return {hash.low64, hash.high64};
}

}  // namespace

std::string Hash128::hex() const {
    char text[33];
    snprintf(text, sizeof(text), "%016lx%016lx", high, low);
    return text;
}

Hash128 hash_payload(std::string_view payload) {
    return from_xxh(XXH3_128bits(payload.data(), payload.size()));
}

Hash128 next_chain(const Hash128& previous, const OutputLogRecord& record, const Hash128& payload) {
    if (!in_chain(record.kind)) return previous;
    struct {
        Hash128 previous;
        uint64_t kind_and_flags;
        uint64_t connection;
        uint64_t bytes;
        Hash128 payload;
    } input{previous, static_cast<uint64_t>(record.kind) << 16 | record.flags, record.connection,
            record.bytes, payload};
    return from_xxh(XXH3_128bits(&input, sizeof(input)));
}

}  // namespace crane::proxy
