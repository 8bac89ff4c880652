// Syncs of files beside other threads: transactions that come together share one, and the descriptor that is
// synced is closed and used anew meanwhile.
#include "serve.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { WORKERS = 6, COMMITS = 10, PLACE = 50, TRIES = 200 };

static int new_file(void) {
    char name[] = "/tmp/crane-syncs-XXXXXX";
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    return fd;
}

/// A log as databases have it: who finds no sync under way syncs for all that have appended.
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t synced_more;
    int fd, appended, synced, busy, syncs;
} log_ = {.mutex = PTHREAD_MUTEX_INITIALIZER, .synced_more = PTHREAD_COND_INITIALIZER};

static void commit(void) {
    pthread_mutex_lock(&log_.mutex);
    CHECK(pwrite(log_.fd, "record", 6, 6 * log_.appended) == 6);
    const int own = ++log_.appended;
    while (log_.synced < own) {
        if (log_.busy) {
            pthread_cond_wait(&log_.synced_more, &log_.mutex);
            continue;
        }
        const int all = log_.appended;
        log_.busy = 1;
        pthread_mutex_unlock(&log_.mutex);
        CHECK(fdatasync(log_.fd) == 0);
        pthread_mutex_lock(&log_.mutex);
        log_.busy = 0;
        log_.synced = all;
        ++log_.syncs;
        pthread_cond_broadcast(&log_.synced_more);
    }
    pthread_mutex_unlock(&log_.mutex);
}

static void* work(void* unused) {
    for (int n = 0; n < COMMITS; n++) commit();
    return unused;
}

static void transactions(void) {
    pthread_t workers[WORKERS];
    log_.fd = new_file();
    log_.appended = log_.synced = log_.syncs = 0;
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_create(&workers[n], NULL, work, NULL) == 0);
    for (int n = 0; n < WORKERS; n++) CHECK(pthread_join(workers[n], NULL) == 0);
    close(log_.fd);
    say("committed %d", log_.appended);
    order("syncs %d", log_.syncs);
}

static volatile int begun, ended;

/// In its place stand in turn a file, a pipe (which cannot be synced) and nothing.
static void* change(void* unused) {
    const int file = new_file();
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (int n = 0; !ended; n++) {
        begun = 1;
        if (n % 3 == 2)
            close(PLACE);
        else
            CHECK(dup2(n % 3 ? ends[0] : file, PLACE) == PLACE);
    }
    close_range(PLACE, PLACE, 0);
    close(file);
    close(ends[0]);
    close(ends[1]);
    return unused;
}

static void changing_descriptors(void) {
    pthread_t other;
    int worked = 0, no_file = 0, unknown = 0;
    unsigned sum = 0;
    begun = ended = 0;
    CHECK(pthread_create(&other, NULL, change, NULL) == 0);
    while (!begun) sched_yield();
    for (int n = 0; n < TRIES; n++) {
        const long rc = n % 2 ? syscall(SYS_fsync, PLACE) : fdatasync(PLACE);
        const int error = rc == 0 ? 0 : errno;
        worked += rc == 0;
        no_file += error == EINVAL;
        unknown += error == EBADF;
        sum = sum * 31 + (unsigned)error;
    }
    ended = 1;
    CHECK(pthread_join(other, NULL) == 0);
    say("tried %d", worked + no_file + unknown);
    order("worked %d, %d, %d, %u", worked, no_file, unknown, sum);
}

static void syncs(void) {
    transactions();
    changing_descriptors();
    const int fd = new_file();
    say("fsync: %s", outcome(fsync(fd)));
    say("fdatasync: %s", outcome(fdatasync(fd)));
    say("syncfs: %s", outcome(syncfs(fd)));
    say("sync_file_range: %s", outcome(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE)));
    close(fd);
    say("fsync of none: %s", outcome(fsync(fd)));
    say("fsync of -1: %s", outcome(fsync(-1)));
    say("syncfs of none: %s", outcome(syncfs(fd)));
}

int main(int argc, char** argv) {
    return serve(argc, argv, syncs);
}
