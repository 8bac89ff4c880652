// Commands that popen() has started: the stream's end waits for the command's, whoever closes it.
#pragma once

#include <cstdio>

#include <sys/types.h>

namespace crane::interpose {

/// The command that a stream is one end of, which is its own no longer; 0: popen() has not made it.
pid_t forget_popened(FILE* stream);
/// As waitpid() tells it; -1: with errno.
int wait_for_popened(pid_t child);

}  // namespace crane::interpose
