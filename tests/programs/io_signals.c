// Signals that the kernel sends by itself: none has a place in the schedule, and none ends the server.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "serve.h"

static void handler(int signal) { (void)signal; }

static void handle(int signal) {
    struct sigaction action = {.sa_handler = handler};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

// As nginx sets up the channel between its processes.
static void by_ioctl(void) {
    int pair[2], on = 1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    say("FIOASYNC %s", outcome(ioctl(pair[0], FIOASYNC, &on)));
    say("F_SETOWN %s", outcome(fcntl(pair[0], F_SETOWN, getpid())));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(write(pair[1], "x", 1) == 1 ? 0 : 1);
    int status = 0;
    while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
    say("child %d", status);
    char byte;
    say("read %s", outcome(read(pair[0], &byte, 1)));
    close(pair[0]);
    close(pair[1]);
}

static void by_fcntl(void) {
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    say("F_SETSIG %s", outcome(fcntl(pipe_fds[0], F_SETSIG, SIGRTMIN + 3)));
    say("F_SETOWN %s", outcome(fcntl(pipe_fds[0], F_SETOWN, getpid())));
    say("F_SETFL %s", outcome(fcntl(pipe_fds[0], F_SETFL, O_ASYNC | O_NONBLOCK)));
    CHECK(write(pipe_fds[1], "x", 1) == 1);
    char byte;
    say("read %s", outcome(read(pipe_fds[0], &byte, 1)));
    say("empty %s", outcome(read(pipe_fds[0], &byte, 1)));
    say("bad %s", outcome(fcntl(-1, F_SETOWN, getpid())));
    say("bad lease %s", outcome(fcntl(-1, F_SETLEASE, F_RDLCK)));
    say("bad notify %s", outcome(fcntl(-1, F_NOTIFY, DN_CREATE)));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void scenario(void) {
    handle(SIGIO);
    handle(SIGRTMIN + 3);
    by_ioctl();
    by_fcntl();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
