// The signals of terminals: a hang-up, control characters, a change of size, the end of a session's leader.
// The kernel sends them by itself; here they come in the schedule, and end nobody else.
#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <utmp.h>

#include "serve.h"

static volatile sig_atomic_t heard;

static void hear(int signal) {
    heard = signal;
}

/// Signals wait from here on until they are awaited: none is lost between a look and a sleep.
static sigset_t hold_signals(void) {
    sigset_t all, before;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_BLOCK, &all, &before) == 0);
    return before;
}
static void await_signal(sigset_t before) {
    while (!heard) sigsuspend(&before);
}

/// A child on a terminal, which says when it is ready; whatever it hears but by default is its status.
static pid_t on_terminal(int* terminal, int handled) {
    char byte;
    const pid_t child = forkpty(terminal, NULL, NULL, NULL);
    CHECK(child >= 0);
    if (child > 0) {
        CHECK(read(*terminal, &byte, 1) == 1);
        return child;
    }
    const sigset_t before = hold_signals();
    if (handled) signal(handled, hear);
    if (write(1, "x", 1) != 1) _exit(9);
    await_signal(before);
    _exit(heard);
}

static void finish(const char* name, pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        say("%s: ended by %s", name, sigabbrev_np(WTERMSIG(status)));
    else
        say("%s: status %d", name, WEXITSTATUS(status));
}

static void hung_up(int handled) {
    int terminal;
    const pid_t child = on_terminal(&terminal, handled);
    close(terminal);
    finish("hung up", child);
}

static void typed(const char* text, int handled) {
    int terminal;
    const pid_t child = on_terminal(&terminal, handled);
    CHECK(write(terminal, text, strlen(text)) == (ssize_t)strlen(text));
    finish("typed", child);
    close(terminal);
}

/// A terminal that sends none takes them for characters.
static void typed_without_meaning(void) {
    int terminal, other;
    struct termios settings;
    char bytes[8] = "";
    CHECK(openpty(&terminal, &other, NULL, NULL, NULL) == 0);
    CHECK(tcgetattr(other, &settings) == 0);
    cfmakeraw(&settings);
    CHECK(tcsetattr(other, TCSANOW, &settings) == 0);
    CHECK(write(terminal, "\003", 1) == 1);
    CHECK(read(other, bytes, sizeof bytes) == 1);
    say("read %d", bytes[0]);
    close(terminal), close(other);
}

static void stopped(void) {
    int terminal, status = 0;
    // Its group is not orphaned while its parent is of the same session: so not on_terminal()'s.
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        int other;
        if (openpty(&terminal, &other, NULL, NULL, NULL) != 0 || setsid() < 0) _exit(9);
        if (ioctl(other, TIOCSCTTY, 0) != 0) _exit(8);
        const pid_t front = fork();
        if (front == 0) {
            setpgid(0, 0);
            signal(SIGTTOU, SIG_IGN);
            if (tcsetpgrp(other, getpid()) != 0 || write(other, "x", 1) != 1) _exit(7);
            for (;;) pause();
        }
        if (read(terminal, &byte, 1) != 1 || write(terminal, "\032", 1) != 1) _exit(6);
        if (waitpid(front, &status, WUNTRACED) != front || !WIFSTOPPED(status)) _exit(5);
        kill(front, SIGCONT);
        if (write(terminal, "\034", 1) != 1 || waitpid(front, &status, 0) != front) _exit(4);
        _exit(WIFSIGNALED(status) ? WTERMSIG(status) : 100 + WEXITSTATUS(status));
    }
    finish("stopped, then ended", child);
}

static void resized(void) {
    int terminal;
    const struct winsize size = {24, 100, 0, 0};
    const pid_t child = on_terminal(&terminal, SIGWINCH);
    CHECK(ioctl(terminal, TIOCSWINSZ, &size) == 0);
    finish("resized", child);
    close(terminal);
}

/// Who is in front of the terminal is told of the leader's end, however it comes; `how`: by itself, by a
/// signal, or hung up.
static void leader_ends(int how) {
    int terminal, told[2];
    char byte;
    CHECK(pipe(told) == 0);
    const pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    if (child == 0) {
        const pid_t front = fork();
        if (front == 0) {
            setpgid(0, 0);
            signal(SIGTTOU, SIG_IGN);
            signal(SIGHUP, hear);
            const sigset_t before = hold_signals();
            if (tcsetpgrp(0, getpid()) != 0 || write(told[1], "r", 1) != 1) _exit(9);
            await_signal(before);
            _exit(write(told[1], heard == SIGHUP ? "h" : "?", 1) != 1);
        }
        pid_t never = front;
        if (how == 0) {
            char go;
            (void)!read(0, &go, 1);
            _exit(0);
        }
        for (;;) never = waitpid(never, NULL, WNOHANG), pause();
    }
    close(told[1]);
    CHECK(read(told[0], &byte, 1) == 1);
    if (how == 0) CHECK(write(terminal, "\n", 1) == 1);
    if (how == 1) CHECK(kill(child, SIGKILL) == 0);
    if (how == 2) close(terminal);
    finish("leader", child);
    CHECK(read(told[0], &byte, 1) == 1);
    say("in front: %c", byte);
    close(told[0]);
    if (how != 2) close(terminal);
}

/// It goes on in the background, where reading fails or stops it.
static void terminal_of_one_that_was_killed(void) {
    int terminal;
    const pid_t child = fork();
    if (child == 0) {
        const pid_t shell = on_terminal(&terminal, 0);
        (void)shell;
        raise(SIGKILL);  // with the only descriptor of the other end
    }
    finish("who held the other end", child);
    usleep(50000);
}

static void scenario(void) {
    hung_up(0);
    hung_up(SIGHUP);
    typed("\003", 0);
    typed("abc\003", SIGINT);
    typed("\034", 0);
    typed("\026\003\003", SIGINT);
    typed_without_meaning();
    stopped();
    resized();
    for (int how = 0; how < 3; how++) leader_ends(how);
    terminal_of_one_that_was_killed();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
