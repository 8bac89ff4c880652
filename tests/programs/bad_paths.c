// Paths at addresses that cannot be read: each call gives its error, and the process lives on. Each is made in a child, so that
// one that ends the process is told as such.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <mqueue.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <utime.h>

#include "in_children.h"


static void opening(const char* bad) {
    TRY(open(bad, O_RDONLY));
    TRY(open(bad, O_WRONLY | O_CREAT, 0600));
    TRY(openat(AT_FDCWD, bad, O_RDONLY));
    TRY(creat(bad, 0600));
    TRY(syscall(SYS_open, bad, O_RDONLY));
    TRY(syscall(SYS_openat, AT_FDCWD, bad, O_RDONLY));
    TRY(fopen(bad, "r") ? 0 : -1);
    TRY(fopen(bad, "w") ? 0 : -1);
    TRY(mkfifo(bad, 0600));
    TRY(mknod(bad, S_IFREG | 0600, 0));
    TRY(access(bad, R_OK));
    TRY(faccessat(AT_FDCWD, bad, R_OK, 0));
    TRY(truncate(bad, 0));
    TRY(chdir(bad));
    TRY(chroot(bad));
    TRY(mkdir(bad, 0700));
    TRY(rmdir(bad));
    TRY(inotify_add_watch(inotify_init(), bad, IN_MODIFY));
}

static void looking(const char* bad) {
    static char buffer[4096];
    struct stat info;
    struct statx more;
    struct statfs system;
    struct statvfs other;
    TRY(stat(bad, &info));
    TRY(lstat(bad, &info));
    TRY(fstatat(AT_FDCWD, bad, &info, 0));
    TRY(statx(AT_FDCWD, bad, 0, STATX_BASIC_STATS, &more));
    TRY(syscall(SYS_stat, bad, &info));
    TRY(syscall(SYS_newfstatat, AT_FDCWD, bad, &info, 0));
    TRY(statfs(bad, &system));
    TRY(statvfs(bad, &other));
    TRY(readlink(bad, buffer, sizeof buffer));
    TRY(readlinkat(AT_FDCWD, bad, buffer, sizeof buffer));
    TRY(syscall(SYS_readlink, bad, buffer, sizeof buffer));
    TRY(getxattr(bad, "user.x", buffer, sizeof buffer));
    TRY(listxattr(bad, buffer, sizeof buffer));
    TRY(setxattr(bad, "user.x", buffer, 1, 0));
}

static void changing(const char* bad) {
    struct timespec times[2] = {{1, 0}, {2, 0}};
    struct timeval other[2] = {{1, 0}, {2, 0}};
    struct utimbuf oldest = {1, 2};
    TRY(chmod(bad, 0600));
    TRY(fchmodat(AT_FDCWD, bad, 0600, 0));
    TRY(chown(bad, 0, 0));
    TRY(lchown(bad, 0, 0));
    TRY(fchownat(AT_FDCWD, bad, 0, 0, 0));
    TRY(link(bad, "/tmp/other"));
    TRY(link("/tmp", bad));
    TRY(symlink(bad, "/tmp/other"));
    TRY(symlink("/tmp", bad));
    TRY(rename(bad, "/tmp/other"));
    TRY(rename("/tmp/none", bad));
    TRY(renameat(AT_FDCWD, bad, AT_FDCWD, "/tmp/other"));
    TRY(unlink(bad));
    TRY(unlinkat(AT_FDCWD, bad, 0));
    TRY(utimes(bad, other));
    TRY(utime(bad, &oldest));
    if (bad) TRY(utimensat(AT_FDCWD, bad, times, 0));
}

static void running(const char* bad) {
    char* words[] = {"true", NULL};
    char* wrong[] = {(char*)bad, NULL};
    char* none[] = {NULL};
    TRY(execve(bad, words, none));
    TRY(execve("/bin/true", (char**)(bad ? bad : (char*)8), none));
    if (bad) TRY(execve("/bin/true", wrong, none));
    if (bad) TRY(execve("/bin/true", words, wrong));
    TRY(execv(bad, words));
    TRY(posix_spawn(&(pid_t){0}, bad, NULL, NULL, words, none));
    TRY(syscall(SYS_execve, bad, words, none));
}

static void scenario(void) {
    const size_t page = 4096;
    char* two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED && mprotect(two + page, page, PROT_NONE) == 0);
    memcpy(two + page - 6, "/proc/", 6);  // which does not end where it can be read
    const char* const bad[] = {NULL, bad_place(1), two + page - 6, bad_place(2)};
    const char* const names[] = {"null", "no access", "without an end", "the kernel's"};
    for (int n = 0; n < 4; n++) {
        say("%s", names[n]);
        opening(bad[n]);
        looking(bad[n]);
        changing(bad[n]);
        running(bad[n]);
    }
    munmap(two, 2 * page);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
