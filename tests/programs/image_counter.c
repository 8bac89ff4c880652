// Counts, and keeps what it has counted in everything that an image must save: memory of its own and shared, a
// thread, a pipe, an open file, a memfd with a large hole. Each count passes through all of them and ends as a line
// of the file: the number, and the pid of a child now and then. A number that is lost or comes twice shows. It stands
// still while whoever shares its first inherited page wants that.
//
// usage: image_counter FILE [undumpable]
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kSparseBytes = 400 << 20, kTransportPlace = 1, kBellPlace = 2, kCountsPerChild = 16 };

static int to_thread[2], from_thread[2];
static volatile uint64_t *in_memfd, *outside;

static void need(int holds, const char *what) {
    if (holds) return;
    perror(what);
    exit(1);
}

static void *pass_on(void *unused) {
    (void)unused;
    for (uint64_t count; read(to_thread[0], &count, sizeof count) == sizeof count;) {
        in_memfd[kSparseBytes / sizeof *in_memfd - 1] = count;
        need(write(from_thread[1], &count, sizeof count) == sizeof count, "write to the pipe");
    }
    return NULL;
}

static pid_t child(void) {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    need(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
    return pid;
}

int main(int argc, char **argv) {
    const char *begin = getenv("CRANE_RESERVED_FD");
    need(argc >= 2, "usage");
    const int reserved = begin ? atoi(begin) : -kBellPlace - 1;
    if (argc > 2) need(mq_open("/undumpable", O_CREAT | O_RDWR, 0600, NULL) >= 0, "mq_open");
    const int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    need(file >= 0, argv[1]);
    const int memfd = memfd_create("counter", 0);
    need(memfd >= 0 && ftruncate(memfd, kSparseBytes) == 0, "memfd");
    in_memfd = mmap(NULL, kSparseBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    need(in_memfd != MAP_FAILED, "mmap");
    outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reserved + kTransportPlace, 0);
    need(pipe(to_thread) == 0 && pipe(from_thread) == 0, "pipe");
    pthread_t thread;
    need(pthread_create(&thread, NULL, pass_on, NULL) == 0, "thread");
    for (uint64_t count = 1;; ++count) {
        uint64_t back = 0;
        need(write(to_thread[1], &count, sizeof count) == sizeof count, "write to the pipe");
        need(read(from_thread[0], &back, sizeof back) == sizeof back, "read from the pipe");
        need(back == count && in_memfd[kSparseBytes / sizeof *in_memfd - 1] == count, "count");
        if (outside != MAP_FAILED) {
            outside[0] = count;
            (void)!write(reserved + kBellPlace, "x", 1);
            // At rest before a child's turn, which shows what pids a dump or a restore uses up or gives twice; a
            // fresh page lets it go on.
            while (outside[1] != 0 && count % kCountsPerChild == 0) outside[2] = 1, usleep(500);
            outside[2] = 0;
        }
        dprintf(file, "%llu %d\n", (unsigned long long)count, count % kCountsPerChild == 0 ? (int)child() : 0);
        usleep(500);
    }
}
