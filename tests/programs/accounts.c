// What the kernel tells of processes and of the machine: the same on every replica, and of the form that libraries
// expect.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "serve.h"

static char text[1 << 20];

static size_t take_in(const char* path) {
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    size_t used = 0;
    ssize_t n;
    while ((n = read(fd, text + used, sizeof text - 1 - used)) > 0) used += (size_t)n;
    close(fd);
    text[used] = 0;
    return used;
}

static unsigned long sum(void) {
    unsigned long h = 5381;
    for (const char* at = text; *at; ++at) h = h * 33 + (unsigned char)*at;
    return h;
}

static void show(const char* path) {
    take_in(path);
    order("%s %016lx", path, sum());
}

static unsigned long links_of_tasks(void) {
    struct stat info;
    const int folder = open("/proc", O_RDONLY | O_DIRECTORY);
    CHECK(folder >= 0 && fstatat(folder, "self/task/", &info, 0) == 0);
    close(folder);
    return info.st_nlink;
}

static void* until_told(void* end) {
    CHECK(read(*(int*)end, &(char){0}, 1) == 0);
    return NULL;
}

// What is opened for reading is so, whoever asks.
static void look_how_opened(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    say("%s: mode %d, flags %d, write %s", path, fcntl(fd, F_GETFL) & O_ACCMODE, fcntl(fd, F_GETFD), outcome(write(fd, "x", 1)));
    CHECK(read(fd, text, 1) == 1);
    close(fd);
}

// As sandboxes find out whether they have one thread.
static void count_threads(void) {
    int ends[2];
    pthread_t other;
    CHECK(pipe(ends) == 0);
    say("links of one thread %lu", links_of_tasks());
    CHECK(pthread_create(&other, NULL, until_told, &ends[0]) == 0);
    say("of two %lu", links_of_tasks());
    close(ends[1]);
    CHECK(pthread_join(other, NULL) == 0);
    close(ends[0]);
}

static void scenario(void) {
    static const char* const names[] = {"stat", "statm", "status", "maps", "smaps", "smaps_rollup", "io", "sched",
                                        "schedstat", "mountinfo", "mounts", "cgroup"};
    char path[64];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        snprintf(path, sizeof path, "/proc/self/%s", names[i]);
        show(path);
        snprintf(path, sizeof path, "/proc/%d/task/%d/%s", (int)getpid(), (int)getpid(), names[i]);
        if (strcmp(names[i], "mounts") != 0 && strcmp(names[i], "mountinfo") != 0) show(path);
    }
    static const char* const machine[] = {"/proc/mounts", "/etc/mtab", "/proc/vmstat", "/proc/diskstats", "/proc/interrupts",
                                          "/proc/net/dev", "/proc/swaps", "/proc/sys/fs/file-nr", "/proc/pressure/cpu"};
    for (size_t i = 0; i < sizeof machine / sizeof machine[0]; ++i) show(machine[i]);

    // As Redis and others read their size.
    CHECK(take_in("/proc/self/stat") > 0);
    int pid = 0;
    char name[64], state = 0;
    CHECK(sscanf(text, "%d (%63[^)]) %c", &pid, name, &state) == 3);
    say("pid is mine %d, state %c", pid == getpid(), state);
    const char* at = strrchr(text, ')') + 2;
    for (int field = 3; field < 24; ++field) at = strchr(at, ' ') + 1;
    say("resident %d", atol(at) > 0);
    int fields = 2;
    for (at = strrchr(text, ')') + 1; *at; ++at) fields += *at == ' ';
    say("fields %d", fields);
    CHECK(take_in("/proc/self/status") > 0);
    say("VmRSS %d, Threads %d", strstr(text, "\nVmRSS:\t") != NULL, atoi(strstr(text, "\nThreads:\t") + 10));
    CHECK(take_in("/proc/self/statm") > 0);
    long size = 0, resident = 0;
    say("statm %d", sscanf(text, "%ld %ld", &size, &resident) == 2 && size >= resident);
    CHECK(take_in("/proc/self/maps") > 0);
    void *from, *to;
    say("maps %d, own %d", sscanf(text, "%p-%p", &from, &to) == 2, strstr(text, "accounts") != NULL);
    // What is told of memory is there, also when it is looked at: Redis tests its memory so when it crashes.
    int gone = 0;
    for (const char* line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        unsigned char present;
        char rights[5];
        if (sscanf(line, "%p-%p %4s", &from, &to, rights) != 3 || strcmp(rights, "rw-p") != 0) continue;
        gone += mincore(from, 4096, &present) != 0;
        gone += mincore((char*)to - 4096, 4096, &present) != 0;
    }
    say("told of, and not there: %d", gone);
    count_threads();
    look_how_opened("/proc/self/status");
    look_how_opened("/proc/stat");
    look_how_opened("/proc/self/maps");
    say("no such process %zu", take_in("/proc/4194304/stat"));
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
