// Time and entropy: monotonic, near real time, sleeps that last, random bytes that differ from each other.
#include "serve.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>

static void monotonic(void) {
    clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE,
                          CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW};
    for (unsigned n = 0; n < sizeof clocks / sizeof *clocks; n++) {
        struct timespec before = {0, 0}, now;
        int backward = 0;
        for (int read = 0; read < 1000; read++) {
            CHECK(clock_gettime(clocks[n], &now) == 0);
            backward += now.tv_sec < before.tv_sec || (now.tv_sec == before.tv_sec && now.tv_nsec < before.tv_nsec);
            before = now;
        }
        say("clock %u went backward %d times", n, backward);
    }
    struct timespec ts;
    struct timeval tv;
    say("bad clock %s", outcome(clock_gettime(999, &ts)));
    clock_gettime(CLOCK_REALTIME, &ts);
    gettimeofday(&tv, NULL);
    time_t t = time(NULL);
    say("clocks agree %d", labs(ts.tv_sec - tv.tv_sec) <= 1 && labs(t - tv.tv_sec) <= 1);
    order("realtime %ld.%09ld", ts.tv_sec, ts.tv_nsec);
    say("year %s", t > 1700000000 ? "plausible" : "wrong");
}

static void sleeps(void) {
    struct timespec begin = now_plus_ms(CLOCK_MONOTONIC, 0), limit;
    say("nanosleep %s", outcome(nanosleep(&(struct timespec){0, 30000000}, NULL)));
    long slept = ms_since(begin, CLOCK_MONOTONIC);
    say("slept long enough %d, not far too long %d", slept >= 30, slept < 5000);
    usleep(10000);
    say("then %d", ms_since(begin, CLOCK_MONOTONIC) >= 40);
    limit = now_plus_ms(CLOCK_MONOTONIC, 20);
    say("clock_nanosleep %s", code(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &limit, NULL)));
    say("of a thread's time %s", code(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &limit, NULL)));
    say("by its number %s", outcome(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &limit, NULL)));
    say("reached %d", ms_since(limit, CLOCK_MONOTONIC) >= 0);
    say("nanosleep invalid %s", outcome(nanosleep(&(struct timespec){0, 2000000000}, NULL)));
    order("slept %ld", slept);
}

static int finished[4], finished_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void* sleep_and_finish(void* argument) {
    usleep((useconds_t)(40000 - 10000 * (long)argument));
    pthread_mutex_lock(&lock);
    finished[finished_count++] = (int)(long)argument;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void sleep_sort(void) {
    pthread_t threads[4];
    finished_count = 0;
    for (long n = 0; n < 4; n++) CHECK(pthread_create(&threads[n], NULL, sleep_and_finish, (void*)n) == 0);
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
    order("finished %d %d %d %d", finished[0], finished[1], finished[2], finished[3]);
    say("finished %d", finished_count);
}

static void hex(const char* what, const unsigned char* bytes, int count) {
    char text[65];
    for (int n = 0; n < count; n++) snprintf(text + 2 * n, 3, "%02x", bytes[n]);
    order("%s %s", what, text);
}

static void entropy(void) {
    unsigned char a[16], b[16], c[16], d[16];
    say("getrandom %s", outcome(getrandom(a, sizeof a, 0)));
    say("getrandom %s", outcome(getrandom(b, sizeof b, GRND_NONBLOCK)));
    say("getentropy %s", outcome(getentropy(c, sizeof c)));
    int fd = open("/dev/urandom", O_RDONLY);
    say("urandom %s", outcome(read(fd, d, sizeof d)));
    close(fd);
    FILE* file = fopen("/dev/urandom", "rb");
    struct stat kind;
    say("its descriptor %d %d", file != NULL && fstat(fileno(file), &kind) == 0, S_ISCHR(kind.st_mode));
    say("read there %s", outcome(read(fileno(file), d, sizeof d)));
    say("fread %zu", fread(d, 1, 8, file));
    fclose(file);
    say("all differ %d", memcmp(a, b, 16) && memcmp(b, c, 16) && memcmp(c, d, 16));
    hex("a", a, 16);
    hex("b", b, 16);
    hex("c", c, 16);
    hex("d", d, 16);
    order("arc4random %u", arc4random());
}

static void surroundings(void) {
    struct utsname name;
    uname(&name);
    int local;
    void* heap = malloc(100000);
    order("heap %p stack %p code %p", heap, (void*)&local, (void*)surroundings);
    order("host %s cpus %ld pid %d", name.nodename, sysconf(_SC_NPROCESSORS_ONLN), getpid());
    free(heap);
    char* names[] = {"a", "b", "c"};
    char pattern[] = "/tmp/crane-test-XXXXXX";
    int fd = mkstemp(pattern);
    order("temporary %s %s", pattern, names[fd % 3]);
    close(fd);
    unlink(pattern);
}

static void scenario(void) {
    monotonic();
    sleeps();
    sleep_sort();
    entropy();
    surroundings();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
