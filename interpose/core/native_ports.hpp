// Without scheduling (the proxy-and-consensus part alone) the server's sockets are real. Only its listening
// ports are moved, so that craned can have the port that the server asked for; the real one is told to
// craned.
#pragma once

#include <sys/socket.h>

namespace crane::interpose {

int bind_native(int fd, const sockaddr* address, socklen_t length);
int listen_native(int fd, int backlog);
int getsockname_native(int fd, sockaddr* address, socklen_t* length);

}  // namespace crane::interpose
