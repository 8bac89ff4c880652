// Programs that may be executed and not be read, by a user who is not their owner: what they are cannot be
// told, so they run as those that cannot be scheduled, and may write more than a pipe holds. The same of
// one that the effective user alone may execute.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "serve.h"

static char tool[512], copy[] = "/tmp/crane-unreadable-XXXXXX";

static void copy_tool(void) {
    static char bytes[1 << 16];
    const int from = open(tool, O_RDONLY | O_CLOEXEC), to = mkostemp(copy, O_CLOEXEC);
    CHECK(from >= 0 && to >= 0);
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;) write_all(to, bytes, (size_t)got);
    CHECK(fchmod(to, 0711) == 0);
    close(from), close(to);
}

static void run(const char* name, const char* path, uid_t effective) {
    int ends[2], status;
    long all = 0;
    char bytes[4096];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1), close(ends[0]), close(ends[1]);
        if (setgid(65534) != 0 || setresuid(65534, effective, effective) != 0) _exit(3);
        execl(path, path, "lines", "30000", "0", (char*)NULL);
        _exit(errno == EACCES ? 4 : 5);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;) all += got;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    say("%s: %ld bytes, status %x", name, all, (unsigned)status);
}

static void scenario(void) {
    strcpy(copy, "/tmp/crane-unreadable-XXXXXX");
    copy_tool();
    run("a program", copy, 65534);
    CHECK(chmod(copy, 0700) == 0);
    run("nobody else's", copy, 65534);
    run("by its effective user", copy, 0);
    CHECK(unlink(copy) == 0 && mkdir(copy, 0711) == 0);
    run("a folder", copy, 65534);
    CHECK(rmdir(copy) == 0);
}

int main(int argc, char** argv) {
    const ssize_t length = readlink("/proc/self/exe", tool, sizeof tool - 16);
    CHECK(length > 0);
    strcpy(strrchr(tool, '/') + 1, "static_tool");
    return serve(argc, argv, scenario);
}
