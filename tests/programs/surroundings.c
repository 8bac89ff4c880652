// All that a program can read of where it runs: /proc, /sys, file systems, limits, the kernel. Whatever ground a
// replica stands on, it is told the same.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "serve.h"

enum { kMostEntries = 6000, kMostBytes = 1 << 16, kDepth = 12 };

static int entries;

static unsigned long sum(unsigned long h, const char* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) h = h * 33 + (unsigned char)bytes[i];
    return h;
}

static void show_status(const char* how, const char* path, const struct stat* info) {
    order("%s %s mode %o links %lu owner %u:%u size %ld blocks %ld of %ld inode %lu on %lx time %ld.%09ld", how, path,
          info->st_mode, info->st_nlink, info->st_uid, info->st_gid, (long)info->st_size, (long)info->st_blocks,
          (long)info->st_blksize, info->st_ino, info->st_dev, info->st_mtim.tv_sec, info->st_mtim.tv_nsec);
}

static void show_extended(const char* path) {
    struct statx info;
    memset(&info, 0, sizeof info);
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_ALL | 0x1000, &info) == 0)
        order("statx %s %016lx mask %x attributes %llx of %llx", path, sum(5381, (char*)&info, sizeof info), info.stx_mask,
              (long long)info.stx_attributes, (long long)info.stx_attributes_mask);
}

static void read_file(const char* path) {
    static char text[kMostBytes];
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        order("open %s %s", path, outcome(fd));
        return;
    }
    size_t used = 0;
    ssize_t n = 0;
    while (used < sizeof text && (n = read(fd, text + used, sizeof text - used)) > 0) used += (size_t)n;
    const int lines = used > 40 ? 40 : (int)used;
    char begin[41] = "";
    for (int i = 0; i < lines; ++i) begin[i] = text[i] < ' ' ? '|' : text[i];
    order("read %s %zu %s %016lx %s", path, used, outcome(n < 0 ? -1 : 0), sum(5381, text, used), begin);
    close(fd);
}

// What may not be read as others are: memory, what takes what it gives, and other names of the same.
static int is_left_out(const char* path) {
    static const char* const names[] = {"/proc/self/mem", "/proc/self/clear_refs", "/proc/self/task", "/proc/self/cwd",
                                        "/proc/self/root", "/proc/self/map_files", "/proc/kmsg", "/proc/thread-self"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        if (strcmp(path, names[i]) == 0) return 1;
    return 0;
}

static void look(const char* path, int depth);

static void walk(const char* folder, int depth) {
    DIR* directory = opendir(folder);
    if (!directory) {
        order("folder %s %s", folder, outcome(-1));
        return;
    }
    for (struct dirent* entry; (entry = readdir(directory)) && entries < kMostEntries;) {
        char path[4096];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        // Processes: itself by its other name.
        if (strcmp(folder, "/proc") == 0 && strspn(entry->d_name, "0123456789") == strlen(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        order("entry %s type %d inode %lu", path, entry->d_type, (unsigned long)entry->d_ino);
        look(path, depth + 1);
    }
    closedir(directory);
}

static void look(const char* path, int depth) {
    struct stat info;
    if (is_left_out(path) || ++entries > kMostEntries) return;
    if (lstat(path, &info) != 0) {
        order("lstat %s %s", path, outcome(-1));
        return;
    }
    show_status("lstat", path, &info);
    if (S_ISLNK(info.st_mode)) {
        char target[4096] = "";
        const ssize_t n = readlink(path, target, sizeof target - 1);
        order("link %s %s %s", path, outcome(n), n < 0 ? "" : target);
    } else if (S_ISREG(info.st_mode)) {
        read_file(path);
    } else if (S_ISDIR(info.st_mode) && depth < kDepth) {
        walk(path, depth);
    }
}

static void file_systems(void) {
    static const char* const paths[] = {"/",     "/tmp", "/var",      "/var/tmp", "/etc/passwd", "/proc",  "/sys",
                                        "/home", "/dev", "/dev/shm", "/run",     "/dev/pts",    "/usr",   "/proc/version",
                                        "/bin",  ".",    "/dev/null", "/opt",     "/srv",        "/nowhere"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; ++i) {
        struct statfs a;
        struct statvfs b, c;
        struct stat info;
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        memset(&c, 0, sizeof c);
        char said[64];
        strcpy(said, outcome(statfs(paths[i], &a)));
        order("statfs %s %s type %lx blocks %ld/%ld/%ld of %ld files %ld/%ld id %x name %ld unit %ld flags %lx", paths[i],
              said, (long)a.f_type, (long)a.f_blocks, (long)a.f_bfree, (long)a.f_bavail,
              (long)a.f_bsize, (long)a.f_files, (long)a.f_ffree, *(unsigned*)&a.f_fsid, (long)a.f_namelen,
              (long)a.f_frsize, (long)a.f_flags);
        strcpy(said, outcome(statvfs(paths[i], &b)));
        order("statvfs %s %s %016lx", paths[i], said, sum(5381, (char*)&b, sizeof b));
        const int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        struct statfs d;
        memset(&d, 0, sizeof d);
        strcpy(said, outcome(fstatfs(fd, &d)));
        order("fstatfs %s %s the same %d", paths[i], said, memcmp(&a, &d, sizeof a) == 0);
        strcpy(said, outcome(fstatvfs(fd, &c)));
        order("fstatvfs %s %s the same %d", paths[i], said, memcmp(&b, &c, sizeof b) == 0);
        memset(&d, 0, sizeof d);
        strcpy(said, outcome(syscall(SYS_statfs, paths[i], &d)));
        order("by number %s %s the same %d", paths[i], said, memcmp(&a, &d, sizeof a) == 0);
        for (int name = 0; name < 21; ++name) {
            errno = 0;
            order("pathconf %s %d %ld", paths[i], name, pathconf(paths[i], name));
            order("fpathconf %s %d %ld", paths[i], name, fpathconf(fd, name));
        }
        if (fd >= 0) close(fd);
        if (stat(paths[i], &info) == 0) show_status("stat", paths[i], &info);
        show_extended(paths[i]);
    }
}

static void by_other_paths(void) {
    static const char* const names[] = {"version", "self/status", "self/mountinfo", "meminfo", "sys/kernel/osrelease",
                                        "net/tcp", "stat", "self/cgroup", "uptime"};
    const int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        char text[4096], path[128];
        int fd = openat(proc, names[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, text, sizeof text);
        order("below a descriptor %s %s %016lx", names[i], outcome(n), sum(5381, text, n > 0 ? (size_t)n : 0));
        close(fd);
        snprintf(path, sizeof path, "/proc/../proc/./%s", names[i]);
        FILE* stream = fopen(path, "r");
        n = stream ? (ssize_t)fread(text, 1, sizeof text, stream) : -1;
        order("with dots %s %s %016lx", names[i], outcome(n), sum(5381, text, n > 0 ? (size_t)n : 0));
        if (stream) fclose(stream);
    }
    close(proc);
}

static void kernel_and_machine(void) {
    struct utsname system, by_number;
    CHECK(uname(&system) == 0 && syscall(SYS_uname, &by_number) == 0);
    order("uname %s|%s|%s|%s|%s|%s", system.sysname, system.nodename, system.release, system.version, system.machine,
          system.domainname);
    order("by number %s %s", by_number.release, by_number.version);
    say("release fits %d", strncmp(system.release, by_number.release, sizeof system.release) == 0);
    // _SC_MINSIGSTKSZ and _SC_SIGSTKSZ follow from the kind of processor.
    for (int name = 0; name < 249; ++name) order("sysconf %d %ld", name, sysconf(name));
    for (int name = 0; name < RLIM_NLIMITS; ++name) {
        struct rlimit limit;
        CHECK(getrlimit(name, &limit) == 0);
        order("limit %d %lu %lu", name, limit.rlim_cur, limit.rlim_max);
    }
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    order("processors %d %d on %d of %016lx", get_nprocs(), get_nprocs_conf(), sched_getcpu(),
          sum(5381, (char*)&set, sizeof set));
}

static void own_files(void) {
    char folder[] = "/var/tmp/crane-ground-XXXXXX", path[128];
    struct stat info;
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    for (int size = 0; size < 20000; size += 1900) {
        const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
        CHECK(fd >= 0 && ftruncate(fd, size) == 0 && pwrite(fd, "x", 1, size) == 1);
        close(fd);
        CHECK(stat(path, &info) == 0);
        show_status("own", "file", &info);
    }
    show_extended(path);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

static void scenario(void) {
    kernel_and_machine();
    file_systems();
    own_files();
    by_other_paths();
    entries = 0;
    look("/proc", 0);
    entries = 0;
    look("/proc/self/net", 0);
    entries = 0;
    walk("/proc/self", 0);
    entries = 0;
    look("/sys", 0);
    entries = 0;
    look("/dev", 0);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
