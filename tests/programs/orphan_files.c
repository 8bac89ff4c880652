// What /proc shows of a process that has ended and that nobody of the program's waits for: nothing any more,
// whenever the kernel is told to forget it. (Natively it is shown until init has waited for it.)
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "serve.h"

enum { kRounds = 40 };

static int seen_by_stat, seen_by_access, seen_by_link, seen_by_open, seen_in_folder;
static pid_t orphan;
static int ended;  // a pipe's end, which tells of the orphan's end

static int listed(const char* name) {
    DIR* folder = opendir("/proc");
    int found = 0;
    CHECK(folder);
    for (struct dirent* entry; (entry = readdir(folder));) found |= strcmp(entry->d_name, name) == 0;
    closedir(folder);
    return found;
}

static void* look(void* unused) {
    char byte, text[64], name[16], path[48], file[64], link[64];
    struct stat info;
    snprintf(name, sizeof name, "%d", orphan);
    snprintf(path, sizeof path, "/proc/%d", orphan);
    snprintf(file, sizeof file, "%s/stat", path);
    snprintf(link, sizeof link, "%s/exe", path);
    CHECK(read(ended, &byte, 1) == 0);
    seen_by_stat += stat(path, &info) == 0;
    seen_by_access += access(file, F_OK) == 0;
    seen_by_link += readlink(link, text, sizeof text) >= 0 || errno != ENOENT || lstat(link, &info) == 0;
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    seen_by_open += fd >= 0;
    if (fd >= 0) close(fd);
    seen_in_folder += listed(name);
    return unused;
}

static void round_of_one(void) {
    int told[2], stay[2], alive[2];
    pthread_t thread;
    CHECK(pipe(told) == 0 && pipe(stay) == 0 && pipe(alive) == 0);
    const pid_t parent = fork();
    if (parent == 0) {
        orphan = fork();
        if (orphan == 0) {
            char byte;
            close(stay[1]);
            CHECK(read(stay[0], &byte, 1) == 0);
            _exit(0);
        }
        CHECK(write(told[1], &orphan, sizeof orphan) == sizeof orphan);
        _exit(0);
    }
    close(alive[1]);
    CHECK(read(told[0], &orphan, sizeof orphan) == sizeof orphan);
    CHECK(waitpid(parent, NULL, 0) == parent);
    ended = alive[0];
    CHECK(pthread_create(&thread, NULL, look, NULL) == 0);
    close(stay[1]);
    pthread_join(thread, NULL);
    close(told[0]), close(told[1]), close(stay[0]), close(alive[0]);
}

static void scenario(void) {
    seen_by_stat = seen_by_access = seen_by_link = seen_by_open = seen_in_folder = 0;
    for (int round = 0; round < kRounds; round++) round_of_one();
    order("seen: %d by stat, %d by access, %d by readlink, %d by open, %d in the folder", seen_by_stat,
          seen_by_access, seen_by_link, seen_by_open, seen_in_folder);
    say("done");
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
