// A call made in a child, and what came of it: its value, its error, or the signal that ended the child.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>

#include "serve.h"

#define TRY(call)                                            \
    do {                                                     \
        int pipes[2], status;                                \
        char text[80] = "";                                  \
        CHECK(pipe(pipes) == 0);                             \
        pid_t child = fork();                                \
        if (child == 0) {                                    \
            const char* told = outcome((long)(call));        \
            CHECK(write(pipes[1], told, strlen(told)) > 0);  \
            _exit(0);                                        \
        }                                                    \
        CHECK(waitpid(child, &status, 0) == child);          \
        close(pipes[1]);                                     \
        CHECK(read(pipes[0], text, sizeof text - 1) >= 0);   \
        close(pipes[0]);                                     \
        if (WIFSIGNALED(status))                             \
            say("  %s: signal %d", #call, WTERMSIG(status)); \
        else                                                 \
            say("  %s: %s", #call, text);                    \
    } while (0)

// Where nothing can be read or written: the first page, one without access, the kernel's.
__attribute__((unused)) static char* bad_place(int number) {
    static char* page;
    if (!page) page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    char* const places[] = {(char*)8, page, (char*)0xffff800000000000};
    return places[number];
}
