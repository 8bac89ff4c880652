#include "interpose/core/stream_buffers.hpp"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "interpose/core/raw.hpp"

/// Exported by libc for libraries that bring streams of their own. `of_libc`: libc frees the buffer with the
/// stream.
extern "C" void _IO_setb(FILE* stream, char* begin, char* end, int of_libc);

namespace crane::interpose {

namespace {

constexpr size_t kBufferBytes = 4096;

bool is_regular(int fd) {
    struct stat info;
    return fd >= 0 && raw(SYS_fstat, fd, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

void give_buffer(FILE* stream) {
    if (!stream || stream->_IO_buf_base || !is_regular(stream->_fileno)) return;
    const int saved = errno;
    if (char* buffer = static_cast<char*>(malloc(kBufferBytes)))
        _IO_setb(stream, buffer, buffer + kBufferBytes, 1);
    errno = saved;
}

}  // namespace crane::interpose
