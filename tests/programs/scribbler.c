// A server whose child writes over all that it shares with others, when a client says so; and counts, on its disk, what
// it was told.
#include "serve.h"

#include <libgen.h>
#include <stdint.h>
#include <sys/wait.h>

static void scribble(void) {
    uint64_t begins[32], ends[32];
    size_t count = 0;
    char line[512];
    FILE* maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps) && count < 32) {
        char* behind;
        begins[count] = strtoull(line, &behind, 16);
        ends[count] = strtoull(behind + 1, &behind, 16);
        if (strncmp(behind, " rw-s", 5) == 0) ++count;
    }
    for (size_t n = 0; n < count; n++) {
        for (uint64_t at = begins[n]; at < ends[n]; at += 64) *(volatile uint64_t*)at = at * 0x9e3779b97f4a7c15;
    }
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    CHECK(chdir(dirname(argv[0])) == 0);
    const int listener = listen_on(atoi(argv[1]));
    for (;;) {
        const int client = accept(listener, NULL, NULL);
        char word[256], text[32] = "0";
        CHECK(client >= 0);
        if (read_line(client, word, sizeof word) >= 0) {
            FILE* file = fopen("counted", "r");
            if (file) {
                CHECK(fgets(text, sizeof text, file));
                fclose(file);
            }
            if (strcmp(word, "scribble") == 0) {
                const pid_t child = fork();
                if (child == 0) {
                    scribble();
                    _exit(0);
                }
                waitpid(child, NULL, 0);
            }
            snprintf(text, sizeof text, "%d\n", atoi(text) + 1);
            CHECK((file = fopen("counted", "w")) && fputs(text, file) >= 0 && fclose(file) == 0);
            write_all(client, text, strlen(text));
        }
        close(client);
    }
}
