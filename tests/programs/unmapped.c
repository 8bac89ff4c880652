// Children that unmap what is not theirs (any of the shared memory that /proc/self/maps lists, or all from one piece on),
// by name or by number, or that move it or change its pages' order, end, in whatever way, and nobody else by it.
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "serve.h"

enum { MOST = 64, PIECES = 12, ROUNDS = 2, BY_NAME = 0, BY_NUMBER, BY_MOVING, BY_PAGES, WAYS };

static void end(int signal) {
    (void)signal;
    _exit(3);
}

static int shared(unsigned long from[MOST], unsigned long to[MOST]) {
    FILE* maps = fopen("/proc/self/maps", "r");
    char line[512], access[8];
    int count = 0;
    CHECK(maps);
    while (count < MOST && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &from[count], &to[count], access) == 3 && access[3] == 's') count++;
    }
    fclose(maps);
    return count;
}

static void take_away(unsigned long from, unsigned long bytes, int way) {
    if (way == BY_NAME) {
        munmap((void*)from, bytes);
    } else if (way == BY_NUMBER) {
        syscall(SYS_munmap, from, bytes);
    } else if (way == BY_PAGES) {
        syscall(SYS_remap_file_pages, from, bytes, 0, bytes > 4096, 0);
    } else {
        void* place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (place != MAP_FAILED) mremap((void*)from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    }
}

static void unmap(int piece, int all, int handle, int way) {
    unsigned long from[MOST], to[MOST];
    const int count = shared(from, to);
    if (handle) signal(SIGSEGV, end);
    for (int i = all ? count - 1 : piece; i >= piece && i < count; --i) take_away(from[i], to[i] - from[i], way);
    _exit(4);
}

/// As the kernel has it of any memory.
static void of_no_bytes(void) {
    unsigned long from[MOST], to[MOST];
    const int count = shared(from, to);
    for (int i = 0; i < count; ++i) {
        CHECK(munmap((void*)from[i], 0) == -1 && errno == EINVAL);
        CHECK(munmap((char*)from[i] + 1, 100) == -1 && errno == EINVAL);
        CHECK(mprotect((void*)from[i], 0, PROT_NONE) == 0);
        CHECK(madvise((void*)from[i], 0, MADV_DONTNEED) == 0);
    }
}

static void scenario(void) {
    char* own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    strcpy(own, "keeps what it shares");
    of_no_bytes();
    for (int round = 0; round < ROUNDS; ++round) {
        for (int kind = 0; kind < 4 * WAYS * PIECES; ++kind) {
            const pid_t child = fork();
            if (child == 0) unmap(kind / 4 / WAYS, kind & 1, kind & 2, kind / 4 % WAYS);
            int status = 0;
            CHECK(waitpid(child, &status, 0) == child);
            CHECK(WIFEXITED(status) || WIFSIGNALED(status));
        }
        char said[64] = "";
        FILE* pipe = popen("echo has its children as ever", "r");
        CHECK(pipe && fgets(said, sizeof said, pipe));
        pclose(pipe);
        say("round %d: the parent %s, and %.*s", round, own, (int)strcspn(said, "\n"), said);
    }
    munmap(own, 4096);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
