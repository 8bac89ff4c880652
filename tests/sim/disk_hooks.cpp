// Berkeley DB's system calls, answered by the simulated disks. It offers a replacement for each but two:
// stat(), by which it numbers files, and the short read() of the log's end, whose replacement could only read
// in full. Those two are defined here in libc's stead, and pass on what is not below /sim/.
#include <db.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.hpp"
#include "disk_registry.hpp"

namespace crane::sim {
namespace {

constexpr int kFirstFd = 1 << 20;
constexpr std::string_view kPrefix = "/sim/";

struct Handle {
    Disk* disk = nullptr;
    Disk::FileRef file;
    uint64_t position = 0;
};

std::vector<Handle> handles;
std::vector<Disk*> mounted;

Handle& handle(int fd) {
    CRANE_CHECK(fd >= kFirstFd && static_cast<size_t>(fd - kFirstFd) < handles.size());
    return handles[static_cast<size_t>(fd - kFirstFd)];
}

Disk* disk_of(std::string_view path) {
    for (Disk* disk : mounted) {
        const std::string& root = disk->root();
        if (path.substr(0, root.size()) == root && (path.size() == root.size() || path[root.size()] == '/'))
            return disk;
    }
    return nullptr;
}

int fail(int error) {
    errno = error;
    return -1;
}

int hook_open(const char* path, int flags, ...) {
    Disk* disk = disk_of(path);
    if (disk == nullptr) return fail(ENOENT);
    Disk::FileRef file;
    const int error = disk->open(path, flags & O_CREAT, flags & O_EXCL, flags & O_TRUNC, file);
    if (error != 0) return fail(error);
    size_t slot = 0;
    while (slot < handles.size() && handles[slot].file != nullptr) ++slot;
    if (slot == handles.size()) handles.emplace_back();
    handles[slot] = {disk, file, 0};
    return kFirstFd + static_cast<int>(slot);
}

int hook_close(int fd) {
    handle(fd) = {};
    return 0;
}

ssize_t read_at(const Disk::File& file, void* buffer, size_t count, uint64_t offset) {
    if (offset >= file.live.size()) return 0;
    const size_t got = std::min<uint64_t>(count, file.live.size() - offset);
    std::memcpy(buffer, file.live.data() + offset, got);
    return static_cast<ssize_t>(got);
}

ssize_t hook_pread(int fd, void* buffer, size_t count, off_t offset) {
    return read_at(*handle(fd).file, buffer, count, static_cast<uint64_t>(offset));
}

ssize_t hook_write(int fd, const void* buffer, size_t count) {
    Handle& to = handle(fd);
    const int error = to.disk->write(*to.file, to.position, static_cast<const char*>(buffer), count);
    if (error != 0) return fail(error);
    to.position += count;
    return static_cast<ssize_t>(count);
}

ssize_t hook_pwrite(int fd, const void* buffer, size_t count, off_t offset) {
    Handle& to = handle(fd);
    const int error =
        to.disk->write(*to.file, static_cast<uint64_t>(offset), static_cast<const char*>(buffer), count);
    return error != 0 ? fail(error) : static_cast<ssize_t>(count);
}

int hook_seek(int fd, off_t offset, int whence) {
    CRANE_CHECK(whence == SEEK_SET);
    handle(fd).position = static_cast<uint64_t>(offset);
    return 0;
}

// From here on Berkeley DB expects the error itself.
int hook_sync(int fd) {
    return handle(fd).disk->sync(*handle(fd).file);
}

int hook_truncate(int fd, off_t size) {
    return handle(fd).disk->truncate(*handle(fd).file, static_cast<uint64_t>(size));
}

int hook_rename(const char* from, const char* to) {
    Disk* disk = disk_of(from);
    return disk == nullptr ? ENOENT : disk->rename(from, to);
}

int hook_unlink(const char* path) {
    Disk* disk = disk_of(path);
    return disk == nullptr ? ENOENT : disk->unlink(path);
}

int hook_exists(const char* path, int* is_directory) {
    Disk* disk = disk_of(path);
    if (disk == nullptr) return ENOENT;
    const bool root = disk->root() == path;
    if (!root && !disk->exists(path)) return ENOENT;
    if (is_directory != nullptr) *is_directory = root;
    return 0;
}

int hook_ioinfo(const char*, int fd, u_int32_t* megabytes, u_int32_t* bytes, u_int32_t* io_bytes) {
    const uint64_t size = handle(fd).file->live.size();
    if (megabytes != nullptr) *megabytes = static_cast<u_int32_t>(size >> 20);
    if (bytes != nullptr) *bytes = static_cast<u_int32_t>(size & ((1 << 20) - 1));
    if (io_bytes != nullptr) *io_bytes = 4096;
    return 0;
}

int hook_dirlist(const char* path, char*** names, int* count) {
    Disk* disk = disk_of(path);
    if (disk == nullptr) return ENOENT;
    const std::vector<std::string> found = disk->names();
    *names = static_cast<char**>(std::calloc(found.size() + 1, sizeof(char*)));
    *count = static_cast<int>(found.size());
    for (size_t i = 0; i < found.size(); ++i) (*names)[i] = strdup(found[i].c_str());
    return 0;
}

// Berkeley DB decides some things by bytes that nobody has written: they have to be the same each time.
void* hook_malloc(size_t size) {
    return std::calloc(1, size);
}

void* hook_realloc(void* old, size_t size) {
    const size_t had = old == nullptr ? 0 : malloc_usable_size(old);
    char* memory = static_cast<char*>(std::calloc(1, size));
    if (memory == nullptr) return nullptr;
    std::memcpy(memory, old, std::min(had, size));
    std::free(old);
    return memory;
}

void hook_dirfree(char** names, int count) {
    for (int i = 0; i < count; ++i) std::free(names[i]);
    std::free(names);
}

}  // namespace

Mount::Mount(Disk& disk) : disk_(disk) {
    mounted.push_back(&disk);
}

Mount::~Mount() {
    std::erase(mounted, &disk_);
}

void install_disk_hooks() {
    db_env_set_func_malloc(hook_malloc);
    db_env_set_func_realloc(hook_realloc);
    db_env_set_func_free(std::free);
    db_env_set_func_open(hook_open);
    db_env_set_func_close(hook_close);
    db_env_set_func_pread(hook_pread);
    db_env_set_func_write(hook_write);
    db_env_set_func_pwrite(hook_pwrite);
    db_env_set_func_seek(hook_seek);
    db_env_set_func_fsync(hook_sync);
    db_env_set_func_ftruncate(hook_truncate);
    db_env_set_func_rename(hook_rename);
    db_env_set_func_unlink(hook_unlink);
    db_env_set_func_exists(hook_exists);
    db_env_set_func_ioinfo(hook_ioinfo);
    db_env_set_func_dirlist(hook_dirlist);
    db_env_set_func_dirfree(hook_dirfree);
}

}  // namespace crane::sim

extern "C" ssize_t read(int fd, void* buffer, size_t count) {
    using namespace crane::sim;
    if (fd < kFirstFd) return syscall(SYS_read, fd, buffer, count);
    Handle& from = handle(fd);
    const ssize_t got = read_at(*from.file, buffer, count, from.position);
    from.position += static_cast<uint64_t>(got);
    return got;
}

extern "C" int stat(const char* __restrict path, struct stat* __restrict result) {
    using namespace crane::sim;
    Disk* disk = std::string_view(path).substr(0, kPrefix.size()) == kPrefix ? disk_of(path) : nullptr;
    if (disk == nullptr) return fstatat(AT_FDCWD, path, result, 0);
    const Disk::FileRef file = disk->find(path);
    if (file == nullptr) return fail(ENOENT);
    *result = {};
    result->st_ino = file->number;
    result->st_mode = S_IFREG | 0600;
    result->st_size = static_cast<off_t>(file->live.size());
    return 0;
}

// Berkeley DB notes when it did what, and acts on it: the time of day stands still.
extern "C" time_t time(time_t* result) {
    constexpr time_t kNow = 1'700'000'000;
    if (result != nullptr) *result = kNow;
    return kNow;
}

extern "C" int clock_gettime(clockid_t clock, timespec* result) {
    if (clock != CLOCK_REALTIME) return static_cast<int>(syscall(SYS_clock_gettime, clock, result));
    *result = {time(nullptr), 0};
    return 0;
}
