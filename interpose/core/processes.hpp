// Processes of the domain: attaching the shim to one, and what fork, exec, exit and wait do to the shared
// tables.
#pragma once

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

/// A new entry, child of this process, with a copy of its descriptors and signal actions. kNone: table full.
uint32_t make_child();
/// There is none after all.
void forget_child(uint32_t index);
/// In its parent.
void name_child(uint32_t index, int pid);
/// In the new child, after fork: takes on the entry and its thread slot, waits for the first turn.
void become_child(uint32_t index);
/// The scheduled part of this process's end: closes what others can see, tells the parent, passes the turn
/// for good. The caller then leaves by the kernel, or stays for the others (main_process.hpp) if true.
bool leave_domain(int wait_status);
/// As exit_group with that code.
[[noreturn]] void leave(int code);
/// The end of the domain, as if its main process had ended with that status. Turn in hand, which nobody gets
/// again.
[[noreturn]] void end_domain(int wait_status);
/// Who made this process by vfork() goes on, if it waits for that. Turn in hand.
void release_maker(uint32_t index);
inline uint64_t maker_key(uint32_t index) {
    return make_key(ObjectKind::kChild, uint64_t{1} << 32 | index);
}
/// An exec ends the other threads, and the calls that this one was in the midst of.
void drop_other_threads();
/// Another process of the domain was killed by this one: what leave_domain does, on its behalf.
void bury_process(uint32_t index, int wait_status);
/// Another process died with the turn in hand, in thread `holder`: the same, and its turn is passed on.
void bury_holder(uint32_t index, int wait_status, dmt::SlotId holder);
/// This process will run a program that cannot use what is virtual: its references end here.
void drop_virtual_descriptors();
/// A process in the domain by its pid, kNone if there is none.
uint32_t find_process(int pid);
/// The process behind a pidfd; -EBADF if it is none.
int process_behind(int fd);
/// The same of /proc/<number> that is open. -1: there is no such process any more.
int process_of_folder(int fd);
/// The parent lets its children go without a wait.
bool ignores_children(const Process& parent);
/// Exit status as waitpid gives it.
inline int exited_status(int code) {
    return (code & 0xff) << 8;
}

/// Whether this process may execute it, by its effective user.
bool is_executable(const char* path);
/// Whether the program at `path` can run under the shim: dynamic, native, not setuid. Follows "#!". Of one
/// that may not be read nobody can tell, and the loader may preload nothing for it.
bool can_be_scheduled(const char* path);

}  // namespace crane::interpose
