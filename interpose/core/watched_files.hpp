// inotify. What a server sees of files is the domain's own and changes in the schedule's order, so the
// kernel's queues of events are the same on every replica as they are. The shim adds what the kernel does
// elsewhere: who waits for events is woken where something is done to a file, and the cookies of renames,
// which the kernel counts for the whole host, are counted anew.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// In FdEntry::flags: a kernel stream of inotify's.
constexpr uint8_t kFdWatches = 4;

/// A new descriptor that inotify_init1 has given. Turn in hand.
void note_watches(int fd);
/// A file that it will tell of. Turn in hand.
void note_watched(const char* path, uint32_t mask);
/// After a restore the segment is another one, and the host's cookies may be, too.
void watch_again();
void tell_watchers();
/// Something was done to a file. Turn in hand.
inline void file_event() {
    if (__builtin_expect(domain().inotify_stream != 0, 0)) tell_watchers();
}
/// Of the events that a read has given. Turn in hand.
void show_cookies(char* events, size_t bytes);

}  // namespace crane::interpose
