// stdin, stdout and stderr over what the schedule serves (pipes, sockets): libc's own streams would wait
// inside libc, where no wrapper sees it, with the turn in hand. So others take their place, which read and
// write through the wrappers; a pipeline of the program's children is what it is for.
#pragma once

#include <stdio.h>

namespace crane::interpose {

/// Descriptor `fd` leads to something that is served now.
void serve_standard_stream(int fd);

/// It took the place of one of them.
bool is_served_standard_stream(const FILE* stream);
/// It is about to be closed, or opened for something else.
void forget_standard_stream(const FILE* stream);

/// A stream over a descriptor that the schedule serves. Null, and errno: none.
FILE* make_served_stream(int fd, const char* mode);

}  // namespace crane::interpose
