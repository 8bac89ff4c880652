// What operations work on, and what threads wait for: every object of the domain has a key, and the same
// object the same key on every replica.
#pragma once

#include <pthread.h>

#include "interpose/core/context.hpp"

namespace crane::interpose {

/// The numbers enter the sets that threads wait for, and so the schedule: they are never changed.
enum class ObjectKind : uint64_t {
    kNone = 0,
    kAddress = 1,  ///< in one process's own memory
    kShared,       ///< place in the page, in memory that processes share
    kSocket,
    kEpoll,
    kStream,
    kThread,
    kChild,       ///< any child of a process
    kSleep,       ///< nothing but a thread itself, named by its slot
    kDescriptor,  ///< a number of one process
    kSignal,      ///< what is pending for a thread
    kTimer,
    kSignalFd,
    kProcess,  ///< by pid, or what kill() takes for one
    kFiles,    ///< the tree of files
    kEntropy,  ///< a process's random stream
};
constexpr uint64_t kNoObject = 0;

inline uint64_t make_key(ObjectKind kind, uint64_t id) {
    return static_cast<uint64_t>(kind) << 60 | id;
}
/// An object in this process's own memory.
inline uint64_t address_key(const void* address) {
    return make_key(ObjectKind::kAddress, static_cast<uint64_t>(runtime.process_index) << 48 |
                                              (reinterpret_cast<uint64_t>(address) & 0xffff'ffff'ffffULL));
}
/// An object in memory that processes share: mapped at any address, it keeps its place in the page. Waiters
/// on other objects with the same place are woken too and look again.
inline uint64_t shared_key(const void* address) {
    return make_key(ObjectKind::kShared, reinterpret_cast<uint64_t>(address) & 0xfff);
}
inline uint64_t object_key(const void* address, bool shared) {
    return shared ? shared_key(address) : address_key(address);
}
inline uint64_t thread_key(pthread_t thread) {
    return address_key(reinterpret_cast<const void*>(thread));
}
/// The operation concerns nobody but the thread that makes it.
inline uint64_t own_key() {
    return make_key(ObjectKind::kSleep, self.slot);
}
/// A descriptor's number, whatever it stands for.
inline uint64_t descriptor_key(int fd) {
    return make_key(ObjectKind::kDescriptor,
                    static_cast<uint64_t>(runtime.process_index) << 32 | static_cast<uint32_t>(fd));
}
inline uint64_t process_key(int pid) {
    return make_key(ObjectKind::kProcess, static_cast<uint32_t>(pid));
}
inline uint64_t files_key() {
    return make_key(ObjectKind::kFiles, 0);
}
inline uint64_t entropy_key() {
    return make_key(ObjectKind::kEntropy, runtime.process_index);
}
/// The bit of an object in the signature of a set of objects.
inline uint64_t set_bit(ObjectKind kind, uint32_t id) {
    const uint64_t h = make_key(kind, id) * 0x9e37'79b9'7f4a'7c15ULL;
    return uint64_t{1} << (h >> 58);
}

/// Of those who wait for a mutex that its owner's end gives up.
inline uint64_t robust_bit() {
    return set_bit(ObjectKind::kThread, kNone);
}

}  // namespace crane::interpose
