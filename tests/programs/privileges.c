// Children with timers that give up privileges, each thread for itself as the kernel has it, and change their
// user then: by capset(), by prctl(), by number.
#include <linux/capability.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

enum { SOME = 65534 };

static long keep_only(unsigned capabilities, int pid) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct data[2] = {{capabilities, capabilities, 0}, {0, 0, 0}};
    return syscall(SYS_capset, &header, data);
}

static int kept(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    return syscall(SYS_capget, &header, data) ? -1 : (int)data[0].permitted;
}

static int result(int rc) {
    return rc == 0 ? 0 : errno;
}

/// As ProFTPD's sessions.
static int with_some(void) {
    alarm(1000);
    CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(SOME, SOME, SOME) == 0);
    CHECK(keep_only(1 << CAP_SETUID | 1 << CAP_SETGID, getpid()) == 0);
    return result(setresuid(-1, 0, -1)) * 10 + result(setresuid(-1, SOME, -1));
}

static int with_none(void) {
    alarm(1000);
    CHECK(keep_only(0, 0) == 0);
    return result(setgid(SOME)) * 10 + result(setuid(0));
}

static int by_number(void) {
    alarm(1000);
    CHECK(syscall(SYS_setresgid, SOME, SOME, SOME) == 0 && syscall(SYS_setresuid, SOME, SOME, SOME) == 0);
    return result(setgid(0)) * 10 + result(setuid(0));
}

/// Armed before, and no longer of any use.
static int with_a_fixup_less(void) {
    alarm(1000);
    alarm(0);
    CHECK(prctl(PR_SET_SECUREBITS, 1 << 2) == 0);  // SECBIT_NO_SETUID_FIXUP
    CHECK(prctl(PR_CAPBSET_DROP, CAP_CHOWN) == 0);
    CHECK(setresuid(SOME, SOME, SOME) == 0);
    return result(setuid(0)) * 10 + (kept() != 0);
}

static void* worker(void* none) {
    CHECK(keep_only(0, 0) == 0);
    return none;
}

/// The worker's affair alone.
static int beside_a_worker(void) {
    pthread_t thread;
    alarm(1000);
    CHECK(pthread_create(&thread, NULL, worker, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return result(setuid(SOME)) * 10 + result(setuid(0));
}

static void scenario(void) {
    int (*const ways[])(void) = {beside_a_worker, with_some, with_none, by_number, with_a_fixup_less};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; ++i) {
        int pipes[2], status, said = -1;
        CHECK(pipe(pipes) == 0);
        const pid_t child = fork();
        if (child == 0) {
            said = ways[i]();
            _exit(write(pipes[1], &said, sizeof said) != sizeof said);
        }
        CHECK(waitpid(child, &status, 0) == child);
        close(pipes[1]);
        if (read(pipes[0], &said, sizeof said) != sizeof said) said = -2;
        close(pipes[0]);
        say("%zu: %d, status %x", i, said, status);
    }
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
