// Arrays of buffers, and what is left of one.
#pragma once

#include <sys/uio.h>

#include <cstddef>

namespace crane::interpose {

/// Of an array of buffers in one call, where the call goes on behind what is done.
constexpr int kPieceBuffers = 16;

inline size_t total_bytes(const iovec* vector, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; ++i) total += vector[i].iov_len;
    return total;
}

/// What is behind the first `done` bytes of a vector, as far as one call takes it.
struct Piece {
    iovec buffers[kPieceBuffers];
    int count = 0;

    Piece(const iovec* vector, size_t length, size_t done, size_t most) {
        for (size_t i = 0; i < length && count < kPieceBuffers && most > 0; ++i) {
            if (done >= vector[i].iov_len) {
                done -= vector[i].iov_len;
                continue;
            }
            const size_t left = vector[i].iov_len - done, bytes = left < most ? left : most;
            buffers[count++] = {static_cast<char*>(vector[i].iov_base) + done, bytes};
            most -= bytes;
            done = 0;
        }
    }
};

}  // namespace crane::interpose
