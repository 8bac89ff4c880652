// Folders that are read again, or through another descriptor, or change under who reads them; and the times
// of files that a program sets itself.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "serve.h"

static char folder[64];

static const char* path_of(const char* name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void make(const char* name) {
    int fd = open(path_of(name), O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static int count(DIR* directory) {
    int entries = 0;
    while (readdir(directory)) entries++;
    return entries;
}

static int count_from(int fd) {
    DIR* directory = fdopendir(dup(fd));
    CHECK(directory);
    int entries = count(directory);
    closedir(directory);
    return entries;
}

static void folders(void) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY), file;
    DIR* directory = fdopendir(dup(fd));
    CHECK(fd >= 0 && directory);
    say("read: %d", count(directory));
    rewinddir(directory);
    say("behind it, after it was rewound: %d", count_from(fd));
    say("and again: %d", count_from(fd));
    rewinddir(directory);
    CHECK(readdir(directory));
    long place = telldir(directory);
    rewinddir(directory);
    seekdir(directory, place);
    say("from the second on: %d", count(directory));
    closedir(directory);
    close(fd);
    directory = opendir(folder);
    make("made meanwhile");
    say("made behind opendir(): %d", count(directory));
    make("later");
    rewinddir(directory);
    say("made before it was rewound: %d", count(directory));
    closedir(directory);
    file = open(path_of("later"), O_RDONLY);
    say("of a file: %s", fdopendir(file) ? "is one" : outcome(-1));
    say("of none: %s", fdopendir(-1) ? "is one" : outcome(-1));
    close(file);
}

static void times_of(const char* what, const char* name) {
    struct stat info;
    CHECK(stat(path_of(name), &info) == 0);
    say("%s: %ld.%09ld, %ld.%09ld", what, (long)info.st_atime, info.st_atim.tv_nsec, (long)info.st_mtime,
        info.st_mtim.tv_nsec);
}

static void times(void) {
    struct timespec both[2] = {{1000, 2000}, {3000000000, 4000}}, old[2] = {{-5, 7}, {0, UTIME_OMIT}};
    struct timespec neither[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    int fd = open(path_of("timed"), O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && futimens(fd, both) == 0);
    times_of("set", "timed");
    CHECK(rename(path_of("timed"), "/tmp/reread.away") == 0 &&
          rename("/tmp/reread.away", path_of("timed")) == 0);
    times_of("renamed", "timed");
    CHECK(utimensat(AT_FDCWD, path_of("timed"), old, 0) == 0);
    times_of("the first", "timed");
    CHECK(utimensat(AT_FDCWD, path_of("timed"), neither, 0) == 0);
    times_of("neither", "timed");
    CHECK(symlink("timed", path_of("link")) == 0 &&
          utimensat(AT_FDCWD, path_of("link"), both, AT_SYMLINK_NOFOLLOW) == 0);
    times_of("another's", "timed");
    close(fd);
}

static void scenario(void) {
    snprintf(folder, sizeof folder, "/tmp/reread.XXXXXX");
    CHECK(mkdtemp(folder));
    make("one"), make("two"), make("three");
    folders();
    times();
    const char* names[] = {"one", "two", "three", "made meanwhile", "later", "timed", "link"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) CHECK(unlink(path_of(names[n])) == 0);
    CHECK(rmdir(folder) == 0);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
