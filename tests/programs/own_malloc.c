// An allocator of the program's own, which registers its handlers of fork() from within its first call, before
// it can be called again; and more handlers than have a place beforehand.
#include "serve.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>

enum { kRoom = 64 << 20, kFurther = 70, kHead = 16 };

static _Alignas(4096) char room[kRoom];
static size_t used;
static int before, after, in_child;
static enum { kUnused, kBegins, kUsed } state;

static void count_before(void) { before++; }
static void count_after(void) { after++; }
static void count_in_child(void) { in_child++; }

static void* take(size_t alignment, size_t bytes) {
    if (state == kBegins) _exit(99);  // called by who was called
    if (state == kUnused) {
        state = kBegins;
        if (pthread_atfork(count_before, count_after, count_in_child) != 0) _exit(98);
        state = kUsed;
    }
    const size_t at = (__atomic_fetch_add(&used, bytes + alignment + kHead, __ATOMIC_RELAXED) + kHead + alignment - 1) & ~(alignment - 1);
    if (at + bytes > kRoom) return NULL;
    *(size_t*)(room + at - kHead) = bytes;
    return room + at;
}

void* malloc(size_t bytes) { return take(16, bytes); }
void* calloc(size_t count, size_t bytes) { return take(16, count * bytes); }
void* memalign(size_t alignment, size_t bytes) { return take(alignment < 16 ? 16 : alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) { return (*out = memalign(alignment, bytes)) ? 0 : ENOMEM; }
void free(void* block) { (void)block; }

void* realloc(void* block, size_t bytes) {
    void* const more = malloc(bytes);
    const size_t had = block ? ((size_t*)block)[-2] : 0;
    return had && more ? memcpy(more, block, had < bytes ? had : bytes) : more;
}

static void scenario(void) {
    static bool registered;
    for (int n = 0; n < kFurther && !registered; n++) CHECK(pthread_atfork(count_before, count_after, count_in_child) == 0);
    registered = true;
    before = after = in_child = 0;
    const pid_t child = fork();
    if (child == 0) _exit(in_child);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    say("handlers: %d before, %d after, %d in the child", before, after, WEXITSTATUS(status));
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
