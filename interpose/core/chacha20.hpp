// The ChaCha20 block function of RFC 8439, section 2.3. Pure.
//
// Own code because libsodium and libcrypto bring allocation, locks and a random device of their own into the
// shim, where those names are our wrappers (docs/dependencies.md). Checked against the RFC and libcrypto.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::interpose {

constexpr size_t kChaChaBlockBytes = 64;

/// One block of key stream.
void chacha20_block(const uint8_t key[32], uint32_t counter, const uint8_t nonce[12],
                    uint8_t out[kChaChaBlockBytes]) noexcept;

/// Bytes `at`, `at`+1, … of the endless stream `number` under the key.
void chacha20_stream(const uint8_t key[32], uint64_t number, uint64_t at, uint8_t* out,
                     size_t bytes) noexcept;

}  // namespace crane::interpose
