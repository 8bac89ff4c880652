// Unix sockets, which are the kernel's: what of them would be the host's or chance's business.
#pragma once

#include <sys/socket.h>

namespace crane::interpose {

bool is_unix(int fd);
/// How much a fresh one takes is not to depend on the host (net.core.wmem_default).
void set_unix_room(int fd);
/// setsockopt() of the kernel's sockets: nor is how much more it takes on demand (net.core.wmem_max).
long set_kernel_option(int fd, int level, int name, const void* value, socklen_t length);
/// bind() to no name: the kernel's own choice is drawn at random. Turn in hand.
long bind_to_free_name(int fd);
/// connect(), which waits when the listener has no room.
long connect_unix(int fd, const sockaddr* address, socklen_t length);

}  // namespace crane::interpose
