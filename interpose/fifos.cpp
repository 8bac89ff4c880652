#include "interpose/fifos.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/opaque.hpp"

namespace crane::interpose {
namespace {

/// Whether somebody has it open for writing, or has written. tee() takes nothing out, as a read would.
bool has_writer(int fd) {
    int other[2];
    if (raw(SYS_pipe2, other, O_CLOEXEC | O_NONBLOCK) != 0) return true;  // then whoever reads finds its end
    const long rc = raw(SYS_tee, fd, other[1], 1, SPLICE_F_NONBLOCK);
    raw(SYS_close, other[0]);
    raw(SYS_close, other[1]);
    return rc != 0;
}

/// The same, or has had it open since it was opened here.
bool had_writer(int fd) {
    pollfd probe{fd, POLLIN, 0};
    return probe_streams(&probe, 1, 0) > 0 || has_writer(fd);
}

/// False: the call ends with EINTR.
bool await_other_end(Operation& turn, uint32_t& looks) {
    const uint64_t any = set_bit(ObjectKind::kStream, 0);
    const uint64_t until_ns = next_look_for_left_ns(looks);
    if (turn.wait(make_key(ObjectKind::kStream, 0), until_ns, true, any) != dmt::WaitResult::kInterrupted)
        return true;
    return restart_after_signals();
}

void leave_open(int fd, int flags) {
    raw(SYS_fcntl, fd, F_SETFL, flags & ~(O_ACCMODE | O_NONBLOCK));
}

}  // namespace

bool opens_fifo(int directory, const char* path, int flags) {
    const bool never_waits = (flags & (O_NONBLOCK | O_PATH | O_DIRECTORY)) || (flags & O_ACCMODE) == O_RDWR ||
                             (flags & O_ACCMODE) == O_ACCMODE ||
                             (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    if (never_waits) return false;
    struct stat info;
    const int follow = flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    return raw(SYS_newfstatat, directory, path, &info, follow) == 0 && S_ISFIFO(info.st_mode);
}

long open_fifo(int directory, const char* path, int flags) {
    Operation turn(Op::kFile, files_key());
    uint32_t looks = 0;
    long fd;
    for (;;) {
        settle_opaque();
        fd = raw(SYS_openat, directory, path, flags | O_NONBLOCK, 0);
        if (fd != -ENXIO) break;  // who writes waits for one who reads
        if (!await_other_end(turn, looks)) return -EINTR;
    }
    if (fd < 0) return fd;
    const int number = static_cast<int>(fd);
    drop_entry(number);
    set_entry(number, FdKind::kStream, 0);
    const FdEntry* entry = fd_entry(number);
    if (!entry) {  // said by set_entry()
        raw(SYS_close, fd);
        return -EMFILE;
    }
    const FdEntry then = *entry;
    all_streams_event();
    while ((flags & O_ACCMODE) == O_RDONLY && !had_writer(number)) {
        const bool goes_on = await_other_end(turn, looks);
        if (!same_descriptor(number, then)) return -EINTR;
        if (goes_on) {
            settle_opaque();
            continue;
        }
        raw(SYS_close, fd);
        drop_entry(number);
        return -EINTR;
    }
    leave_open(number, flags);
    return fd;
}

void tell_other_end(int fd) {
    const FdEntry* entry = fd_entry(fd);
    if (entry && entry->kind == FdKind::kStream) all_streams_event();
}

int fifo_flags(const char* mode) {
    if (strchr(mode, '+')) return -1;
    const int kept = strchr(mode, 'e') ? O_CLOEXEC : 0;
    if (*mode == 'r') return O_RDONLY | kept;
    return O_WRONLY | kept | (*mode == 'a' ? O_APPEND : 0);
}

}  // namespace crane::interpose
