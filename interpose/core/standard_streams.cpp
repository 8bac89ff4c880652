#include "interpose/core/standard_streams.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>

#include "interpose/core/fds.hpp"
#include "interpose/core/uncancelled.hpp"

/// Exported by libc for libraries that bring streams of their own. `of_libc`: libc frees the buffer with the
/// stream.
extern "C" void _IO_setb(FILE* stream, char* begin, char* end, int of_libc);

namespace crane::interpose {

namespace {

constexpr size_t kBufferBytes = 4096;                    // what libc's have over a pipe
constexpr int kUnbuffered = 0x2, kLineBuffered = 0x200;  // of FILE::_flags (libio.h)

constexpr const char* kCppNames[3] = {"_ZSt3cin", "_ZSt4cout",
                                      "_ZSt4cerr"};  // clog has the last one's buffer

FILE* made[3];

int cookie_fd(void* cookie) {
    return static_cast<int>(reinterpret_cast<intptr_t>(cookie));
}
ssize_t cookie_read(void* cookie, char* place, size_t bytes) {
    return ::read(cookie_fd(cookie), place, bytes);
}
ssize_t cookie_write(void* cookie, const char* from, size_t bytes) {
    const ssize_t written = ::write(cookie_fd(cookie), from, bytes);
    return written < 0 ? 0 : written;
}
int cookie_close(void* cookie) {
    const Uncancelled whole;
    return ::close(cookie_fd(cookie));
}

/// Whoever waits for the turn in here has the stream's lock, and another thread of the program would wait for
/// that inside libc, with the turn in hand.
bool alone() {
    const DomainState& d = domain();
    uint32_t threads = 0;
    for (uint32_t slot = 0; slot < d.scheduler.high_water; ++slot)
        threads += d.scheduler.slots[slot].process == runtime.process_index &&
                   d.scheduler.slots[slot].state != dmt::SlotState::kFree;
    return threads <= 1;
}

/// Where others might want the stream meanwhile, libc waits as it always did.
bool left_to_libc(int fd) {
    return active() && !alone() && runtime.process->fds[fd].kind == FdKind::kStream;
}

ssize_t as_libc_does(long rc) {
    if (rc >= 0) return rc;
    errno = static_cast<int>(-rc);
    return -1;
}
ssize_t standard_read(void* cookie, char* place, size_t bytes) {
    const int fd = cookie_fd(cookie);
    return left_to_libc(fd) ? as_libc_does(raw(SYS_read, fd, place, bytes)) : ::read(fd, place, bytes);
}
ssize_t standard_write(void* cookie, const char* from, size_t bytes) {
    const int fd = cookie_fd(cookie);
    const ssize_t written =
        left_to_libc(fd) ? as_libc_does(raw(SYS_write, fd, from, bytes)) : ::write(fd, from, bytes);
    return written < 0 ? 0 : written;
}

FILE* over(int fd, const char* mode, const cookie_io_functions_t& calls) {
    FILE* stream = fopencookie(reinterpret_cast<void*>(static_cast<intptr_t>(fd)), mode, calls);
    // So that fileno() knows it; a cookie's own calls do not use it.
    if (stream) stream->_fileno = fd;
    return stream;
}

/// C++ streams that were made over libc's stream, when the program began, go on over ours.
void tell_cpp_stream(const char* name, const FILE* from, FILE* to) {
    // As in ext/stdio_sync_filebuf.h: what it writes to stands behind its base.
    struct SyncBuffer {
        alignas(std::streambuf) char base[sizeof(std::streambuf)];
        FILE* file;
    };
    void* object = dlsym(RTLD_DEFAULT, name);
    if (!object) return;
    // Of istream and ostream alike: where the part is that they share stands in front of their table.
    const auto* table = *static_cast<const intptr_t* const*>(object);
    if (!table) return;  // it is not made yet, and will be over ours
    auto* shared = reinterpret_cast<std::ios*>(static_cast<char*>(object) + table[-3]);
    auto* buffer = reinterpret_cast<SyncBuffer*>(shared->rdbuf());
    if (buffer && buffer->file == from) buffer->file = to;
}

size_t pending_output(const FILE* stream) {
    return stream->_IO_write_ptr > stream->_IO_write_base
               ? static_cast<size_t>(stream->_IO_write_ptr - stream->_IO_write_base)
               : 0;
}

/// All that there is of it finds room in the other's buffer: nothing is written here, the turn may be in
/// hand.
void move_output(FILE* from, FILE* to) {
    const size_t bytes = pending_output(from);
    if (bytes == 0) return;
    fwrite_unlocked(from->_IO_write_base, 1, bytes, to);
    from->_IO_write_ptr = from->_IO_write_base;
}

}  // namespace

bool streams_are_caught() {
    return domain().backstop;
}

FILE* make_served_stream(int fd, const char* mode) {
    return over(fd, mode, {cookie_read, cookie_write, nullptr, cookie_close});
}

bool is_served_standard_stream(const FILE* stream) {
    return stream && (stream == made[0] || stream == made[1] || stream == made[2]);
}

void forget_standard_stream(const FILE* stream) {
    for (FILE*& one : made)
        if (one == stream) one = nullptr;
}

void serve_standard_stream(int fd) {
    if (fd < 0 || fd > 2 || made[fd] || (streams_are_caught() && serial())) return;
    FILE*& standard = fd == 0 ? stdin : fd == 1 ? stdout : stderr;
    FILE* const old = standard;
    // The program may have arranged something else, or still has to read what it was sent before.
    if (!old || old->_fileno != fd || (fd == 0 && old->_IO_read_ptr < old->_IO_read_end)) return;
    const int saved = errno;
    FILE* stream = over(fd, fd == 0 ? "r" : "w", {standard_read, standard_write, nullptr, cookie_close});
    const size_t room = std::max(kBufferBytes, pending_output(old) + 1);
    char* buffer = stream ? static_cast<char*>(malloc(room)) : nullptr;
    if (buffer) {
        _IO_setb(stream, buffer, buffer + room, 1);
        if (fd != 0) move_output(old, stream);
        if (fd == 2 || (old->_flags & kUnbuffered)) setvbuf(stream, nullptr, _IONBF, 0);
        stream->_flags |= old->_flags & kLineBuffered;
        made[fd] = standard = stream;
        tell_cpp_stream(kCppNames[fd], old, stream);
    }
    errno = saved;
}

}  // namespace crane::interpose
