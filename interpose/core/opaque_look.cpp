// What /proc tells of a process: whether it waits for somebody else.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interpose/core/opaque.hpp"
#include "interpose/core/raw.hpp"

namespace crane::interpose {

namespace {

/// Processes, or threads of one, that are looked at; more count as running.
constexpr size_t kMaxLooked = 64;

/// The beginning of a small file of the kernel's, with a 0 behind it. False: gone, or not for us to see.
bool read_start(const char* path, char* text, size_t room) {
    const long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const long got = raw(SYS_read, fd, text, room - 1);
    raw(SYS_close, fd);
    if (got < 0) return false;
    text[got] = 0;
    return true;
}

bool starts_with_any(const char* name, const char* const* list, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (strncmp(name, list[i], strlen(list[i])) == 0) return true;
    }
    return false;
}

enum class Sleep { kNone, kOnStream, kOnOwn };

/// By the kernel function that a thread sleeps in, as all kernels since 4.19 name it.
Sleep classify(const char* function) {
    static constexpr const char* kStream[] = {"pipe_",       "anon_pipe_",           "unix_stream_",
                                              "unix_dgram_", "sock_alloc_send_pskb", "wait_for_partner"};
    // Of its own threads and children, which are looked at themselves.
    static constexpr const char* kOwn[] = {"do_wait", "futex_", "kernel_wait"};
    if (starts_with_any(function, kStream, std::size(kStream))) return Sleep::kOnStream;
    return starts_with_any(function, kOwn, std::size(kOwn)) ? Sleep::kOnOwn : Sleep::kNone;
}

struct Numbers {
    int values[kMaxLooked];
    size_t count = 0;
    bool all = true;

    void add(int value) {
        if (count == kMaxLooked) {
            all = false;
        } else {
            values[count++] = value;
        }
    }
};

void list_threads(int pid, Numbers& threads) {
    char path[48];
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    const long folder = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0) return;
    struct Entry {
        uint64_t inode;
        int64_t offset;
        uint16_t bytes;
        uint8_t type;
        char name[];
    };
    alignas(Entry) char buffer[2048];
    for (long got; (got = raw(SYS_getdents64, folder, buffer, sizeof(buffer))) > 0;) {
        for (long at = 0; at < got;) {
            const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
            if (entry->name[0] != '.') threads.add(atoi(entry->name));
            at += entry->bytes;
        }
    }
    raw(SYS_close, folder);
}

void list_children(int pid, int thread, Numbers& processes) {
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, thread);
    if (!read_start(path, text, sizeof(text))) return;
    if (strlen(text) == sizeof(text) - 1) processes.all = false;
    for (char* at = text; *at;) {
        char* end = at;
        const long child = strtol(at, &end, 10);
        if (end == at) break;
        processes.add(static_cast<int>(child));
        at = end;
        while (*at == ' ') ++at;
    }
}

}  // namespace

bool is_zombie(int pid) {
    char path[48], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!read_start(path, text, sizeof(text))) return true;
    const char* name_end = strrchr(text, ')');
    return name_end && (strncmp(name_end, ") Z", 3) == 0 || strncmp(name_end, ") X", 3) == 0);
}

bool waits_for_streams(int pid) {
    Numbers processes;
    processes.add(pid);
    bool on_stream = false;
    for (size_t i = 0; i < processes.count; ++i) {
        const int process = processes.values[i];
        Numbers threads;
        list_threads(process, threads);
        if (!threads.all) return false;
        for (size_t t = 0; t < threads.count; ++t) {
            char path[64], function[64];
            snprintf(path, sizeof(path), "/proc/%d/task/%d/wchan", process, threads.values[t]);
            const Sleep sleep =
                read_start(path, function, sizeof(function)) ? classify(function) : Sleep::kNone;
            if (sleep == Sleep::kNone && !is_zombie(process)) return false;
            on_stream = on_stream || sleep == Sleep::kOnStream;
            list_children(process, threads.values[t], processes);
        }
        if (!processes.all) return false;
    }
    return on_stream;
}

OpaqueEffort effort_of(int pid) {
    OpaqueEffort effort{};
    Numbers processes;
    processes.add(pid);
    for (size_t i = 0; i < processes.count; ++i) {
        const int process = processes.values[i];
        Numbers threads;
        list_threads(process, threads);
        for (size_t t = 0; t < threads.count; ++t) {
            char path[64], text[512];
            snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", process, threads.values[t]);
            if (!read_start(path, text, sizeof(text))) continue;
            char* behind = text;
            effort.run_ns += strtoull(text, &behind, 10);
            effort.wait_ns += strtoull(behind, nullptr, 10);
            ++effort.threads;
            snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", process, threads.values[t]);
            const char* name_end = read_start(path, text, sizeof(text)) ? strrchr(text, ')') : nullptr;
            effort.on_disk += name_end && strncmp(name_end, ") D", 3) == 0;
            list_children(process, threads.values[t], processes);
        }
    }
    return effort;
}

uint64_t own_time_ns(const OpaqueEffort& before, const OpaqueEffort& now, uint64_t passed_ns) {
    if (now.threads == 0) return passed_ns;
    const auto grown = [](uint64_t then, uint64_t later) { return later > then ? later - then : 0; };
    const uint64_t computed_ns = std::min(passed_ns, grown(before.run_ns, now.run_ns));
    // Where some are kept from going on and others are not, it goes on at half the pace: so of all, the mean.
    const uint64_t kept_ns = now.on_disk ? passed_ns : grown(before.wait_ns, now.wait_ns) / now.threads;
    return std::max(computed_ns, passed_ns - std::min(passed_ns, kept_ns));
}

bool dies_of(int pid, int signal) {
    switch (signal) {
        case 0:
        case SIGCHLD:
        case SIGCONT:
        case SIGURG:
        case SIGWINCH:
        case SIGSTOP:
        case SIGTSTP:
        case SIGTTIN:
        case SIGTTOU:
            return false;
        case SIGKILL:
            return true;
        default:
            break;
    }
    char path[48], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    if (!read_start(path, text, sizeof(text))) return false;
    for (const char* name : {"\nSigBlk:", "\nSigIgn:", "\nSigCgt:"}) {
        const char* at = strstr(text, name);
        if (!at || (strtoull(at + strlen(name), nullptr, 16) >> (signal - 1) & 1)) return false;
    }
    return true;
}

bool has_ended(int pid) {
    const long pidfd = raw(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) return pidfd == -ESRCH;
    pollfd dead{static_cast<int>(pidfd), POLLIN, 0};
    const bool ended = raw(SYS_poll, &dead, 1, 0) > 0;
    raw(SYS_close, pidfd);
    return ended;
}

}  // namespace crane::interpose
