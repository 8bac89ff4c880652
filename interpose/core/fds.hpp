// What each descriptor of this process is. Entries follow the kernel's descriptors: made at creation, copied
// by dup and fork, dropped by close and exec.
#pragma once

#include "base/reserved_descriptors.hpp"
#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// In FdEntry::flags: a kernel stream that is a terminal. What it takes without waiting may be less than
/// poll's word.
constexpr uint8_t kFdTerminal = 8;
/// An eventfd, or something else that has no name and may be one.
constexpr uint8_t kFdCounter = 16;

/// Of the descriptors that belong to Crane (base/reserved_descriptors.hpp).
enum ReservedPlace : int { kDomainPlace = 0, kPlaceholderPlace = 3, kTracePlace = 4, kProcPlace = 5 };
inline int reserved_fd(int place) {
    return runtime.reserved_fds + place;
}
static_assert(kMostProgramFds == kMaxFds);
/// Whatever the kernel handed out among these numbers the program could neither use nor close. Under a limit
/// below them it hands out none.
void hold_reserved();

/// The entry of an open descriptor, classified by the kernel's word for it if it was not known yet.
/// nullptr for numbers that are out of range.
FdEntry* fd_entry(int fd);
/// A standard stream over it is made one that the schedule serves (standard_streams.hpp), if it has to be.
void serve_standard_entry(int fd);
/// The entry if it is of that kind, else nullptr. Does not classify: virtual kinds are always known.
inline FdEntry* entry_of_kind(int fd, FdKind kind) {
    if (fd < 0 || static_cast<size_t>(fd) >= kMaxFds) return nullptr;
    FdEntry* entry = &runtime.process->fds[fd];
    return entry->kind == kind ? entry : nullptr;
}
/// It stands for a timer or for signals: the socket behind its number is not the program's.
inline bool only_seems_socket(int fd) {
    return entry_of_kind(fd, FdKind::kTimer) || entry_of_kind(fd, FdKind::kSignals);
}
/// Whether `fd` still is what it was when `then` was looked up: another thread may have closed it and used
/// the number.
inline bool same_descriptor(int fd, const FdEntry& then) {
    const FdEntry& now = runtime.process->fds[fd];
    return now.kind == then.kind && now.version == then.version;
}
/// What an entry stands for, as operations name it; kNoObject: a file, or not looked at yet.
inline uint64_t entry_key(const FdEntry& entry) {
    constexpr ObjectKind kKinds[] = {ObjectKind::kNone,   ObjectKind::kNone,    ObjectKind::kStream,
                                     ObjectKind::kSocket, ObjectKind::kEpoll,   ObjectKind::kEntropy,
                                     ObjectKind::kTimer,  ObjectKind::kSignalFd};
    static_assert(static_cast<size_t>(FdKind::kSignals) + 1 == sizeof(kKinds) / sizeof(kKinds[0]));
    if (entry.kind == FdKind::kEntropy) return entropy_key();
    return make_key(kKinds[static_cast<size_t>(entry.kind)], entry.object);
}
/// The same of a descriptor; asks nobody about one that was not looked at yet.
inline uint64_t object_of(int fd) {
    return fd < 0 || static_cast<size_t>(fd) >= kMaxFds ? kNoObject : entry_key(runtime.process->fds[fd]);
}
void set_entry(int fd, FdKind kind, uint32_t object);
/// A kernel stream made by the program; `second` is the pipe's or pair's other end, or -1.
void set_stream(int fd, int second);
/// Copies fd's meaning to `copy`, with a reference of its own.
void copy_entry(int fd, int copy);
/// A descriptor that came from elsewhere, with its meaning; kUnknown: as the kernel has it.
void adopt_entry(int fd, const FdEntry& meaning);
/// The descriptor is being closed: drops its meaning and, with the last reference, the object.
void drop_entry(int fd);
void drop_entry(FdEntry& entry);
void add_reference(const FdEntry& entry);

/// A new descriptor number, lowest free, that stands for a virtual object. -1 with errno as dup has it.
int new_placeholder(bool close_on_exec);

/// Threads that wait for a kernel stream look again: something was done to a stream.
void stream_event(const FdEntry& entry);
inline uint64_t stream_bit(const FdEntry& entry) {
    return set_bit(ObjectKind::kStream, entry.object);
}
/// All of them.
void all_streams_event();

}  // namespace crane::interpose
