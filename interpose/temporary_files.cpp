// Names of temporary files: libc draws them inside from the kernel's random bytes and clock, so they are
// drawn here, from the process's own stream.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "interpose/core/entropy.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/shared_operation.hpp"
#include "interpose/core/stream_buffers.hpp"

using namespace crane::interpose;

namespace {

constexpr size_t kRandomLetters = 6;
constexpr int kAttempts = 1000;

/// The six letters to replace, or nullptr.
char* letters_of(char* pattern, int suffix) {
    const size_t length = strlen(pattern);
    if (suffix < 0 || length < kRandomLetters + static_cast<size_t>(suffix)) return nullptr;
    char* letters = pattern + length - static_cast<size_t>(suffix) - kRandomLetters;
    return std::memcmp(letters, "XXXXXX", kRandomLetters) == 0 ? letters : nullptr;
}

/// Tries names until `make` (0 or more: done) says something other than EEXIST. Result or -errno.
template <typename Make>
long with_random_name(char* pattern, int suffix, Make make) {
    char* letters = letters_of(pattern, suffix);
    if (!letters) return -EINVAL;
    for (int i = 0; i < kAttempts; ++i) {
        fill_random_name(letters, kRandomLetters);
        const long made = make();
        if (made != -EEXIST) return made;
    }
    return -EEXIST;
}

int answer(long rc) {
    if (rc >= 0) return static_cast<int>(rc);
    errno = static_cast<int>(-rc);
    return -1;
}

int make_file(char* pattern, int suffix, int flags) {
    if (!active()) return resolve_real(), real.mkostemps(pattern, suffix, flags);
    SharedOperation turn(Op::kFile, files_key());
    const long fd = with_random_name(pattern, suffix, [&] {
        return raw(SYS_openat, AT_FDCWD, pattern, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
    });
    if (fd >= 0) {
        drop_entry(static_cast<int>(fd));
        note_file_write(static_cast<int>(fd));
    }
    return answer(fd);
}

/// For mktemp and tmpnam: a name that is free now.
long choose_free_name(char* pattern) {
    return with_random_name(pattern, 0, [&]() -> long {
        struct stat info;
        return raw(SYS_newfstatat, AT_FDCWD, pattern, &info, AT_SYMLINK_NOFOLLOW) == -ENOENT ? 0 : -EEXIST;
    });
}

}  // namespace

CRANE_EXPORT int mkstemp(char* pattern) {
    return make_file(pattern, 0, 0);
}
CRANE_EXPORT int mkstemp64(char* pattern) {
    return make_file(pattern, 0, 0);
}
CRANE_EXPORT int mkostemp(char* pattern, int flags) {
    return make_file(pattern, 0, flags);
}
CRANE_EXPORT int mkostemp64(char* pattern, int flags) {
    return make_file(pattern, 0, flags);
}
CRANE_EXPORT int mkstemps(char* pattern, int suffix) {
    return make_file(pattern, suffix, 0);
}
CRANE_EXPORT int mkstemps64(char* pattern, int suffix) {
    return make_file(pattern, suffix, 0);
}
CRANE_EXPORT int mkostemps(char* pattern, int suffix, int flags) {
    return make_file(pattern, suffix, flags);
}
CRANE_EXPORT int mkostemps64(char* pattern, int suffix, int flags) {
    return make_file(pattern, suffix, flags);
}

CRANE_EXPORT char* mkdtemp(char* pattern) noexcept {
    if (!active()) return resolve_real(), real.mkdtemp(pattern);
    SharedOperation turn(Op::kFile, files_key());
    const long rc = with_random_name(pattern, 0, [&] { return raw(SYS_mkdirat, AT_FDCWD, pattern, 0700); });
    return answer(rc) < 0 ? nullptr : pattern;
}

CRANE_EXPORT char* mktemp(char* pattern) noexcept {
    // Said to be dangerous by the linker at each use of libc's; ours needs none of it.
    if (active()) {
        SharedOperation turn(Op::kFile, files_key());
        if (answer(choose_free_name(pattern)) == 0) return pattern;
    } else {
        errno = EINVAL;
    }
    pattern[0] = 0;
    return pattern;
}

CRANE_EXPORT char* tmpnam(char* place) noexcept {
    static char shared[L_tmpnam];
    char name[L_tmpnam] = "/tmp/fileXXXXXX";
    static_assert(sizeof("/tmp/fileXXXXXX") <= L_tmpnam);
    if (active()) {
        SharedOperation turn(Op::kFile, files_key());
        if (choose_free_name(name) != 0) return nullptr;
    } else {
        // Nobody's name but this process's.
        const int fd = real.mkostemps(name, 0, 0);
        if (fd < 0) return nullptr;
        raw(SYS_close, fd);
        raw(SYS_unlink, name);
    }
    return strcpy(place ? place : shared, name);
}

CRANE_EXPORT char* tmpnam_r(char* place) noexcept {
    return place ? ::tmpnam(place) : nullptr;
}

CRANE_EXPORT char* tempnam(const char* directory, const char* prefix) noexcept {
    const char* chosen = secure_getenv("TMPDIR");
    if (!chosen) chosen = directory ? directory : P_tmpdir;
    const size_t room = strlen(chosen) + 5 + kRandomLetters + 2;
    auto* name = static_cast<char*>(calloc(1, room));
    if (!name) return nullptr;
    strcpy(name, chosen);
    strcat(name, "/");
    strncat(name, prefix ? prefix : "file", 5);
    strcat(name, "XXXXXX");
    if (active()) {
        SharedOperation turn(Op::kFile, files_key());
        if (choose_free_name(name) == 0) return name;
        free(name);
        return nullptr;
    }
    const int fd = real.mkostemps(name, 0, 0);
    if (fd >= 0) {
        raw(SYS_close, fd);
        raw(SYS_unlink, name);
    }
    return name;
}

CRANE_EXPORT FILE* tmpfile() {
    if (!active()) return resolve_real(), real.tmpfile();
    SharedOperation turn(Op::kFile, files_key());
    // Without a name, as libc's own first attempt.
    long fd = raw(SYS_openat, AT_FDCWD, P_tmpdir, O_RDWR | O_EXCL | O_TMPFILE, 0600);
    if (fd < 0) {
        char name[] = P_tmpdir "/tmpfXXXXXX";
        fd = with_random_name(
            name, 0, [&] { return raw(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_EXCL, 0600); });
        if (fd >= 0) raw(SYS_unlink, name);
    }
    if (answer(fd) < 0) return nullptr;
    drop_entry(static_cast<int>(fd));
    FILE* stream = real.fdopen(static_cast<int>(fd), "w+");
    if (!stream) raw(SYS_close, fd);
    give_buffer(stream);
    return stream;
}

CRANE_EXPORT FILE* tmpfile64() {
    return ::tmpfile();
}
