#include "interpose/core/terminals.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interpose/core/fds.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

/// The kernel's termios (TCGETS), whose header does not go together with libc's.
struct Settings {
    uint32_t input, output, control, local;
    uint8_t line, characters[19];
};
constexpr uint32_t kSends = 1, kCanonical = 2, kExtended = 0100000, kByProgram = 0200000;  // ISIG, ICANON, …
constexpr int kInterrupt = 0, kQuit = 1, kSuspend = 10, kLiteralNext = 15;                 // VINTR, …

/// The number of the terminal of its session; 0: none, -1: that cannot be told now. Also behind a chroot.
long terminal_of(int pid) {
    char path[32], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    long fd = raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        fd = raw(SYS_openat, reserved_fd(kProcPlace), path + sizeof("/proc/") - 1, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    const long got = raw(SYS_read, fd, text, sizeof(text) - 1);
    raw(SYS_close, fd);
    text[got > 0 ? got : 0] = 0;
    const char* at = strrchr(text, ')');  // state, parent, group, session, terminal
    for (int field = 0; at && field < 5; ++field) at = strchr(at + 1, ' ');
    return at ? strtol(at, nullptr, 10) : -1;
}

/// Processes that are not scheduled have had the kernel's signal.
void signal_group(long group, int signal) {
    bool self_too = false;
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        const Process& p = domain().processes[i];
        if (p.state != ProcessState::kLive || raw(SYS_getpgid, p.pid) != group) continue;
        if (i == runtime.process_index)
            self_too = true;
        else
            post_signal(i, signal_from_kernel(signal), dmt::kNoSlot);
    }
    if (self_too) post_signal(runtime.process_index, signal_from_kernel(signal), dmt::kNoSlot);
}

/// In front of the terminal, or of the one whose other end this is. Negative: nobody.
long group_in_front(int fd) {
    int32_t group = 0;
    const long rc = raw(SYS_ioctl, fd, TIOCGPGRP, &group);
    return rc == 0 && group > 0 ? group : -1;
}

bool is_other_end(int fd) {
    unsigned number = 0;
    return raw(SYS_ioctl, fd, TIOCGPTN, &number) == 0;
}

/// What some characters mean, as a set of signals.
class Typed {
  public:
    explicit Typed(const Settings& settings) : settings_(settings) {}

    void take(uint8_t character) {
        if (literal_ || character == 0) {
            literal_ = false;
            return;
        }
        constexpr uint32_t kQuotes = kCanonical | kExtended;
        if (character == settings_.characters[kInterrupt]) signals_ |= signal_bit(SIGINT);
        if (character == settings_.characters[kQuit]) signals_ |= signal_bit(SIGQUIT);
        if (character == settings_.characters[kSuspend]) signals_ |= signal_bit(SIGTSTP);
        literal_ = character == settings_.characters[kLiteralNext] && (settings_.local & kQuotes) == kQuotes;
    }
    uint64_t signals() const { return signals_; }

  private:
    const Settings& settings_;
    uint64_t signals_ = 0;
    bool literal_ = false;
};

/// Of what was written, as far as it can still be read.
uint64_t signals_typed(const Settings& settings, const iovec* vector, size_t count, size_t written) {
    Typed typed(settings);
    for (size_t i = 0; i < count && written > 0; ++i) {
        const auto* from = static_cast<const char*>(vector[i].iov_base);
        size_t left = vector[i].iov_len < written ? vector[i].iov_len : written;
        written -= left;
        while (left > 0) {
            uint8_t piece[256];
            const size_t bytes = left < sizeof(piece) ? left : sizeof(piece);
            if (crane_copy(piece, from, bytes) != 0) return typed.signals();
            for (size_t at = 0; at < bytes; ++at) typed.take(piece[at]);
            from += bytes;
            left -= bytes;
        }
    }
    return typed.signals();
}

/// The process that leads the caller's session.
Process* leader() {
    const long session = raw(SYS_getsid, 0);
    for (uint32_t i = 0; i < domain().processes_high; ++i) {
        Process& p = domain().processes[i];
        if (p.state == ProcessState::kLive && p.pid == session) return &p;
    }
    return nullptr;
}

long change_size(int fd, const void* argument) {
    winsize before{}, wanted{};
    if (!fetch(wanted, argument)) return -EFAULT;
    Operation turn(Op::kOther, descriptor_key(fd));
    raw(SYS_ioctl, fd, TIOCGWINSZ, &before);
    const long rc = raw(SYS_ioctl, fd, TIOCSWINSZ, &wanted);
    if (rc == 0 && std::memcmp(&before, &wanted, sizeof(before)) != 0)
        signal_group(group_in_front(fd), SIGWINCH);
    return rc;
}

/// The session has none from then on; who leads it takes it from all.
long leave_terminal(int fd) {
    Operation turn(Op::kOther, descriptor_key(fd));
    const long rc = raw(SYS_ioctl, fd, TIOCNOTTY, 0);
    Process& own = *runtime.process;
    if (rc != 0 || own.front_group == 0) return rc;
    const int group = own.front_group;
    own.has_terminal = 0;
    own.front_group = 0;
    signal_group(group, SIGHUP);
    signal_group(group, SIGCONT);
    return rc;
}

}  // namespace

void note_typed(int fd, const iovec* vector, size_t count, size_t written) {
    Settings settings{};
    if (!is_other_end(fd) || raw(SYS_ioctl, fd, TCGETS, &settings) != 0) return;
    if ((settings.local & (kSends | kByProgram)) != kSends) return;
    const uint64_t signals = signals_typed(settings, vector, count, written);
    if (signals == 0) return;
    Operation turn(Op::kSignal, descriptor_key(fd));
    for (const int signal : {SIGINT, SIGQUIT, SIGTSTP})
        if (signals & signal_bit(signal)) signal_group(group_in_front(fd), signal);
}

void note_terminal() {
    Process& own = *runtime.process;
    if (own.has_terminal || raw(SYS_getsid, 0) != own.pid || terminal_of(own.pid) <= 0) return;
    own.has_terminal = 1;
    own.front_group = static_cast<int32_t>(raw(SYS_getpgid, 0));
}

long control_terminal(int fd, unsigned long request, void* argument) {
    if (request == TIOCSWINSZ) return change_size(fd, argument);
    if (request == TIOCNOTTY) return leave_terminal(fd);
    const long rc = raw(SYS_ioctl, fd, request, argument);
    if (rc != 0) return rc;
    if (request == TIOCSCTTY) note_terminal();
    int group = 0;
    if (request == TIOCSPGRP && fetch(group, argument)) {
        Process* const leads = leader();
        if (leads && leads->has_terminal) leads->front_group = group;
    }
    return rc;
}

void settle_hangups() {
    DomainState& d = domain();
    d.terminals_closed = 0;
    for (uint32_t i = 0; i < d.processes_high; ++i) {
        Process& p = d.processes[i];
        if (p.state != ProcessState::kLive || !p.has_terminal || terminal_of(p.pid) != 0) continue;
        p.has_terminal = 0;
        post_signal(i, signal_from_kernel(SIGHUP), dmt::kNoSlot);
        post_signal(i, signal_from_kernel(SIGCONT), dmt::kNoSlot);
    }
}

void hang_up_session_of(uint32_t process) {
    Process& p = domain().processes[process];
    const int group = p.front_group;
    if (group == 0) return;
    p.front_group = 0;
    p.has_terminal = 0;
    signal_group(group, SIGHUP);
    signal_group(group, SIGCONT);
}

}  // namespace crane::interpose
