// What a terminal sends to processes: the kernel does that by itself, at once or by a thread of its own, and
// its signals reach no program (signals.cpp). They are sent in the schedule instead, where they arise:
//
//  - the last descriptor of a terminal's other end (a pty's master) is closed: SIGHUP for the leader
//  - the leader of a session ends: SIGHUP for who is in front of its terminal
//  - control characters are written to the other end: SIGINT, SIGQUIT, SIGTSTP for who is in front
//  - its size changes: SIGWINCH for who is in front
//
// Who reads or writes in the background is not stopped: reading fails with EIO.
#pragma once

#include <sys/uio.h>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// So many bytes were written to a terminal. Outside of an operation.
void note_typed(int fd, const iovec* vector, size_t count, size_t written);
/// ioctl of a terminal, which may mean signals, or another terminal for the session.
long control_terminal(int fd, unsigned long request, void* argument);
/// The process leads a session and may just have got its terminal: by opening it, as ioctl by itself.
void note_terminal();
/// A descriptor of a terminal was closed, by whatever way: the leaders whose terminal is gone are told. Turn
/// in hand.
void settle_hangups();
inline void settle_hangups_if_any() {
    if (__builtin_expect(domain().terminals_closed != 0, 0)) settle_hangups();
}
/// A process has ended: who was in front of the terminal of its session is told. Turn in hand.
void hang_up_session_of(uint32_t process);

}  // namespace crane::interpose
