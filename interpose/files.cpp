// Opening files. Most of it is the kernel's; stood in for are the random devices and the files that describe
// the machine. What is opened for writing gets its time when it is closed (core/file_times.hpp).
#include <fcntl.h>

#include <cstdarg>
#include <cstring>

#include "interpose/commands.hpp"
#include "interpose/core/entropy.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/machine.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/size_limit.hpp"
#include "interpose/core/standard_streams.hpp"
#include "interpose/core/stream_buffers.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/user_memory.hpp"
#include "interpose/fifos.hpp"

using namespace crane::interpose;

namespace {

int answer(long rc) {
    if (rc >= 0) return static_cast<int>(rc);
    errno = static_cast<int>(-rc);
    return -1;
}

bool takes_mode(int flags) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

long open_in_turn(int directory, const char* path, int flags, mode_t mode) {
    if (!readable_text(path)) return -EFAULT;
    const long machine = open_machine_file(path, flags & O_CLOEXEC, (flags & O_ACCMODE) != O_RDONLY);
    const bool described = machine != -1;
    const long fd = described ? machine : raw(SYS_openat, directory, path, flags, mode);
    if (fd < 0) return fd;
    if (const long error = described ? 0 : show_opened(static_cast<int>(fd), flags); error < 0) {
        raw(SYS_close, fd);
        return error;
    }
    const int number = static_cast<int>(fd);
    // A number that libc closed by itself may still have its old meaning.
    drop_entry(number);
    if (is_random_device(path)) set_entry(number, FdKind::kEntropy, 0);
    if ((flags & O_NONBLOCK) || (flags & O_ACCMODE) == O_RDWR) tell_other_end(number);
    if (flags & (O_CREAT | O_TRUNC)) note_file_write(number);
    return fd;
}

int open_file(int directory, const char* path, int flags, mode_t mode) {
    if (!active()) return resolve_real(), real.openat(directory, path, flags, mode);
    test_cancel();
    if (opens_fifo(directory, path, flags))
        return answer(at_cancellation_point([&] { return open_fifo(directory, path, flags); }));
    SharedOperation turn(Op::kFile, files_key());
    return answer(open_in_turn(directory, path, flags, mode));
}

/// The mode argument, if there is one.
#define CRANE_MODE(flags)                              \
    mode_t mode = 0;                                   \
    if (takes_mode(flags)) {                           \
        va_list list;                                  \
        va_start(list, flags);                         \
        mode = static_cast<mode_t>(va_arg(list, int)); \
        va_end(list);                                  \
    }

}  // namespace

CRANE_EXPORT int open(const char* path, int flags, ...) {
    CRANE_MODE(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}
CRANE_EXPORT int open64(const char* path, int flags, ...) {
    CRANE_MODE(flags)
    return open_file(AT_FDCWD, path, flags, mode);
}
CRANE_EXPORT int openat(int directory, const char* path, int flags, ...) {
    CRANE_MODE(flags)
    return open_file(directory, path, flags, mode);
}
CRANE_EXPORT int openat64(int directory, const char* path, int flags, ...) {
    CRANE_MODE(flags)
    return open_file(directory, path, flags, mode);
}
CRANE_EXPORT int __open_2(const char* path, int flags) {
    return open_file(AT_FDCWD, path, flags, 0);
}
CRANE_EXPORT int __open64_2(const char* path, int flags) {
    return open_file(AT_FDCWD, path, flags, 0);
}
CRANE_EXPORT int __openat_2(int directory, const char* path, int flags) {
    return open_file(directory, path, flags, 0);
}
CRANE_EXPORT int __openat64_2(int directory, const char* path, int flags) {
    return open_file(directory, path, flags, 0);
}
CRANE_EXPORT int creat(const char* path, mode_t mode) {
    return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
CRANE_EXPORT int creat64(const char* path, mode_t mode) {
    return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

// --- truncation and allocation: changes without a write

namespace {

template <typename Call>
int change(int fd, Call call) {
    if (!active()) return answer(call());
    if (is_reserved_fd(fd)) return answer(-EBADF);
    note_file_write(fd);
    long rc;
    {
        const SerialStep step;
        rc = call();
    }
    return answer(after_growth(rc));
}

}  // namespace

CRANE_EXPORT int ftruncate(int fd, off_t length) noexcept {
    return change(fd, [=] { return raw(SYS_ftruncate, fd, length); });
}
CRANE_EXPORT int ftruncate64(int fd, off64_t length) noexcept {
    return change(fd, [=] { return raw(SYS_ftruncate, fd, length); });
}
CRANE_EXPORT int fallocate(int fd, int mode, off_t at, off_t bytes) {
    return change(fd, [=] { return raw(SYS_fallocate, fd, mode, at, bytes); });
}
CRANE_EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t bytes) {
    return change(fd, [=] { return raw(SYS_fallocate, fd, mode, at, bytes); });
}

// --- stdio

namespace {

bool writes(const char* mode) {
    return strpbrk(mode, "wa+") != nullptr;
}

int stream_flags(const char* mode) {
    return (writes(mode) ? O_RDWR : O_RDONLY) | (strchr(mode, 'e') ? O_CLOEXEC : 0);
}

void note_stream(FILE* stream, const char* mode) {
    give_buffer(stream);
    const int fd = stream ? fileno(stream) : -1;
    if (fd < 0) return;
    drop_entry(fd);
    if (writes(mode)) note_file_write(fd);
}

/// Libc has read nothing yet.
FILE* show_stream(FILE* stream, const char* mode) {
    if (!stream) return nullptr;
    const long error = show_opened(fileno(stream), stream_flags(mode));
    if (error == 0) return stream;
    real.fclose(stream);
    errno = static_cast<int>(-error);
    return nullptr;
}

FILE* open_stream(const char* path, const char* mode) {
    if (!active() || !path || !mode) return real.fopen(path, mode);
    if (streams_are_caught() && readable_text(path) && is_random_device(path)) return real.fopen(path, mode);
    test_cancel();
    if (const int flags = fifo_flags(mode); flags >= 0 && opens_fifo(AT_FDCWD, path, flags)) {
        if (streams_are_caught()) return real.fopen(path, mode);
        const int fd = answer(at_cancellation_point([&] { return open_fifo(AT_FDCWD, path, flags); }));
        return fd < 0 ? nullptr : ::fdopen(fd, mode);
    }
    SharedOperation turn(Op::kFile, files_key());
    if (!readable_text(path)) return answer(-EFAULT), nullptr;
    if (is_random_device(path)) return open_random_stream(path, stream_flags(mode));
    const long machine =
        open_machine_file(path, strchr(mode, 'e') != nullptr, strpbrk(mode, "wa+") != nullptr);
    if (machine >= 0) {
        drop_entry(static_cast<int>(machine));
        return real.fdopen(static_cast<int>(machine), "r");
    }
    FILE* stream = real.fopen(path, mode);
    note_stream(stream, mode);
    if (stream && strchr(mode, '+')) tell_other_end(fileno(stream));
    return show_stream(stream, mode);
}

bool is_served(int fd) {
    const FdEntry* entry = fd_entry(fd);
    if (!entry) return false;
    return entry->kind != FdKind::kPlain && entry->kind != FdKind::kUnknown;
}

FILE* reopen_stream(const char* path, const char* mode, FILE* stream) {
    if (!active()) return resolve_real(), real.freopen(path, mode, stream);
    if (streams_are_caught()) {
        forget_standard_stream(stream);
        FILE* opened = real.freopen(path, mode, stream);
        give_buffer(opened);
        if (opened && writes(mode) && !is_served(fileno(opened))) note_file_write(fileno(opened));
        return opened;
    }
    SharedOperation turn(Op::kFile, files_key());
    const int before = fileno(stream);
    if (before >= 0) {
        real.fflush(stream);
        settle_file_times(before);
        drop_entry(before);
    }
    forget_standard_stream(stream);
    FILE* opened = real.freopen(path, mode, stream);
    note_stream(opened, mode);
    return opened;
}

int close_stream(FILE* stream) {
    const int fd = fileno(stream);
    const FdEntry* entry = fd < 0 ? nullptr : fd_entry(fd);
    // A cookie's close is the wrapper, with a turn of its own.
    const bool standard = is_served_standard_stream(stream);
    forget_standard_stream(stream);
    if (!entry || entry->flags & kFdCookie || standard) return real.fclose(stream);
    // Its last write may wait, which is no matter for the middle of an operation; its close is the wrapper.
    if (streams_are_caught() && is_served(fd)) return real.fclose(stream);
    Operation turn(Op::kClose, descriptor_key(fd), entry_key(*entry));
    // What could not be written is lost for good with the stream: its error is the call's.
    int lost = 0;
    if (entry->flags & kFdWritten) {
        if (real.fflush(stream) != 0) lost = errno;
        settle_file_times(fd);
    }
    const int rc = real.fclose(stream);
    drop_entry(fd);
    file_event();
    if (lost) errno = lost;
    return lost ? EOF : rc;
}

}  // namespace

CRANE_EXPORT FILE* fopen(const char* path, const char* mode) {
    return open_stream(path, mode);
}
CRANE_EXPORT FILE* fopen64(const char* path, const char* mode) {
    return open_stream(path, mode);
}
CRANE_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
    return reopen_stream(path, mode, stream);
}
CRANE_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
    return reopen_stream(path, mode, stream);
}

CRANE_EXPORT FILE* fdopen(int fd, const char* mode) noexcept {
    if (!active()) return real.fdopen(fd, mode);
    if (!is_served(fd) || streams_are_caught()) {
        FILE* plain = real.fdopen(fd, mode);
        give_buffer(plain);
        return plain;
    }
    FILE* stream = make_served_stream(fd, mode);
    if (!stream) return nullptr;
    fd_entry(fd)->flags |= kFdCookie;
    return stream;
}

CRANE_EXPORT int fclose(FILE* stream) {
    if (!active()) return resolve_real(), real.fclose(stream);
    const pid_t command = forget_popened(stream);
    const int rc = close_stream(stream);
    return command == 0 ? rc : wait_for_popened(command);
}
