// Processes that are the last to do anything, and end or become a program that cannot be scheduled: the server
// waits for clients, and none comes.
#include <sys/wait.h>

#include "serve.h"

static char tool[512];

// After the client has gone.
static void pause_a_while(void) { usleep(500000); }

static pid_t start(int becomes_tool) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    pause_a_while();
    if (becomes_tool) {
        unlink("/var/tmp/crane-leaving");
        if (!freopen("/var/tmp/crane-leaving", "w", stdout)) _exit(9);
        for (int fd = 3; fd < 64; fd++) close(fd);
        execl(tool, tool, "lines", "2", (char*)NULL);
    }
    _exit(0);
}

static void scenario(void) { say("%d", (int)start(0)); }
static void scenario_of_tool(void) { say("%d", (int)start(1)); }

int main(int argc, char** argv) {
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 16);
    CHECK(argc == 2 && length > 0);
    tool[length] = 0;
    strcpy(strrchr(tool, '/') + 1, "static_tool");
    const int listener = listen_on(atoi(argv[1]));
    for (int round = 0;; round++) {
        const int client = accept(listener, NULL, NULL);
        CHECK(client >= 0);
        answer(client, round % 2 ? scenario_of_tool : scenario);
    }
}
