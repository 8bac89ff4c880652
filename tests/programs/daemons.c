// Servers that put themselves into the background, each in its way: PORT WAY.
//   listens   listens, then leaves its first process (nginx)
//   daemon    the C library's daemon(), then listens
//   twice     a process of a process, so that it leads no session
//   waited    the first process waits until the daemon says that it listens
//   shell     the first process begins no session: a shell's `server &`
// A line: "end CODE" ends it, "die SIGNAL" kills it, "orphan" leaves a process without a parent that dies, else
// it says what it is.
#include <fcntl.h>
#include <sys/wait.h>

#include "serve.h"

static int served;

static void leave_behind(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (fork() == 0) {
            usleep(1000);
            _exit(3);
        }
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
    usleep(20000);
    order("orphan of %d", child);
}

static void obey(const char* line) {
    served++;
    if (strncmp(line, "end ", 4) == 0) exit(atoi(line + 4));
    if (strncmp(line, "die ", 4) == 0) raise(atoi(line + 4));
    if (strcmp(line, "orphan") == 0) leave_behind();
    say("served %d; parent %d; signal to the first process: %s", served, getppid(), outcome(kill(2, 0)));
    order("session %d process %d", getsid(0), getpid());
}

static void serve_daemon(int listener) {
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0 && errno == EINTR) continue;
        CHECK(client >= 0);
        char line[256];
        if (read_line(client, line, sizeof line) >= 0) {
            char* text = NULL;
            size_t bytes = 0;
            serve_out = open_memstream(&text, &bytes);
            obey(line);
            fclose(serve_out);
            write_all(client, text, bytes);
            free(text);
        }
        close(client);
    }
}

static void leave_first_process(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) _exit(0);
}

int main(int argc, char** argv) {
    CHECK(argc == 3);
    const char* way = argv[2];
    int port = atoi(argv[1]), listener = -1, told[2] = {-1, -1};
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(way, "listens") == 0) {
        listener = listen_on(port);
        leave_first_process();
        CHECK(setsid() == getpid());
    } else if (strcmp(way, "daemon") == 0) {
        CHECK(daemon(0, 0) == 0);
    } else if (strcmp(way, "twice") == 0) {
        leave_first_process();
        CHECK(setsid() == getpid());
        leave_first_process();
        CHECK(getsid(0) != getpid());
    } else if (strcmp(way, "waited") == 0) {
        CHECK(pipe(told) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0) {
            char byte;
            close(told[1]);
            CHECK(read(told[0], &byte, 1) == 1);
            exit(0);
        }
        CHECK(setsid() == getpid());
    } else if (strcmp(way, "shell") == 0) {
        if (fork() > 0) exit(0);
    }
    if (listener < 0) listener = listen_on(port);
    if (told[1] >= 0) CHECK(write(told[1], "x", 1) == 1);
    serve_daemon(listener);
}
