#include "interpose/core/standard_streams.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <ostream>

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
    return ::close(cookie_fd(cookie));
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

void move_output(FILE* from, FILE* to) {
    const auto pending = static_cast<size_t>(from->_IO_write_ptr - from->_IO_write_base);
    if (from->_IO_write_ptr <= from->_IO_write_base) return;
    fwrite_unlocked(from->_IO_write_base, 1, pending, to);
    from->_IO_write_ptr = from->_IO_write_base;
}

}  // namespace

FILE* make_served_stream(int fd, const char* mode) {
    FILE* stream = fopencookie(reinterpret_cast<void*>(static_cast<intptr_t>(fd)), mode,
                               {cookie_read, cookie_write, nullptr, cookie_close});
    // So that fileno() knows it; a cookie's own calls do not use it.
    if (stream) stream->_fileno = fd;
    return stream;
}

bool is_served_standard_stream(const FILE* stream) {
    return stream && (stream == made[0] || stream == made[1] || stream == made[2]);
}

void forget_standard_stream(const FILE* stream) {
    for (FILE*& one : made)
        if (one == stream) one = nullptr;
}

void serve_standard_stream(int fd) {
    if (fd < 0 || fd > 2 || made[fd]) return;
    FILE*& standard = fd == 0 ? stdin : fd == 1 ? stdout : stderr;
    FILE* const old = standard;
    // The program may have arranged something else, or still has to read what it was sent before.
    if (!old || old->_fileno != fd || (fd == 0 && old->_IO_read_ptr < old->_IO_read_end)) return;
    const int saved = errno;
    FILE* stream = make_served_stream(fd, fd == 0 ? "r" : "w");
    char* buffer = stream ? static_cast<char*>(malloc(kBufferBytes)) : nullptr;
    if (buffer) {
        _IO_setb(stream, buffer, buffer + kBufferBytes, 1);
        if (fd == 2 || (old->_flags & kUnbuffered)) setvbuf(stream, nullptr, _IONBF, 0);
        stream->_flags |= old->_flags & kLineBuffered;
        if (fd != 0) move_output(old, stream);
        made[fd] = standard = stream;
        tell_cpp_stream(kCppNames[fd], old, stream);
    }
    errno = saved;
}

}  // namespace crane::interpose
