#include "interpose/core/passed.hpp"

#include <charconv>
#include <cstring>
#include <iterator>

#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

/// Locks lie behind the end of the domain's memory, one byte an entry.
constexpr off_t kLockBase = off_t{1} << 40;
constexpr size_t kControlBytes = 8192;

struct flock lock_of(uint32_t index) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = kLockBase + index;
    lock.l_len = 1;
    return lock;
}

void drop(uint32_t index) {
    PassedMessage& passed = domain().passed[index];
    for (uint32_t i = 0; i < passed.count; ++i) drop_entry(passed.entries[i]);
    passed.used = passed.count = 0;
    --domain().passed_under_way;
}

uint32_t free_entry() {
    for (uint32_t i = 0; i < kMaxPassed; ++i) {
        if (!domain().passed[i].used) return i;
    }
    return kNone;
}

bool is_rights(const cmsghdr* part) {
    return part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS && part->cmsg_len >= CMSG_LEN(0);
}
uint32_t count_of(const cmsghdr* part) {
    return static_cast<uint32_t>((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
}
int descriptor_at(const cmsghdr* part, uint32_t i) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
    return fd;
}

/// The last part that carries descriptors, or null.
cmsghdr* last_rights(msghdr* message) {
    cmsghdr* found = nullptr;
    for (cmsghdr* c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (is_rights(c) && count_of(c)) found = c;
    }
    return found;
}

/// A descriptor that stands for entry `index` as long as it is open. Negative: the error.
long make_ticket(uint32_t index) {
    constexpr char kFolder[] = "/proc/self/fd/";
    char path[sizeof(kFolder) + 16];
    memcpy(path, kFolder, sizeof(kFolder));
    *std::to_chars(path + sizeof(kFolder) - 1, std::end(path) - 1, runtime.domain_fd).ptr = 0;
    long fd = raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd == -ENOENT)  // the root is another one since
        fd = raw(SYS_openat, reserved_fd(kProcPlace), path + sizeof("/proc/") - 1, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return fd;
    struct flock lock = lock_of(index);
    raw(SYS_lseek, fd, index, SEEK_SET);
    const long rc = raw(SYS_fcntl, fd, F_OFD_SETLK, &lock);
    if (rc < 0) raw(SYS_close, fd);
    return rc < 0 ? rc : fd;
}

/// The entry that a ticket stands for, kNone if it is none.
uint32_t entry_of_ticket(int fd) {
    struct stat info, own;
    if (raw(SYS_fstat, fd, &info) != 0 || raw(SYS_fstat, runtime.domain_fd, &own) != 0) return kNone;
    if (info.st_ino != own.st_ino || info.st_dev != own.st_dev) return kNone;
    const long index = raw(SYS_lseek, fd, 0, SEEK_CUR);
    return index >= 0 && index < static_cast<long>(kMaxPassed) ? static_cast<uint32_t>(index) : kNone;
}

void remember(const msghdr* message, PassedMessage& passed) {
    auto* m = const_cast<msghdr*>(message);
    for (cmsghdr* c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (!is_rights(c)) continue;
        for (uint32_t i = 0; i < count_of(c) && passed.count < kMaxPassedAtOnce; ++i) {
            const FdEntry* entry = fd_entry(descriptor_at(c, i));
            FdEntry& kept = passed.entries[passed.count++];
            kept = entry ? *entry : FdEntry{};
            add_reference(kept);
        }
    }
}

/// Copies the control data and puts `ticket` behind its last descriptor. Returns the new length.
size_t with_ticket(const msghdr& given, const cmsghdr* last, int ticket, char* out) {
    const auto* from = static_cast<const char*>(given.msg_control);
    const size_t end = static_cast<size_t>(reinterpret_cast<const char*>(last) - from) + last->cmsg_len;
    const size_t place = static_cast<size_t>(reinterpret_cast<const char*>(last) - from);
    std::memcpy(out, from, end);
    std::memcpy(out + end, &ticket, sizeof(ticket));
    auto* grown = reinterpret_cast<cmsghdr*>(out + place);
    grown->cmsg_len += sizeof(ticket);
    size_t at = place + CMSG_ALIGN(grown->cmsg_len);
    // What stands behind the last descriptors (credentials).
    const size_t rest = place + CMSG_ALIGN(last->cmsg_len);
    if (rest < given.msg_controllen) {
        std::memcpy(out + at, from + rest, given.msg_controllen - rest);
        at += given.msg_controllen - rest;
    }
    return at;
}

/// Where control data is put for the program, with the kernel's rules for what does not fit.
class ControlWriter {
  public:
    explicit ControlWriter(const msghdr& room)
        : at_(static_cast<char*>(room.msg_control)), start_(at_), left_(room.msg_controllen) {}

    size_t fits() const { return left_ >= sizeof(cmsghdr) ? left_ - CMSG_LEN(0) : 0; }
    void put(int level, int type, const void* data, size_t bytes) {
        if (left_ < sizeof(cmsghdr)) {
            cut_ = true;
            return;
        }
        if (bytes > fits()) {
            cut_ = true;
            bytes = fits();
        }
        const cmsghdr head{CMSG_LEN(bytes), level, type};
        std::memmove(at_ + sizeof(head), data, bytes);
        std::memcpy(at_, &head, sizeof(head));
        const size_t step = CMSG_SPACE(bytes) < left_ ? CMSG_SPACE(bytes) : left_;
        at_ += step;
        left_ -= step;
    }
    void cut() { cut_ = true; }
    void finish(msghdr& message) const {
        message.msg_controllen = static_cast<size_t>(at_ - start_);
        if (cut_) message.msg_flags |= MSG_CTRUNC;
    }

  private:
    char* at_;
    char* start_;
    size_t left_;
    bool cut_ = false;
};

void put_descriptors(ControlWriter& writer, const cmsghdr* part, bool truncated) {
    int fds[kMaxPassedAtOnce + 1];
    uint32_t count = count_of(part) < kMaxPassedAtOnce + 1 ? count_of(part) : kMaxPassedAtOnce + 1;
    for (uint32_t i = 0; i < count; ++i) fds[i] = descriptor_at(part, i);
    const uint32_t ticket = entry_of_ticket(fds[count - 1]);
    // The ticket did not fit: what these mean is not known, and they are as good as cut off.
    uint32_t kept = ticket == kNone && truncated ? 0 : static_cast<uint32_t>(writer.fits() / sizeof(int));
    if (ticket != kNone) raw(SYS_close, fds[--count]);
    if (kept < count) {
        writer.cut();
    } else {
        kept = count;
    }
    for (uint32_t i = kept; i < count; ++i) raw(SYS_close, fds[i]);
    for (uint32_t i = 0; i < kept; ++i) {
        // Without a ticket: from a program outside the schedule.
        const FdEntry* meaning = ticket == kNone ? nullptr : &domain().passed[ticket].entries[i];
        adopt_entry(fds[i], meaning ? *meaning : FdEntry{});
    }
    if (kept) writer.put(SOL_SOCKET, SCM_RIGHTS, fds, kept * sizeof(int));
}

}  // namespace

void before_root_changes() {
    const long fd = raw(SYS_openat, AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return;  // within such a root already, or nowhere
    raw(SYS_dup3, fd, reserved_fd(kProcPlace), O_CLOEXEC);
    raw(SYS_close, fd);
}

void settle_passed() {
    for (uint32_t i = 0; i < kMaxPassed; ++i) {
        if (!domain().passed[i].used) continue;
        struct flock lock = lock_of(i);
        if (raw(SYS_fcntl, runtime.domain_fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK) drop(i);
    }
}

long send_message(int fd, const msghdr* message, int flags) {
    msghdr given;
    if (!fetch(given, message)) return -EFAULT;
    if (!given.msg_control || given.msg_controllen < sizeof(cmsghdr))
        return raw(SYS_sendmsg, fd, message, flags);
    if (!readable(given.msg_control, given.msg_controllen)) return -EFAULT;
    const cmsghdr* last = last_rights(&given);
    if (!last) return raw(SYS_sendmsg, fd, message, flags);
    char control[kControlBytes];
    if (given.msg_controllen + CMSG_ALIGN(sizeof(int)) > sizeof(control)) return -ENOBUFS;
    uint32_t index = free_entry();
    if (index == kNone) {
        settle_passed();
        index = free_entry();
    }
    if (index == kNone) return -ETOOMANYREFS;
    const long ticket = make_ticket(index);
    if (ticket < 0) {
        refuse_call("descriptors passed between processes (SCM_RIGHTS) without /proc or with none to spare");
        return ticket;
    }
    PassedMessage& passed = domain().passed[index];
    passed.used = 1;
    passed.count = 0;
    ++domain().passed_under_way;
    remember(&given, passed);
    const size_t bytes = with_ticket(given, last, static_cast<int>(ticket), control);
    given.msg_control = control;
    given.msg_controllen = bytes;
    const long rc = raw(SYS_sendmsg, fd, &given, flags);
    raw(SYS_close, ticket);
    if (rc < 0) drop(index);
    return rc;
}

long receive_message(int fd, msghdr* message, int flags) {
    if (!writable(message, sizeof(*message))) return -EFAULT;
    const msghdr room = *message;
    const bool control = room.msg_control && room.msg_controllen >= sizeof(cmsghdr);
    if (control && !writable(room.msg_control, room.msg_controllen)) return -EFAULT;
    char larger[kControlBytes];
    msghdr got = room;
    if (control && room.msg_controllen < sizeof(larger)) {
        got.msg_control = larger;
        got.msg_controllen = sizeof(larger);
    }
    const long rc = raw(SYS_recvmsg, fd, &got, flags);
    if (rc < 0) return rc;
    if (control) {
        ControlWriter writer(room);
        const bool truncated = got.msg_flags & MSG_CTRUNC;
        cmsghdr* next = nullptr;
        for (cmsghdr* c = CMSG_FIRSTHDR(&got); c; c = next) {
            next = CMSG_NXTHDR(&got, c);  // before the program's own buffer is written over
            if (is_rights(c) && count_of(c)) {
                put_descriptors(writer, c, truncated);
            } else {
                writer.put(c->cmsg_level, c->cmsg_type, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
            }
        }
        got.msg_control = room.msg_control;
        writer.finish(got);
    }
    *message = got;
    return rc;
}

}  // namespace crane::interpose
