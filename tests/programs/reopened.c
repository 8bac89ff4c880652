// Streams that are opened anew for something else (freopen) and from descriptors that the schedule serves:
// pipes, sockets, fifos, random devices, the standard streams of children; what their buffers held is where it
// was meant to go.
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <wchar.h>

#include "serve.h"

static char folder[] = "/tmp/crane-reopened-XXXXXX";

static const char* in_folder(const char* name) {
    static char path[4][128];
    static int next;
    char* here = path[next++ % 4];
    snprintf(here, sizeof path[0], "%s/%s", folder, name);
    return here;
}

static void write_file(const char* name, const char* text) {
    FILE* file = fopen(in_folder(name), "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void tell_file(const char* name) {
    char line[256] = "";
    FILE* file = fopen(in_folder(name), "r");
    const size_t got = file ? fread(line, 1, sizeof line - 1, file) : 0;
    for (char* c = line; *c; c++)
        if (*c == '\n') *c = '|';
    say("%s has %zu: %s", name, got, line);
    if (file) fclose(file);
}

// A file, a pipe, a file: each gets what was written while it was there, and the number stays.
static void from_file_to_pipe_and_back(void) {
    int ends[2];
    char line[64] = "", path[32];
    FILE* stream = fopen(in_folder("first"), "w");
    CHECK(stream && pipe(ends) == 0);
    const int number = fileno(stream);
    fputs("for the first file\n", stream);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    CHECK(freopen(path, "w", stream) == stream);
    say("the same number: %d", fileno(stream) == number);
    fputs("for the pipe\n", stream);
    CHECK(freopen(in_folder("second"), "w", stream) == stream);
    close(ends[1]);
    CHECK(read(ends[0], line, sizeof line - 1) > 0);
    say("from the pipe: %s", strtok(line, "\n"));
    say("then its end: %zd", read(ends[0], line, sizeof line));
    close(ends[0]);
    fputs("for the second file\n", stream);
    CHECK(fclose(stream) == 0);
    tell_file("first");
    tell_file("second");
}

static void* print_later(void* descriptor) {
    usleep(20000);
    const int fd = (int)(long)descriptor;
    dprintf(fd, "one\ntwo\n");
    usleep(20000);
    dprintf(fd, "three\n");
    close(fd);
    return NULL;
}

// Something is left of the old one when the stream is led elsewhere, where it waits.
static void reads_elsewhere(void) {
    int ends[2];
    char line[64], path[32];
    pthread_t writer;
    write_file("input", "a line\nanother line\n");
    FILE* stream = fopen(in_folder("input"), "r");
    CHECK(stream && fgets(line, sizeof line, stream));
    CHECK(pipe(ends) == 0 && pthread_create(&writer, NULL, print_later, (void*)(long)ends[1]) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    CHECK(freopen(path, "r", stream) == stream);
    close(ends[0]);
    while (fgets(line, sizeof line, stream)) say("read %s", strtok(line, "\n"));
    say("its end %d", feof(stream) != 0);
    CHECK(pthread_join(writer, NULL) == 0 && fclose(stream) == 0);
}

static void of_sockets(void) {
    int pair[2];
    char line[64] = "";
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    FILE *one = fdopen(pair[0], "r+"), *other = fdopen(pair[1], "r+");
    CHECK(one && other);
    say("wide or not yet: %d %d", fwide(one, 0), fwide(other, 0));
    fputs("question\n", one);
    fflush(one);
    say("heard %s", fgets(line, sizeof line, other) ? strtok(line, "\n") : "-");
    fputs("answer\n", other);
    fflush(other);
    say("heard %s", fgets(line, sizeof line, one) ? strtok(line, "\n") : "-");
    say("anew: %d", freopen("/dev/null", "w", one) == one);
    say("the other's end: %d", fgetc(other));
    say("a socket's name: %s", freopen(NULL, "r", other) ? "known" : strerrorname_np(errno));
    CHECK(fclose(one) == 0);
}

static int connected(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr*)&address, sizeof address) == 0);
    return fd;
}

// A stream over a TCP connection, wide on one side, and read in whole blocks on the other.
static void of_connections(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr*)&address, sizeof address) == 0 && listen(listener, 4) == 0);
    CHECK(getsockname(listener, (struct sockaddr*)&address, &length) == 0);
    FILE* client = fdopen(connected(ntohs(address.sin_port)), "r+");
    FILE* server = fdopen(accept(listener, NULL, NULL), "r+");
    close(listener);
    CHECK(client && server);
    for (int i = 0; i < 3000; i++) fprintf(client, "line %d\n", i);
    CHECK(fflush(client) == 0 && shutdown(fileno(client), SHUT_WR) == 0);
    char line[64];
    long sum = 0, lines = 0;
    while (fgets(line, sizeof line, server)) sum += atol(line + 5), lines++;
    say("lines %ld sum %ld", lines, sum);
    say("seek %s", outcome(fseek(server, 10, SEEK_SET)));
    FILE* wide = fdopen(dup(fileno(server)), "a");
    CHECK(wide && fclose(server) == 0);
    say("fputws %d", fputws(L"wide\n", wide) >= 0);
    say("it is wide: %d", fwide(wide, 0) > 0);
    CHECK(fclose(wide) == 0);
    say("heard %s", fgets(line, sizeof line, client) ? strtok(line, "\n") : "-");
    CHECK(fclose(client) == 0);
}

static void* open_to_write(void* path) {
    usleep(20000);
    FILE* stream = fopen(path, "w");
    CHECK(stream);
    fputs("through the fifo\n", stream);
    CHECK(fclose(stream) == 0);
    return NULL;
}

static void of_fifos_and_devices(void) {
    char line[64] = "";
    pthread_t writer;
    const char* path = in_folder("fifo");
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(pthread_create(&writer, NULL, open_to_write, (void*)path) == 0);
    FILE* stream = freopen(path, "r", fopen("/dev/null", "r"));
    say("heard %s", stream && fgets(line, sizeof line, stream) ? strtok(line, "\n") : "-");
    CHECK(pthread_join(writer, NULL) == 0);
    unsigned char drawn[8];
    CHECK(freopen("/dev/urandom", "r", stream) == stream);
    say("drawn %zu", fread(drawn, 1, sizeof drawn, stream));
    order("%02x%02x%02x%02x", drawn[0], drawn[1], drawn[2], drawn[3]);
    CHECK(freopen("/proc/meminfo", "r", stream) == stream);
    CHECK(fgets(line, sizeof line, stream));
    order("%s", strtok(line, "\n"));
    say("nowhere: %s", freopen("/nonexistent/file", "r", stream) ? "there" : strerrorname_np(errno));
    FILE* device = fopen("/dev/urandom", "re");
    say("a device's number: %d, wide %d", fileno(device) >= 0, fwide(device, 1) > 0);
    fclose(device);
}

// The mode alone.
static void other_modes(void) {
    write_file("modes", "0123456789");
    FILE* stream = fopen(in_folder("modes"), "r");
    CHECK(stream && fgetc(stream) == '0');
    CHECK(freopen(NULL, "r+", stream) == stream);
    say("again from the start: %c", fgetc(stream));
    CHECK(fseek(stream, 0, SEEK_END) == 0 && fputs("end", stream) >= 0);
    CHECK(freopen(NULL, "a", stream) == stream);
    fputs("+", stream);
    CHECK(freopen(in_folder("modes"), "re", stream) == stream);
    say("closed by exec: %d", fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC);
    CHECK(fclose(stream) == 0);
    tell_file("modes");
}

// A child of two pipes whose standard streams are led elsewhere and back.
static void child(void) {
    char line[64];
    if (fgets(line, sizeof line, stdin)) printf("first %s", line);
    fprintf(stderr, "an error\n");
    CHECK(freopen(in_folder("input"), "r", stdin) == stdin);
    if (fgets(line, sizeof line, stdin)) printf("then %s", line);
    CHECK(freopen(in_folder("output"), "w", stdout) == stdout);
    wprintf(L"wide %ls\n", L"words");
    printf("not wide\n");
    CHECK(freopen(in_folder("errors"), "w", stderr) == stderr);
    fwprintf(stderr, L"wide errors\n");
    exit(0);
}

static void standard_streams_of_a_child(void) {
    int input[2], output[2], errors[2], status;
    char text[512] = "";
    CHECK(pipe(input) == 0 && pipe(output) == 0 && pipe(errors) == 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(input[0], 0), dup2(output[1], 1), dup2(errors[1], 2);
        closefrom(3);
        child();
    }
    close(input[0]), close(output[1]), close(errors[1]);
    usleep(10000);
    dprintf(input[1], "of the pipe\n");
    FILE* out = fdopen(output[0], "r");
    while (fgets(text, sizeof text, out)) say("out: %s", strtok(text, "\n"));
    CHECK(fclose(out) == 0);
    say("err: %zd", read(errors[0], text, sizeof text));
    close(errors[0]), close(input[1]);
    CHECK(waitpid(pid, &status, 0) == pid);
    say("status %d", status);
    tell_file("output");
    tell_file("errors");
}

static void* wait_for_a_line(void* stream) {
    char line[64];
    return fgets(line, sizeof line, stream);
}

// Whoever is cancelled in it gives the stream back.
static void cancelled_reader(void) {
    int ends[2];
    pthread_t thread;
    void* result;
    char line[64];
    CHECK(pipe(ends) == 0);
    FILE* stream = fdopen(ends[0], "r");
    CHECK(pthread_create(&thread, NULL, wait_for_a_line, stream) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    say("cancelled %d, free %d", result == PTHREAD_CANCELED, ftrylockfile(stream));
    funlockfile(stream);
    dprintf(ends[1], "afterwards\n");
    close(ends[1]);
    say("read %s", fgets(line, sizeof line, stream) ? strtok(line, "\n") : "-");
    CHECK(fclose(stream) == 0);
}

static void scenario(void) {
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    CHECK(mkdtemp(folder));
    from_file_to_pipe_and_back();
    reads_elsewhere();
    of_sockets();
    of_connections();
    of_fifos_and_devices();
    other_modes();
    standard_streams_of_a_child();
    cancelled_reader();
    for (const char* const* name = (const char* const[]){"first", "second", "input", "fifo", "modes", "output", "errors", NULL}; *name; name++)
        unlink(in_folder(*name));
    say("rmdir %d", rmdir(folder));
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
