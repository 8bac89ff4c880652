// Streams over what the schedule serves (pipes, sockets). libc's own stay what they are where its calls from
// inside are led to the wrappers (backstop.hpp). Where they are not, it would wait inside libc, with the turn
// in hand: so others take their place, which read and write through the wrappers. Those are streams of bytes
// only (fopencookie). A pipeline of the program's children is what stdin, stdout and stderr are served for.
#pragma once

#include <stdio.h>

namespace crane::interpose {

/// What libc's streams do comes to the wrappers by itself. Under `parallel` not that of the standard ones:
/// who waits for a stream's lock waits in the kernel, while its holder waits for the turn.
bool streams_are_caught();

/// Descriptor `fd` leads to something that is served now.
void serve_standard_stream(int fd);

/// It took the place of one of them.
bool is_served_standard_stream(const FILE* stream);
/// It is about to be closed, or opened for something else.
void forget_standard_stream(const FILE* stream);

/// A stream over a descriptor that the schedule serves. Null, and errno: none.
FILE* make_served_stream(int fd, const char* mode);

}  // namespace crane::interpose
