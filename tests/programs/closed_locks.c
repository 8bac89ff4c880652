// Locks on files that end with their descriptor, by whatever closes it, while another process waits for them
// and nothing else happens: fclose, freopen, dup2, close, exec, the end.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "serve.h"

enum { FCLOSE, FREOPEN, DUP2, CLOSE, EXEC, END, WAYS };

static void give_up(FILE* file, int way) {
    const int fd = fileno(file);
    if (way == FCLOSE) CHECK(fclose(file) == 0);
    if (way == FREOPEN) CHECK(freopen("/dev/null", "r", file) == file);
    if (way == DUP2) CHECK(dup2(2, fd) == fd);
    if (way == CLOSE) CHECK(close(fd) == 0);
    if (way == EXEC) execl("/bin/sleep", "sleep", "1000", NULL);
    if (way == END) _exit(0);
    for (;;) pause();
}

static void scenario(void) {
    for (int way = 0; way < WAYS; way++)
        for (int owned = 0; owned < 2; owned++) {
            char path[] = "/tmp/closed_locksXXXXXX", byte;
            struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            const int fd = mkstemp(path);
            int told[2], status;
            CHECK(fd >= 0 && pipe(told) == 0);
            const pid_t child = fork();
            if (child == 0) {
                FILE* file = fopen(path, "r+e");
                CHECK(file &&
                      (owned ? fcntl(fileno(file), F_SETLK, &whole) : flock(fileno(file), LOCK_EX)) == 0);
                CHECK(write(told[1], "x", 1) == 1);
                usleep(20000);
                give_up(file, way);
            }
            CHECK(read(told[0], &byte, 1) == 1);
            const int rc = owned ? fcntl(fd, F_SETLKW, &whole) : flock(fd, LOCK_EX);
            say("way %d, %s: %s", way, owned ? "fcntl" : "flock", outcome(rc));
            kill(child, SIGKILL);
            CHECK(waitpid(child, &status, 0) == child);
            close(told[0]);
            close(told[1]);
            close(fd);
            unlink(path);
        }
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
