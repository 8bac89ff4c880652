#include "interpose/core/watched_files.hpp"

#include <fcntl.h>
#include <sys/inotify.h>

#include <climits>
#include <cstdio>
#include <cstring>

#include "interpose/core/epolls.hpp"
#include "interpose/core/fds.hpp"

namespace crane::interpose {

namespace {

constexpr char kTooManyWatched[] =
    "more files are watched (inotify) than an image can name: perhaps none will be taken of this server";

void tell_paths() {
    const DomainState& d = domain();
    timebubble::WatchedPaths& told = runtime.view.control->watched;
    std::memcpy(told.text, d.watched, d.watched_bytes);
    told.bytes.store(d.watched_bytes, std::memory_order_release);
}

/// Both ends of a rename have the same, and so have all that watch either.
uint32_t shown_cookie(uint32_t real) {
    DomainState& d = domain();
    for (const RenameCookie& known : d.cookies)
        if (known.real == real) return known.shown;
    const uint32_t shown = ++d.cookies_shown;
    d.cookies[shown % kRenameCookies] = {real, shown};
    return shown;
}

}  // namespace

void note_watches(int fd) {
    DomainState& d = domain();
    if (d.inotify_stream == 0) d.inotify_stream = static_cast<uint32_t>(++d.streams_made);
    set_entry(fd, FdKind::kStream, d.inotify_stream);
    if (FdEntry* entry = entry_of_kind(fd, FdKind::kStream)) entry->flags |= kFdWatches;
}

void note_watched(const char* path, uint32_t mask) {
    DomainState& d = domain();
    const int flags = O_PATH | O_CLOEXEC | (mask & IN_DONT_FOLLOW ? O_NOFOLLOW : 0);
    const long fd = raw(SYS_openat, AT_FDCWD, path, flags);
    if (fd < 0) return;
    char link[40], name[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%ld", fd);
    const long bytes = raw(SYS_readlink, link, name, sizeof(name) - 1);
    raw(SYS_close, fd);
    if (bytes <= 0) return;
    name[bytes] = 0;
    for (const char* at = d.watched; at < d.watched + d.watched_bytes; at += strlen(at) + 1)
        if (strcmp(at, name) == 0) return;
    const auto size = static_cast<uint32_t>(bytes) + 1;
    if (size > sizeof(d.watched) - d.watched_bytes) return report(kTooManyWatched);
    std::memcpy(d.watched + d.watched_bytes, name, size);
    d.watched_bytes += size;
    tell_paths();
}

void watch_again() {
    for (RenameCookie& known : domain().cookies) known = {};
    tell_paths();
}

void tell_watchers() {
    const uint64_t bit = set_bit(ObjectKind::kStream, domain().inotify_stream);
    scheduler().signal_set(bit | set_bit(ObjectKind::kStream, 0));
    kernel_stream_event(bit);
}

void show_cookies(char* events, size_t bytes) {
    constexpr size_t kCookieAt = offsetof(inotify_event, cookie), kNameBytesAt = offsetof(inotify_event, len);
    for (size_t at = 0; at + sizeof(inotify_event) <= bytes;) {
        uint32_t cookie, name_bytes;
        std::memcpy(&cookie, events + at + kCookieAt, sizeof(cookie));
        std::memcpy(&name_bytes, events + at + kNameBytesAt, sizeof(name_bytes));
        if (cookie != 0) {
            cookie = shown_cookie(cookie);
            std::memcpy(events + at + kCookieAt, &cookie, sizeof(cookie));
        }
        at += sizeof(inotify_event) + name_bytes;
    }
}

}  // namespace crane::interpose
