// Folders that are read again, or through another descriptor, or change under who reads them; and the times
// of files that a program sets itself.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

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

// Where one time is set the other stays.
static void one_of_both(void) {
    struct stat before, after;
    const struct timespec second[2] = {{0, UTIME_OMIT}, {5, 6}};
    make("held");
    CHECK(stat(path_of("held"), &before) == 0 && utimensat(AT_FDCWD, path_of("held"), second, 0) == 0);
    CHECK(stat(path_of("held"), &after) == 0);
    say("read when it was: %d",
        before.st_atim.tv_sec == after.st_atim.tv_sec && before.st_atim.tv_nsec == after.st_atim.tv_nsec);
    say("changed at %ld.%09ld", (long)after.st_mtime, after.st_mtim.tv_nsec);
}

static const char* time_of(struct timespec time, struct timespec other) {
    const long apart_s = time.tv_sec - other.tv_sec, apart_ns = time.tv_nsec - other.tv_nsec;
    return apart_s > 0 || (apart_s == 0 && apart_ns > 0) ? "later"
           : apart_s == 0 && apart_ns == 0               ? "the same"
                                                         : "before";
}

static struct stat looked_at(int fd) {
    struct stat info;
    CHECK(fstat(fd, &info) == 0);
    order("changed %ld.%09ld, written %ld.%09ld", (long)info.st_ctime, info.st_ctim.tv_nsec,
          (long)info.st_mtime, info.st_mtim.tv_nsec);
    return info;
}

static void changed(const char* how, int fd, int done) {
    static struct stat before;
    const struct stat now = looked_at(fd);
    if (how)
        say("%s: %s, changed %s, written %s", how, outcome(done), time_of(now.st_ctim, before.st_ctim),
            time_of(now.st_mtim, before.st_mtim));
    before = now;
    usleep(20000);
}

// What is no write changes a file, too: who asks others to touch a file now and then (gunicorn its workers,
// by fchmod of a file without a name) finds that they did.
static void changes(void) {
    const struct timespec past[2] = {{5, 0}, {7, 0}};
    int fd = open(path_of("changed"), O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    char first[128], second[128], third[128];
    strcpy(first, path_of("changed")), strcpy(second, path_of("second")), strcpy(third, path_of("third"));
    changed(NULL, fd, 0);
    changed("mode", fd, fchmod(fd, 0644));
    changed("nothing", fd, 0);
    changed("mode by name", fd, chmod(first, 0600));
    changed("owner", fd, fchown(fd, 0, 0));
    changed("attribute", fd, fsetxattr(fd, "user.one", "1", 1, 0));
    changed("no attribute", fd, removexattr(first, "user.one"));
    changed("a second name", fd, link(first, second));
    changed("another name", fd, rename(second, third));
    changed("one name less", fd, unlink(third));
    changed("bytes", fd, pwrite(fd, "one", 3, 0) == 3 ? 0 : -1);
    changed("times", fd, futimens(fd, past));
    say("written at %ld", (long)looked_at(fd).st_mtime);
    changed(NULL, fd, 0);
    changed("no name", fd, unlink(first));
    changed("mode without a name", fd, fchmod(fd, 0611));
    // An attribute does not hide when it was written.
    CHECK(pwrite(fd, "two", 3, 0) == 3);
    changed("bytes and an attribute", fd, fsetxattr(fd, "user.two", "2", 1, 0));
    close(fd);
}

// Who may write a file, but does not own it, may say that it has just changed, and nothing else.
static int touched(const char* name, const struct timespec* both, int error) {
    return utimensat(AT_FDCWD, path_of(name), both, 0) == -1 ? errno == error : error == 0;
}

static void by_another(void) {
    const struct timespec old[2] = {{5, 6}, {7, 8}}, now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    int status;
    struct stat info;
    CHECK(chmod(folder, 0711) == 0 && chmod(path_of("one"), 0666) == 0 && chmod(path_of("two"), 0644) == 0);
    CHECK(utimensat(AT_FDCWD, path_of("one"), old, 0) == 0);
    const pid_t child = fork();
    if (child == 0) {
        if (seteuid(65534) != 0) _exit(1);
        if (!touched("one", old, EPERM)) _exit(2);
        if (!touched("one", NULL, 0) || !touched("one", now, 0)) _exit(3);
        if (stat(path_of("one"), &info) != 0 || info.st_mtime < 1000000000) _exit(4);
        _exit(touched("two", NULL, EACCES) && touched("two", now, EACCES) && touched("two", old, EPERM) ? 8
                                                                                                        : 5);
    }
    CHECK(waitpid(child, &status, 0) == child);
    say("by another user: %d", WEXITSTATUS(status));
    CHECK(stat(path_of("one"), &info) == 0);
    say("and it has changed: %d", info.st_mtime > 1000000000);
}

static void scenario(void) {
    snprintf(folder, sizeof folder, "/tmp/reread.XXXXXX");
    CHECK(mkdtemp(folder));
    make("one"), make("two"), make("three");
    folders();
    times();
    one_of_both();
    changes();
    by_another();
    const char* names[] = {"one", "two", "three", "made meanwhile", "later", "timed", "link", "held"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) CHECK(unlink(path_of(names[n])) == 0);
    CHECK(rmdir(folder) == 0);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
