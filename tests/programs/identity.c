// What a program can learn of the machine and the moment it runs on: every line may differ natively, and must be
// the same on all replicas. The test names the values that Crane promises.
#include "serve.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <x86intrin.h>

static volatile sig_atomic_t rings;
static void ring(int signal) {
    (void)signal;
    rings++;
}

static void hex(const char* what, const void* bytes, size_t size) {
    char text[2 * 64 + 1];
    for (size_t i = 0; i < size && i < 64; i++) snprintf(text + 2 * i, 3, "%02x", ((const unsigned char*)bytes)[i]);
    order("%s %s", what, text);
}

static void addresses(void) {
    int local = 0;
    void* small = malloc(100);
    void* large = malloc(1 << 20);
    order("addresses heap %p mapped %p stack %p code %p libc %p", small, large, (void*)&local, (void*)(long)&addresses,
          dlsym(RTLD_DEFAULT, "puts"));
    free(small);
    free(large);
}

static void entropy(void) {
    unsigned char bytes[16];
    CHECK(getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
    hex("getrandom", bytes, sizeof bytes);
    CHECK(getentropy(bytes, sizeof bytes) == 0);
    hex("getentropy", bytes, sizeof bytes);
    arc4random_buf(bytes, sizeof bytes);
    hex("arc4random", bytes, sizeof bytes);
    FILE* device = fopen("/dev/urandom", "r");
    CHECK(device && fread(bytes, 1, sizeof bytes, device) == sizeof bytes);
    fclose(device);
    hex("urandom", bytes, sizeof bytes);
    const int fd = open("/dev/urandom", O_RDONLY);
    CHECK(syscall(SYS_pread64, fd, bytes, sizeof bytes, 0L) == sizeof bytes);
    hex("pread by number", bytes, sizeof bytes);
    const struct iovec whole = {bytes, sizeof bytes};
    CHECK(syscall(SYS_preadv, fd, &whole, 1, 0L, 0L) == sizeof bytes);
    hex("preadv by number", bytes, sizeof bytes);
    close(fd);
    hex("AT_RANDOM", (const void*)getauxval(AT_RANDOM), 16);
    srandom(arc4random());
    order("random %ld rand %d drand48 %.9f", random(), rand(), drand48());
    order("rdtsc %llu", __rdtsc());
}

static void files(void) {
    char folder[] = "/var/tmp/crane-identity-XXXXXX", path[128];
    CHECK(mkdtemp(folder));
    order("folder %s", folder);
    const char* names[] = {"zebra", "apple", "mango", "kiwi", "fig"};
    struct stat info;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
        CHECK(fd >= 0);
        write_all(fd, path, 50 * (i + 1));
        close(fd);
        CHECK(stat(path, &info) == 0);
        order("%s inode %lu device %lu mtime %ld.%09ld ctime %ld atime %ld blocks %ld unit %ld links %lu", names[i],
              info.st_ino, info.st_dev, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
              info.st_atim.tv_sec, (long)info.st_blocks, (long)info.st_blksize, info.st_nlink);
    }
    CHECK(stat(folder, &info) == 0);
    order("folder inode %lu size %ld links %lu mtime %ld", info.st_ino, (long)info.st_size, info.st_nlink,
          info.st_mtim.tv_sec);
    DIR* directory = opendir(folder);
    char listing[512] = "";
    for (struct dirent* entry; (entry = readdir(directory));) {
        size_t end = strlen(listing);
        snprintf(listing + end, sizeof listing - end, " %s:%lu", entry->d_name[0] == '.' ? "." : entry->d_name,
                 entry->d_name[0] == '.' ? 0 : entry->d_ino);
    }
    closedir(directory);
    order("listing%s", listing);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    char temporary[] = "/tmp/crane-identity-XXXXXX";
    int fd = mkstemp(temporary);
    order("mkstemp %s descriptor %s", temporary, outcome(fd));
    close(fd);
    unlink(temporary);
}

static void machine(void) {
    char name[128];
    struct utsname system;
    struct sysinfo memory;
    cpu_set_t cpus;
    double load[3];
    CHECK(gethostname(name, sizeof name) == 0 && uname(&system) == 0 && sysinfo(&memory) == 0);
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0 && getloadavg(load, 3) == 3);
    order("host %s node %s id %lx pid %d tid %ld parent %d group %d session %d", name, system.nodename, gethostid(),
          getpid(), syscall(SYS_gettid), getppid(), getpgrp(), getsid(0));
    order("cpus %ld of %ld usable %d now on %d", sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF),
          CPU_COUNT(&cpus), sched_getcpu());
    order("pages %ld free %ld total %lu unused %lu processes %d load %.2f", sysconf(_SC_PHYS_PAGES),
          sysconf(_SC_AVPHYS_PAGES), memory.totalram, memory.freeram, memory.procs, load[0]);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        CHECK(getrlimit(i, &limit) == 0);
        order("limit %d %lu %lu", i, limit.rlim_cur, limit.rlim_max);
    }
    const char* tables[] = {"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char text[64] = "";
        FILE* table = fopen(tables[i], "r");
        if (table && !fgets(text, sizeof text, table)) text[0] = 0;
        if (table) fclose(table);
        text[strcspn(text, "\n")] = 0;
        order("%s %s", tables[i], text);
    }
}

static void times_and_timers(void) {
    struct timespec now, other;
    struct tms used;
    struct rusage usage;
    int (*fetched)(clockid_t, struct timespec*) = (int (*)(clockid_t, struct timespec*))(long)dlsym(RTLD_DEFAULT,
                                                                                                  "clock_gettime");
    clock_gettime(CLOCK_REALTIME, &now);
    fetched(CLOCK_REALTIME, &other);
    order("now %ld.%09ld and by dlsym %ld.%09ld", now.tv_sec, now.tv_nsec, other.tv_sec, other.tv_nsec);
    order("ticks %ld used %ld", (long)times(&used), (long)used.tms_utime);
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    order("usage %ld.%06ld faults %ld switches %ld", usage.ru_utime.tv_sec, usage.ru_utime.tv_usec, usage.ru_minflt,
          usage.ru_nvcsw);
    order("set the clock: %s", outcome(clock_settime(CLOCK_REALTIME, &now)));
    struct itimerval soon = {.it_value = {.tv_usec = 20000}}, profile = {.it_value = {.tv_sec = 100}};
    signal(SIGALRM, ring);
    signal(SIGUSR1, ring);
    rings = 0;
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    while (rings == 0) pause();
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec later = {.it_value = {.tv_nsec = 10000000}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &later, NULL) == 0);
    while (rings == 1) pause();
    timer_delete(timer);
    say("rings %d", (int)rings);
    order("profiling timer: %s", outcome(setitimer(ITIMER_PROF, &profile, NULL)));
    clock_gettime(CLOCK_REALTIME, &now);
    order("then %ld.%09ld", now.tv_sec, now.tv_nsec);
}

static void refusals(void) {
    char space[256] = {0};
    order("io_uring %s", outcome(syscall(SYS_io_uring_setup, 4, space)));
    order("io_setup %s", outcome(syscall(SYS_io_setup, 4, space)));
    order("rseq %s", outcome(syscall(SYS_rseq, space, 32, 0, 0)));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in outside = {.sin_family = AF_INET, .sin_port = htons(9)};
    inet_pton(AF_INET, "192.0.2.1", &outside.sin_addr);
    order("outside %s", outcome(connect(fd, (struct sockaddr*)&outside, sizeof outside)));
    close(fd);
}

static void streams(void) {
    int ends[2];
    char line[64] = "";
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    FILE* out = fdopen(ends[0], "w");
    FILE* in = fdopen(ends[1], "r");
    fprintf(out, "through %s\n", "streams");
    fclose(out);
    CHECK(fgets(line, sizeof line, in));
    say("%.15s", line);
    fclose(in);
    struct sched_param priority = {.sched_priority = 0};
    order("policy %s", outcome(sched_setscheduler(0, SCHED_BATCH, &priority)));
}

static void scenario(void) {
    addresses();
    entropy();
    files();
    machine();
    times_and_timers();
    refusals();
    streams();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
