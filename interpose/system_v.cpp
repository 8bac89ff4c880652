// System V semaphores and message queues. The kernel keeps them; waiting is scheduled.
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include <cstdarg>

#include "interpose/core/ipc_waits.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {
namespace {

constexpr size_t kMostOperations = 500;  ///< SEMOPM of Linux

uint64_t semaphore_key(int id) {
    return make_key(ObjectKind::kFiles, uint64_t{1} << 32 | static_cast<uint32_t>(id));
}
uint64_t queue_key(int id) {
    return make_key(ObjectKind::kFiles, uint64_t{2} << 32 | static_cast<uint32_t>(id));
}
/// What names objects, or lists them.
uint64_t table_key() {
    return make_key(ObjectKind::kFiles, uint64_t{3} << 32);
}

/// Who waits for a semaphore of a set to become greater, or zero; no message queue has such a number.
uint64_t awaited(int id, int number, bool zero) {
    return uint64_t{1} << 63 | uint64_t{static_cast<uint32_t>(id)} << 17 |
           static_cast<uint64_t>(number & 0xffff) << 1 | (zero ? 1 : 0);
}

/// GETNCNT and GETZCNT; the kernel knows of no waiting.
long count_waiting(int id, int number, bool zero) {
    const DomainState& d = domain();
    long count = 0;
    for (dmt::SlotId slot = 0; slot < d.scheduler.high_water; ++slot)
        if (d.scheduler.slots[slot].state != dmt::SlotState::kFree &&
            d.threads[slot].awaits == awaited(id, number, zero))
            ++count;
    return count;
}

/// Whether the first of the operations that cannot be done now is one to wait for; it is noted then.
bool waits_for(int id, const sembuf* ops, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        long value = raw(SYS_semctl, id, ops[i].sem_num, GETVAL, 0);
        if (value < 0) return false;
        for (size_t j = 0; j < i; ++j)
            if (ops[j].sem_num == ops[i].sem_num) value += ops[j].sem_op;
        if (ops[i].sem_op == 0 ? value != 0 : value + ops[i].sem_op < 0) {
            domain().threads[self.slot].awaits = awaited(id, ops[i].sem_num, ops[i].sem_op == 0);
            return !(ops[i].sem_flg & IPC_NOWAIT);
        }
    }
    return false;
}

long operate(int id, const sembuf* ops, size_t count, const timespec* timeout) {
    if (!readable_if_given(timeout)) return -EFAULT;
    if (timeout && !valid_timespec(timeout)) return -EINVAL;
    if (count == 0 || count > kMostOperations) return raw(SYS_semtimedop, id, ops, count, nullptr);
    sembuf at_once[kMostOperations];
    if (crane_copy(at_once, ops, count * sizeof(sembuf)) != 0) return -EFAULT;
    for (size_t i = 0; i < count; ++i) at_once[i].sem_flg |= IPC_NOWAIT;
    const uint64_t deadline = timeout ? deadline_from_relative_ns(to_ns(*timeout)) : dmt::kNoDeadline;
    IpcWait wait{Op::kSystemV, semaphore_key(id), deadline, -EAGAIN, -EAGAIN};
    return wait.until_done([&] { return raw(SYS_semtimedop, id, at_once, count, nullptr); },
                           [&] { return waits_for(id, ops, count); });
}

/// The kernel's clock tells when an object was last used; the program hears of none but the domain's own
/// time.
template <typename Time>
void hide_time(Time& time) {
    if (time != 0) time = static_cast<Time>(domain_start_ns() / kNsPerSecond);
}

template <typename Object>
void hide_times(Object* object);
template <>
void hide_times(semid_ds* object) {
    hide_time(object->sem_otime);
    hide_time(object->sem_ctime);
}
template <>
void hide_times(msqid_ds* object) {
    hide_time(object->msg_stime);
    hide_time(object->msg_rtime);
    hide_time(object->msg_ctime);
}
template <>
void hide_times(shmid_ds* object) {
    hide_time(object->shm_atime);
    hide_time(object->shm_dtime);
    hide_time(object->shm_ctime);
}

/// Whether a command tells of an object. The numbers mean other things for other kinds: what is SHM_STAT of a
/// segment is GETALL of semaphores.
template <typename Object>
bool looks(int command);
template <>
bool looks<semid_ds>(int command) {
    return command == IPC_STAT || command == SEM_STAT || command == SEM_STAT_ANY;
}
template <>
bool looks<msqid_ds>(int command) {
    return command == IPC_STAT || command == MSG_STAT || command == MSG_STAT_ANY;
}
template <>
bool looks<shmid_ds>(int command) {
    return command == IPC_STAT || command == SHM_STAT || command == SHM_STAT_ANY;
}

/// Whoever waits for the object sees what has changed, or that it is gone.
template <typename Object, typename Call>
long control(uint64_t key, int command, void* argument, Call call) {
    Operation turn(Op::kSystemV, key);
    const long rc = call();
    if (rc >= 0 && looks<Object>(command)) hide_times(static_cast<Object*>(argument));
    if (rc >= 0 && (command == IPC_RMID || command == IPC_SET || command == SETVAL || command == SETALL))
        scheduler().signal(key, ~uint32_t{0});
    return rc;
}

template <typename Call>
int get(Call call) {
    Operation turn(Op::kSystemV, table_key());
    return static_cast<int>(as_libc(call()));
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int semget(key_t key, int count, int flags) noexcept {
    if (!active()) return resolve_real(), real.semget(key, count, flags);
    return get([&] { return raw(SYS_semget, key, count, flags); });
}

CRANE_EXPORT int semop(int id, sembuf* ops, size_t count) noexcept {
    if (!active()) return resolve_real(), real.semop(id, ops, count);
    return static_cast<int>(as_libc(operate(id, ops, count, nullptr)));
}

CRANE_EXPORT int semtimedop(int id, sembuf* ops, size_t count, const timespec* timeout) noexcept {
    if (!active()) return resolve_real(), real.semtimedop(id, ops, count, timeout);
    return static_cast<int>(as_libc(operate(id, ops, count, timeout)));
}

CRANE_EXPORT int semctl(int id, int number, int command, ...) noexcept {
    va_list list;
    va_start(list, command);
    void* argument = va_arg(list, void*);
    va_end(list);
    if (!active()) return resolve_real(), real.semctl(id, number, command, argument);
    return static_cast<int>(as_libc(control<semid_ds>(semaphore_key(id), command, argument, [&] {
        const long rc = raw(SYS_semctl, id, number, command, argument);
        const bool counts = command == GETNCNT || command == GETZCNT;
        return rc == 0 && counts ? count_waiting(id, number, command == GETZCNT) : rc;
    })));
}

CRANE_EXPORT int msgget(key_t key, int flags) noexcept {
    if (!active()) return resolve_real(), real.msgget(key, flags);
    return get([&] { return raw(SYS_msgget, key, flags); });
}

CRANE_EXPORT int msgsnd(int id, const void* message, size_t bytes, int flags) {
    if (!active()) return resolve_real(), real.msgsnd(id, message, bytes, flags);
    test_cancel();
    IpcWait wait{Op::kSystemV, queue_key(id), crane::dmt::kNoDeadline, -EAGAIN, -EAGAIN};
    const long rc = wait.until_done([&] { return raw(SYS_msgsnd, id, message, bytes, flags | IPC_NOWAIT); },
                                    [&] { return !(flags & IPC_NOWAIT); });
    if (rc == -EINTR) test_cancel();
    return static_cast<int>(as_libc(rc));
}

CRANE_EXPORT ssize_t msgrcv(int id, void* message, size_t bytes, long type, int flags) {
    if (!active()) return resolve_real(), real.msgrcv(id, message, bytes, type, flags);
    test_cancel();
    IpcWait wait{Op::kSystemV, queue_key(id), crane::dmt::kNoDeadline, -ENOMSG, -ENOMSG};
    // A look at a message (MSG_COPY) never waits, and the kernel refuses one that might.
    const int at_once = flags & MSG_COPY ? flags : flags | IPC_NOWAIT;
    const long rc = wait.until_done([&] { return raw(SYS_msgrcv, id, message, bytes, type, at_once); },
                                    [&] { return !(flags & IPC_NOWAIT); });
    if (rc == -EINTR) test_cancel();
    return as_libc(rc);
}

CRANE_EXPORT int msgctl(int id, int command, msqid_ds* argument) noexcept {
    if (!active()) return resolve_real(), real.msgctl(id, command, argument);
    return static_cast<int>(as_libc(control<msqid_ds>(
        queue_key(id), command, argument, [&] { return raw(SYS_msgctl, id, command, argument); })));
}

CRANE_EXPORT int shmget(key_t key, size_t bytes, int flags) noexcept {
    if (!active()) return resolve_real(), real.shmget(key, bytes, flags);
    return get([&] { return raw(SYS_shmget, key, bytes, flags); });
}

CRANE_EXPORT int shmctl(int id, int command, shmid_ds* argument) noexcept {
    if (!active()) return resolve_real(), real.shmctl(id, command, argument);
    return static_cast<int>(as_libc(control<shmid_ds>(
        table_key(), command, argument, [&] { return raw(SYS_shmctl, id, command, argument); })));
}

/// libc's own asks the kernel which device and number the file really has.
CRANE_EXPORT key_t ftok(const char* path, int project) noexcept {
    struct stat64 file {};
    if (::stat64(path, &file) < 0) return -1;
    return static_cast<key_t>((file.st_ino & 0xffff) | (file.st_dev & 0xff) << 16 |
                              static_cast<uint32_t>(project & 0xff) << 24);
}
