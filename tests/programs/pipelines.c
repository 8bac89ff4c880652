// Pipelines of children whose stdio reads and writes pipes: more than a pipe holds, and before there is
// anything.
#include <pthread.h>
#include <sys/wait.h>

#include "serve.h"

static void run(const char* command) {
    char path[] = "/tmp/pipelines-XXXXXX", whole[1024], line[256];
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    snprintf(whole, sizeof whole, "(%s) > %s", command, path);
    say("%s: status %d", command, system(whole));
    FILE* said = fopen(path, "r");
    CHECK(said);
    while (fgets(line, sizeof line, said)) say("  %.*s", (int)strcspn(line, "\n"), line);
    fclose(said);
    close(fd);
    unlink(path);
}

// A child's output through stdio over a pipe that its parent reads slowly, then its input.
static void forked(void) {
    int out[2], in[2];
    CHECK(pipe(out) == 0 && pipe(in) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 1);
        dup2(in[0], 0);
        for (int fd = 3; fd < 64; fd++) close(fd);
        for (int n = 0; n < 30000; n++) printf("%d\n", n);
        fflush(stdout);
        int number, sum = 0;
        while (scanf("%d", &number) == 1) sum += number;
        printf("sum %d\n", sum);
        exit(ferror(stdout) != 0);
    }
    close(out[1]);
    close(in[0]);
    FILE* from = fdopen(out[0], "r");
    char line[64];
    int lines = 0;
    usleep(20000);
    while (lines < 30000 && fgets(line, sizeof line, from)) lines += atoi(line) == lines;
    say("lines in order: %d", lines);
    FILE* to = fdopen(in[1], "w");
    for (int n = 0; n < 30000; n++) fprintf(to, "%d\n", n % 100);
    say("fclose: %s", outcome(fclose(to)));
    CHECK(fgets(line, sizeof line, from));
    say("%.*s", (int)strcspn(line, "\n"), line);
    fclose(from);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    say("status: %d", status);
}

static void* print_lines(void* unused) {
    for (int n = 0; n < 300; n++) {
        printf("%d\n", n);
        if (n % 50 == 0) fflush(stdout);
    }
    return unused;
}

// Threads of a child that want the same stream, one of which may be waiting in it.
static void threaded(void) {
    int out[2];
    CHECK(pipe(out) == 0);
    const pid_t child = fork();
    if (child == 0) {
        pthread_t threads[4];
        dup2(out[1], 1);
        for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, print_lines, NULL);
        for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
        exit(0);
    }
    close(out[1]);
    FILE* from = fdopen(out[0], "r");
    char line[64];
    int lines = 0, sum = 0;
    for (; fgets(line, sizeof line, from); lines++) sum += atoi(line);
    say("of four threads: %d lines, sum %d", lines, sum);
    fclose(from);
    waitpid(child, NULL, 0);
}

// What was printed before a descriptor leads elsewhere goes where it leads when it is written.
static void moved(void) {
    int out[2];
    CHECK(pipe(out) == 0);
    const pid_t child = fork();
    if (child == 0) {
        setvbuf(stdout, NULL, _IOFBF, 4096);
        printf("before ");
        dup2(out[1], 1);
        printf("after");
        exit(0);
    }
    close(out[1]);
    char got[64] = "";
    ssize_t bytes = 0, more;
    while ((more = read(out[0], got + bytes, sizeof got - 1 - (size_t)bytes)) > 0) bytes += more;
    say("moved: %s", got);
    close(out[0]);
    waitpid(child, NULL, 0);
}

static void mixed(void) {
    char here[512], command[1024];
    const ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
    CHECK(length > 0);
    here[length] = 0;
    *strrchr(here, '/') = 0;
    snprintf(command, sizeof command, "seq 1 40000 | %s/mixed_output | cksum", here);
    char path[] = "/tmp/mixed-XXXXXX", whole[1200], line[256];
    const int fd = mkstemp(path);
    snprintf(whole, sizeof whole, "(%s) > %s", command, path);
    CHECK(system(whole) == 0);
    FILE* said = fopen(path, "r");
    CHECK(said && fgets(line, sizeof line, said));
    say("C and C++: %.*s", (int)strcspn(line, "\n"), line);
    fclose(said);
    close(fd);
    unlink(path);
}

static void scenario(void) {
    run("seq 1 50000 | sort -rn | head -3");
    run("(sleep 0.05; echo late) | sort");
    run("seq 1 30000 | awk '{ s += $1 } END { print s }'");
    run("i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); done | tail -1");
    run("yes | head -100000 | uniq -c | sed 's/ *//'");
    forked();
    threaded();
    moved();
    mixed();
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
