// Random bytes: one ChaCha20 stream for each process, keyed by the secret that the first log entry carries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// The next bytes of this process's stream. Turn in hand.
void fill_random(void* place, size_t bytes);
/// Six letters and digits, or as many as `count`, for the name of a temporary file. Turn in hand.
void fill_random_name(char* place, size_t count);
/// Puts bytes of the stream in the place of those that the kernel gave this program (AT_RANDOM).
void replace_auxiliary_random();
/// Whether the path names a source of random bytes.
bool is_random_device(const char* path);
/// An endless stdio stream of random bytes over the device, opened with `flags`; nullptr with errno.
FILE* open_random_stream(const char* path, int flags);

}  // namespace crane::interpose
