// A server in an attacker's hands: it tries what root could do to its host, and says what worked. On a host it
// would succeed with most; in a container of Crane's it must find nothing. It harms nothing where it succeeds.
#include <fcntl.h>
#include <sched.h>
#include <sys/io.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "serve.h"

static void found(int worked, const char* what, const char* where) {
    if (worked) say("FOUND %s %s", what, where);
}

// Opens for writing, and writes nothing.
static void write_to(const char* path) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    found(fd >= 0, "open for writing", path);
    if (fd >= 0) close(fd);
}

static void read_from(const char* path) {
    char byte;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    found(fd >= 0 && read(fd, &byte, 1) == 1, "read", path);
    if (fd >= 0) close(fd);
}

static void devices(void) {
    const unsigned numbers[][2] = {{1, 1}, {7, 0}, {8, 0}, {253, 0}, {254, 0}, {259, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char path[64];
        snprintf(path, sizeof path, "/var/tmp/escape-%zu", i);
        const mode_t kind = i == 0 ? S_IFCHR : S_IFBLK;
        if (mknod(path, kind | 0600, makedev(numbers[i][0], numbers[i][1])) == 0) {
            say("FOUND made a device %u:%u", numbers[i][0], numbers[i][1]);
            write_to(path);
            unlink(path);
        }
    }
    for (const char* const* path = (const char* const[]){"/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/port", "/dev/loop0",
                                                        "/dev/loop-control", "/dev/fuse", "/dev/kvm", "/dev/vda",
                                                        "/dev/sda", "/dev/mapper/control", "/dev/net/tun", NULL};
         *path; path++)
        write_to(*path);
}

static void kernel_files(void) {
    for (const char* const* path =
             (const char* const[]){"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
                                   "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/net/core/somaxconn",
                                   "/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper",
                                   "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", NULL};
         *path; path++) {
        if (access(*path, F_OK) == 0) write_to(*path);
    }
    for (const char* const* path = (const char* const[]){"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/timer_list",
                                                        "/proc/kmsg", "/proc/vmallocinfo", "/proc/slabinfo", NULL};
         *path; path++)
        read_from(*path);
}

static void secrets(const char* state) {
    for (const char* const* path = (const char* const[]){"/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/root/.ssh",
                                                        "/etc/sudoers", "/run/crane-init/exit-status", NULL};
         *path; path++)
        read_from(*path);
    found(*state != '\0' && access(state, F_OK) == 0 && rmdir(state) != 0 && errno == ENOTEMPTY, "the state directory",
          state);
    found(access("/proc/1/root/etc", F_OK) == 0 && open("/proc/1/mem", O_RDWR) >= 0, "the memory of", "pid 1");
    found(ptrace(PTRACE_SEIZE, 1, 0, 0) == 0, "a hold on", "pid 1");
    write_to("/run/crane/libcrane.so");
}

static void calls(void) {
    char text[64];
    found(mount("none", "/mnt", "tmpfs", 0, NULL) == 0, "the call", "mount");
    found(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL) == 0, "the call", "mount (remount)");
    found(umount2("/proc/kcore", MNT_DETACH) == 0, "the call", "umount2");
    found(syscall(SYS_open_tree, AT_FDCWD, "/", 1) >= 0, "the call", "open_tree");
    found(syscall(SYS_fsopen, "tmpfs", 0) >= 0, "the call", "fsopen");
    found(syscall(SYS_init_module, NULL, 0, "") == 0 || (errno != EPERM && errno != ENOSYS), "the call", "init_module");
    found(syscall(SYS_kexec_load, 0, 0, NULL, 0) == 0 || (errno != EPERM && errno != ENOSYS), "the call", "kexec_load");
    found(syscall(SYS_bpf, 0, NULL, 0) >= 0 || (errno != EPERM && errno != ENOSYS), "the call", "bpf");
    found(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0) >= 0 || (errno != EPERM && errno != ENOSYS), "the call",
          "perf_event_open");
    found(syscall(SYS_keyctl, 0, -4, 0) >= 0 || (errno != EPERM && errno != ENOSYS), "the call", "keyctl");
    found(syscall(SYS_open_by_handle_at, -1, NULL, 0) >= 0 || (errno != EPERM && errno != ENOSYS), "the call", "open_by_handle_at");
    found(syscall(SYS_userfaultfd, 0) >= 0, "the call", "userfaultfd");
    found(syscall(SYS_io_uring_setup, 1, NULL) >= 0 || errno != ENOSYS, "the call", "io_uring_setup");
    found(syscall(SYS_settimeofday, NULL, NULL) == 0, "the call", "settimeofday");
    found(syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL) == 0, "the call", "reboot");
    found(klogctl(3, text, sizeof text) >= 0, "the call", "syslog");
    found(iopl(3) == 0, "the call", "iopl");
    found(sethostname("escape", 6) == 0, "the call", "sethostname");
    found(syscall(SYS_socket, 40 /* AF_VSOCK */, SOCK_STREAM, 0) >= 0, "a socket to", "the machine's own host");
    found(syscall(SYS_socket, AF_INET, SOCK_RAW, 1) >= 0, "a raw", "socket");
    const int space = open("/proc/1/ns/mnt", O_RDONLY);
    found(space >= 0 && setns(space, 0) == 0, "the call", "setns");
    // In a child's place: it would change what this process is.
    found(unshare(CLONE_NEWUSER) == 0, "the call", "unshare (user)");
    found(unshare(CLONE_NEWNS) == 0, "the call", "unshare (mount)");
    found(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1, "that exec", "gains privileges");
}

// The memory shared with craned: it is there, and what is tried on it is this server's own harm.
static void segment(void) {
    const char* begin = getenv("CRANE_RESERVED_FD");
    if (!begin) begin = getenv("CRANE_DOMAIN_FD");
    CHECK(begin);
    const int fd = atoi(begin) + 1;
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    found(fcntl(fd, F_GETFD) == -1 && access(name, F_OK) != 0, "the segment", "is looked for in vain");
    found(ftruncate(fd, 0) == 0, "the segment", "shrinks");
    found(ftruncate(fd, 1 << 30) == 0, "the segment", "grows");
    found(truncate(name, 0) == 0, "the segment", "shrinks by name");
}

static void scenario(void) {
    devices();
    kernel_files();
    secrets(getenv("ESCAPE_STATE") ? getenv("ESCAPE_STATE") : "");
    calls();
    segment();
    say("uid %d, done", (int)getuid());
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
