// Streams of wide characters, in memory and of the program's own making, and commands' streams: over pipes and
// sockets as over files.
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <sys/wait.h>
#include <wchar.h>

#include "serve.h"

static const char* bytes_of(const wchar_t* wide) {
    static char text[512];
    const size_t length = wcstombs(text, wide, sizeof text);
    if (length == (size_t)-1) return "?";
    text[strcspn(text, "\n")] = 0;
    return text;
}

static void* answer_late(void* descriptor) {
    const int fd = (int)(long)descriptor;
    for (const char* const* piece = (const char* const[]){"gr\303", "\274n wie\nein ", "\342\202", "\254\n", NULL}; *piece; piece++) {
        usleep(5000);
        write_all(fd, *piece, strlen(*piece));
    }
    close(fd);
    return NULL;
}

// Characters whose bytes come one after the other.
static void over_pipes(void) {
    int ends[2];
    wchar_t line[64];
    pthread_t writer;
    CHECK(pipe(ends) == 0);
    FILE* stream = fdopen(ends[0], "r");
    say("neither: %d", fwide(stream, 0));
    say("wide: %d", fwide(stream, 1) > 0);
    CHECK(pthread_create(&writer, NULL, answer_late, (void*)(long)ends[1]) == 0);
    say("getwc %lc", getwc(stream));
    say("ungetwc %lc", ungetwc(L'G', stream));
    while (fgetws(line, 64, stream)) say("line %s", bytes_of(line));
    say("its end %d", feof(stream) != 0);
    CHECK(pthread_join(writer, NULL) == 0 && fclose(stream) == 0);
}

static void over_sockets(void) {
    int pair[2], number = 0;
    wchar_t word[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    FILE *one = fdopen(pair[0], "r+"), *other = fdopen(pair[1], "r+");
    say("fputws %d", fputws(L"\u20ac eins\n", one) >= 0);
    say("fwprintf %d", fwprintf(one, L"%ls %d\n", L"\u03b1\u03b2", 17));
    CHECK(fflush(one) == 0);
    say("line %s", fgetws(word, 64, other) ? bytes_of(word) : "-");
    say("fwscanf %d", fwscanf(other, L"%63ls %d", word, &number));
    say("word %s %d", bytes_of(word), number);
    say("fputs to a wide one %d", fputs("bytes", one));
    CHECK(fclose(one) == 0);
    say("getwc %d", getwc(other) == L'\n');
    say("getwc %d", getwc(other) == WEOF);
    CHECK(fclose(other) == 0);
}

static void with_a_character_set(void) {
    char path[] = "/tmp/crane-wide-XXXXXX", bytes[64] = "";
    wchar_t line[64];
    close(mkstemp(path));
    FILE* stream = fopen(path, "w,ccs=ISO-8859-1");
    CHECK(stream);
    say("fputws %d", fputws(L"gr\u00fcn\n", stream) >= 0);
    CHECK(fclose(stream) == 0);
    CHECK((stream = fopen(path, "r")) != NULL);
    const size_t got = fread(bytes, 1, sizeof bytes, stream);
    say("bytes %zu, the third is %02x", got, (unsigned char)bytes[2]);
    CHECK(freopen(path, "r,ccs=ISO-8859-1", stream) == stream);
    say("line %s", fgetws(line, 64, stream) ? bytes_of(line) : "-");
    say("unknown: %s", fopen(path, "r,ccs=NO-SUCH-SET") ? "taken" : strerrorname_np(errno));
    CHECK(fclose(stream) == 0 && unlink(path) == 0);
}

static void in_memory(void) {
    wchar_t* wide = NULL;
    char *text = NULL, line[64], fixed[16] = "";
    size_t length = 0;
    FILE* stream = open_wmemstream(&wide, &length);
    CHECK(stream);
    say("wide: %d, number %d", fwide(stream, 0) > 0, fileno(stream));
    for (int i = 0; i < 100; i++) fwprintf(stream, L"%d ", i);
    fflush(stream);
    say("length %zu", length);
    fseek(stream, 2, SEEK_SET);
    fputwc(L'\u20ac', stream);
    CHECK(fclose(stream) == 0);
    say("length %zu %s", length, bytes_of(wide));
    free(wide);
    CHECK((stream = open_memstream(&text, &length)) != NULL);
    fprintf(stream, "some text");
    rewind(stream);
    fputc('S', stream);
    CHECK(fclose(stream) == 0);
    say("text %zu %s", length, text);
    free(text);
    CHECK((stream = fmemopen(fixed, sizeof fixed, "w+")) != NULL);
    say("fits %d", fputs("more than there is room for", stream) >= 0 && fflush(stream) == 0);
    rewind(stream);
    say("read %s", fgets(line, sizeof line, stream) ? line : "-");
    say("closed %d", fclose(stream));
}

static ssize_t give(void* cookie, char* place, size_t bytes) {
    return read(*(int*)cookie, place, bytes < 3 ? bytes : 3);
}
static ssize_t take(void* cookie, const char* from, size_t bytes) {
    return write(*(int*)cookie, from, bytes);
}
static int moved(void* cookie, off64_t* place, int from) {
    (void)cookie;
    *place = from == SEEK_SET ? *place : 77;
    return 0;
}
static int end(void* cookie) {
    say("its close");
    return close(*(int*)cookie);
}

static void of_its_own(void) {
    int ends[2];
    char line[64];
    CHECK(pipe(ends) == 0);
    FILE* reader = fopencookie(&ends[0], "r", (cookie_io_functions_t){give, NULL, NULL, end});
    FILE* writer = fopencookie(&ends[1], "w", (cookie_io_functions_t){NULL, take, moved, end});
    CHECK(reader && writer);
    say("bytes only: %d, number %s", fwide(reader, 1) < 0, outcome(fileno(reader)));
    fprintf(writer, "a line of %d\n", 3);
    say("fseek %d", fseek(writer, 5, SEEK_SET));
    say("ftell %ld", ftell(writer));
    say("read %s", fgets(line, sizeof line, reader) ? strtok(line, "\n") : "-");
    CHECK(fclose(writer) == 0);
    say("its end %d", fgetc(reader));
    CHECK(fclose(reader) == 0);
}

static void of_commands(void) {
    char line[64];
    FILE* stream = popen("printf 'gr\\303\\274n\\n'; exit 3", "re");
    CHECK(stream);
    say("closed by exec %d", fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC);
    say("line %s", fgets(line, sizeof line, stream) ? strtok(line, "\n") : "-");
    say("status %d", WEXITSTATUS(pclose(stream)));
    CHECK((stream = popen("read word; test \"$word\" = w\303\266rter", "ew")) != NULL);
    say("fputs %d", fputs("w\303\266rter\n", stream) >= 0);
    say("status %d", WEXITSTATUS(pclose(stream)));
    CHECK((stream = popen("true", "r")) != NULL);
    say("kept by exec %d", !(fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC));
    say("status %d", pclose(stream));
    for (const char* const* mode = (const char* const[]){"", "e", "rw", "r+", "rb", "x", NULL}; *mode; mode++)
        say("mode %s: %s", *mode, popen("true", *mode) ? "taken" : strerrorname_np(errno));
}

// A stream of a child's that was narrow for its parent.
static void of_a_child(void) {
    int ends[2], status;
    char text[256] = "";
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        closefrom(3);
        if (fwide(stdout, 1) <= 0) exit(9);
        for (int i = 0; i < 3; i++) wprintf(L"%d %lc\n", i, L'\u20ac');
        exit(0);
    }
    close(ends[1]);
    ssize_t all = 0, got;
    while ((got = read(ends[0], text + all, sizeof text - 1 - all)) > 0) all += got;
    close(ends[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    say("status %d, %zd bytes: %s", status, all, text);
}

static void scenario(void) {
    CHECK(setlocale(LC_ALL, "C.UTF-8"));
    over_pipes();
    over_sockets();
    with_a_character_set();
    in_memory();
    of_its_own();
    of_commands();
    of_a_child();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
