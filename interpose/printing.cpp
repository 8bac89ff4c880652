// dprintf: libc formats and writes in one go, past the wrappers.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {
namespace {

int print_to(int fd, const char* format, va_list list) {
    char small[1024];
    va_list again;
    va_copy(again, list);
    const int length = vsnprintf(small, sizeof(small), format, list);
    char* text = small;
    char* large = nullptr;
    if (length >= static_cast<int>(sizeof(small))) {
        large = static_cast<char*>(malloc(static_cast<size_t>(length) + 1));
        if (large) vsnprintf(large, static_cast<size_t>(length) + 1, format, again);
        text = large;
    }
    va_end(again);
    if (length < 0 || !text) return -1;
    int done = 0;
    while (done < length) {
        const ssize_t n = write(fd, text + done, static_cast<size_t>(length - done));
        if (n < 0) break;
        done += static_cast<int>(n);
    }
    free(large);
    return done == length ? length : -1;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int vdprintf(int fd, const char* format, va_list list) {
    return print_to(fd, format, list);
}
CRANE_EXPORT int __vdprintf_chk(int fd, int, const char* format, va_list list) {
    return print_to(fd, format, list);
}

CRANE_EXPORT int dprintf(int fd, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int rc = print_to(fd, format, list);
    va_end(list);
    return rc;
}

CRANE_EXPORT int __dprintf_chk(int fd, int, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int rc = print_to(fd, format, list);
    va_end(list);
    return rc;
}
