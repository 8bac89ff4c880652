// Tracing is refused, and who asks for it goes on without: a child that would be stopped for its parent dies as any
// other, and none switches off what catches its system calls.
#include "serve.h"

#include <linux/prctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const char* ended(pid_t pid) {
    static char text[64];
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "signal %d", WTERMSIG(status));
    else
        snprintf(text, sizeof text, "exit %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return text;
}

static void traced(int executes) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != -1 || errno != EPERM) _exit(9);
        if (executes) execl("/bin/true", "true", (char*)NULL);
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        _exit(8);
    }
    say("%s: %s", executes ? "executes" : "faults", ended(child));
}

static void tracer(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    say("attach: %s", outcome(ptrace(PTRACE_ATTACH, child, NULL, NULL)));
    say("seize: %s", outcome(syscall(SYS_ptrace, PTRACE_SEIZE, child, NULL, NULL)));
    close(ends[0]);
    close(ends[1]);
    say("traced in vain: %s", ended(child));
}

static void tracing(void) {
    traced(0);
    traced(1);
    tracer();
    say("dispatch: %s", outcome(prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0)));
    say("by number: %s",
        outcome(syscall(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0)));
}

int main(int argc, char** argv) {
    return serve(argc, argv, tracing);
}
