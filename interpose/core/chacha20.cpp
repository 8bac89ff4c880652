#include "interpose/core/chacha20.hpp"

#include <bit>
#include <cstring>

namespace crane::interpose {

namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie");

void quarter_round(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    a += b;
    d = std::rotl(d ^ a, 16);
    c += d;
    b = std::rotl(b ^ c, 12);
    a += b;
    d = std::rotl(d ^ a, 8);
    c += d;
    b = std::rotl(b ^ c, 7);
}

}  // namespace

void chacha20_block(const uint8_t key[32], uint32_t counter, const uint8_t nonce[12],
                    uint8_t out[kChaChaBlockBytes]) noexcept {
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    std::memcpy(start + 4, key, 32);
    start[12] = counter;
    std::memcpy(start + 13, nonce, 12);
    uint32_t s[16];
    std::memcpy(s, start, sizeof(s));
    for (int i = 0; i < 10; ++i) {
        for (int column = 0; column < 4; ++column) {
            quarter_round(s[column], s[4 + column], s[8 + column], s[12 + column]);
        }
        for (int diagonal = 0; diagonal < 4; ++diagonal) {
            quarter_round(s[diagonal], s[4 + (diagonal + 1) % 4], s[8 + (diagonal + 2) % 4],
                          s[12 + (diagonal + 3) % 4]);
        }
    }
    for (int i = 0; i < 16; ++i) s[i] += start[i];
    std::memcpy(out, s, sizeof(s));
}

void chacha20_stream(const uint8_t key[32], uint64_t number, uint64_t at, uint8_t* out,
                     size_t bytes) noexcept {
    while (bytes > 0) {
        const uint64_t block = at / kChaChaBlockBytes;
        const size_t offset = at % kChaChaBlockBytes;
        // The nonce: the stream's number, then what the block's own counter cannot count.
        uint8_t nonce[12];
        const auto high = static_cast<uint32_t>(block >> 32);
        std::memcpy(nonce, &number, 8);
        std::memcpy(nonce + 8, &high, 4);
        uint8_t stream[kChaChaBlockBytes];
        chacha20_block(key, static_cast<uint32_t>(block), nonce, stream);
        const size_t left = kChaChaBlockBytes - offset;
        const size_t count = bytes < left ? bytes : left;
        std::memcpy(out, stream + offset, count);
        out += count;
        at += count;
        bytes -= count;
    }
}

}  // namespace crane::interpose
