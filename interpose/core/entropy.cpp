#include "interpose/core/entropy.hpp"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "interpose/core/chacha20.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/uncancelled.hpp"

namespace crane::interpose {

void fill_random(void* place, size_t bytes) {
    Process& p = *runtime.process;
    chacha20_stream(domain().secret, p.ordinal, p.entropy_at, static_cast<uint8_t*>(place), bytes);
    p.entropy_at += bytes;
}

void fill_random_name(char* place, size_t count) {
    constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    for (size_t i = 0; i < count; ++i) {
        uint8_t byte;
        do fill_random(&byte, 1);
        while (byte >= 248);
        place[i] = kLetters[byte % 62];
    }
}

void replace_auxiliary_random() {
    // The loader has taken its canaries out of it by now.
    constexpr size_t kBytes = 16;
    auto* bytes = reinterpret_cast<uint8_t*>(getauxval(AT_RANDOM));
    if (bytes) fill_random(bytes, kBytes);
}

bool is_random_device(const char* path) {
    if (strncmp(path, "/dev/", 5) != 0) return false;
    for (const char* name : {"urandom", "random", "hwrng", "arandom", "srandom"}) {
        if (strcmp(path + 5, name) == 0) return true;
    }
    return false;
}

namespace {

ssize_t read_random(void*, char* place, size_t bytes) {
    SharedOperation turn(Op::kEntropy, entropy_key());
    fill_random(place, bytes);
    return static_cast<ssize_t>(bytes);
}

ssize_t write_nowhere(void*, const char*, size_t bytes) {
    return static_cast<ssize_t>(bytes);
}

int close_device(void* cookie) {
    const Uncancelled whole;
    return ::close(static_cast<int>(reinterpret_cast<intptr_t>(cookie)));
}

}  // namespace

FILE* open_random_stream(const char* path, int flags) {
    const long opened = raw(SYS_openat, AT_FDCWD, path, flags, 0);
    if (opened < 0) {
        errno = static_cast<int>(-opened);
        return nullptr;
    }
    const int fd = static_cast<int>(opened);
    drop_entry(fd);
    set_entry(fd, FdKind::kEntropy, 0);
    auto* cookie = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    FILE* stream = fopencookie(cookie, "r+", {read_random, write_nowhere, nullptr, close_device});
    if (!stream) {
        drop_entry(fd);
        raw(SYS_close, fd);
        errno = ENOMEM;
    } else {
        fd_entry(fd)->flags |= kFdCookie;  // it is closed by a call with a turn of its own
        stream->_fileno = fd;              // for fileno(): programs ask what kind of file it is
    }
    return stream;
}

}  // namespace crane::interpose
