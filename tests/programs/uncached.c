// What the kernel has of a file in its memory differs by replica: reading without waiting for the disk, and
// asking which pages are there.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "serve.h"

enum { kPages = 16, kPage = 4096 };

static void drop_pages(int fd) {
    CHECK(fsync(fd) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

static long resident(void* pages) {
    unsigned char there[kPages];
    long count = 0;
    if (mincore(pages, kPages * kPage, there) != 0) return -1;
    for (int i = 0; i < kPages; ++i) count += there[i];
    return count;
}

static void scenario(void) {
    char path[] = "/var/tmp/crane-uncached-XXXXXX", page[kPage], text[8] = "";
    const int fd = mkstemp(path);
    int ends[2];
    struct stat info;
    struct iovec in = {text, sizeof text}, out = {page, sizeof page};
    CHECK(fd >= 0 && pipe(ends) == 0);
    memset(page, 'x', sizeof page);
    for (int i = 0; i < kPages; ++i) CHECK(write(fd, page, sizeof page) == sizeof page);
    drop_pages(fd);
    order("at a place: %s", outcome(preadv2(fd, &in, 1, kPage, RWF_NOWAIT)));
    drop_pages(fd);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    order("at the next: %s", outcome(preadv2(fd, &in, 1, -1, RWF_NOWAIT)));
    order("which is now %ld", (long)lseek(fd, 0, SEEK_CUR));
    order("written: %s", outcome(pwritev2(fd, &out, 1, kPage, RWF_NOWAIT)));
    order("behind the end: %s", outcome(pwritev2(fd, &out, 1, kPages * kPage, RWF_NOWAIT | RWF_DSYNC)));
    order("of a pipe: %s", outcome(preadv2(ends[0], &in, 1, -1, RWF_NOWAIT)));
    order("other flags: %s", outcome(preadv2(fd, &in, 1, 0, 1 << 20)));
    CHECK(fstat(fd, &info) == 0);
    order("changed at %ld.%09ld", (long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    char* const pages = mmap(NULL, kPages * kPage, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(pages != MAP_FAILED);
    drop_pages(fd);
    order("there: %ld", resident(pages));
    say("not a page: %s", outcome(mincore(pages + 1, kPage, (unsigned char*)text)));
    say("to a bad place: %s", outcome(mincore(pages, kPage, (unsigned char*)8)));
    CHECK(munmap(pages, kPages * kPage) == 0);
    say("nothing there: %s", outcome(mincore(pages, kPage, (unsigned char*)text)));
    close(fd);
    close(ends[0]);
    close(ends[1]);
    CHECK(unlink(path) == 0);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
