// Where the heap goes on after stdio has made its buffers, and what one read of a stream takes.
#include "serve.h"

static void use(const char* what, FILE* stream) {
    CHECK(stream != NULL);
    CHECK(fputs("some text\n", stream) >= 0);
    void* behind = malloc(100);
    order("%s: %p", what, behind);
    free(behind);
}

static void scenario(void) {
    char name[] = "streams-XXXXXX";
    const int fd = mkstemp(name);
    CHECK(fd >= 0);
    FILE* opened = fopen(name, "r+");
    FILE* of_descriptor = fdopen(fd, "w");
    FILE* temporary = tmpfile();
    FILE* again = fopen("/dev/null", "w");
    CHECK((again = freopen(name, "a", again)) != NULL);
    use("fopen", opened);
    use("fdopen", of_descriptor);
    use("tmpfile", temporary);
    use("freopen", again);
    use("stdout", stdout);
    fflush(stdout);
    CHECK(fclose(opened) == 0 && fclose(of_descriptor) == 0 && fclose(temporary) == 0 && fclose(again) == 0);

    FILE* set = fopen(name, "w+");
    static char own[777];
    CHECK(set != NULL && setvbuf(set, own, _IOFBF, sizeof(own)) == 0);
    use("setvbuf", set);
    rewind(set);
    char line[64];
    say("read back %s", fgets(line, sizeof(line), set) ? line : "nothing");
    CHECK(fclose(set) == 0 && unlink(name) == 0);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
