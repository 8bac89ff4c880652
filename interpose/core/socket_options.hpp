// Options of virtual sockets that nothing here depends on: each socket reads back what was set on it, and
// accepted ones have what their listener had. Whether an option exists, what it takes and what it then shows
// is the kernel's to say: a socket of its own, made for the question, answers. Called with the turn.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace crane::interpose {

/// 0 or what setsockopt would have failed with. `value` is in the program's memory.
long keep_option(uint32_t socket, int level, int name, const void* value, socklen_t length);
/// As keep_option, of a switch that every TCP socket has: nobody needs to be asked.
void keep_switch(uint32_t socket, int level, int name, bool on);
/// What was set, else the default. `value` and `length` can be written to.
long show_option(uint32_t socket, int level, int name, void* value, socklen_t* length);
/// A number that was set, else the other one.
int kept_number(uint32_t socket, int level, int name, int otherwise);
void inherit_options(uint32_t from, uint32_t to);
void drop_options(uint32_t socket);

}  // namespace crane::interpose
