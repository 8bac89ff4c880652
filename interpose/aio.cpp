// POSIX asynchronous input and output by libc's names (asynchronous.hpp does it).
#include "interpose/asynchronous.hpp"

#include "interpose/core/blocking.hpp"
#include "interpose/core/threads.hpp"

using namespace crane::interpose;

CRANE_EXPORT int aio_read(aiocb* block) noexcept {
    if (!active()) return resolve_real(), real.aio_read(block);
    return static_cast<int>(as_libc(enqueue_aio(block, LIO_READ, nullptr)));
}
CRANE_EXPORT int aio_write(aiocb* block) noexcept {
    if (!active()) return resolve_real(), real.aio_write(block);
    return static_cast<int>(as_libc(enqueue_aio(block, LIO_WRITE, nullptr)));
}
CRANE_EXPORT int aio_fsync(int operation, aiocb* block) noexcept {
    if (!active()) return resolve_real(), real.aio_fsync(operation, block);
    if (operation != O_SYNC && operation != O_DSYNC) return static_cast<int>(as_libc(-EINVAL));
    const long flags = raw(SYS_fcntl, block->aio_fildes, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return static_cast<int>(as_libc(-EBADF));
    return static_cast<int>(
        as_libc(enqueue_aio(block, operation == O_SYNC ? kSyncOperation : kDataSyncOperation, nullptr)));
}
CRANE_EXPORT int lio_listio(int mode, aiocb* const* blocks, int count, sigevent* told) noexcept {
    if (!active()) return resolve_real(), real.lio_listio(mode, blocks, count, told);
    return static_cast<int>(as_libc(enqueue_aio_list(mode, blocks, count, told)));
}
CRANE_EXPORT int aio_error(const aiocb* block) noexcept {
    if (!active()) return resolve_real(), real.aio_error(block);
    return error_of_aio(block);
}
CRANE_EXPORT ssize_t aio_return(aiocb* block) noexcept {
    if (!active()) return resolve_real(), real.aio_return(block);
    return block->__return_value;
}
CRANE_EXPORT int aio_suspend(const aiocb* const* list, int count, const timespec* timeout) {
    if (!active()) return resolve_real(), real.aio_suspend(list, count, timeout);
    if (count < 0) return static_cast<int>(as_libc(-EINVAL));
    test_cancel();
    const long rc = suspend_for_aio(list, count, timeout);
    test_cancel();
    return static_cast<int>(as_libc(rc));
}
CRANE_EXPORT int aio_cancel(int fd, aiocb* block) noexcept {
    if (!active()) return resolve_real(), real.aio_cancel(fd, block);
    return static_cast<int>(as_libc(cancel_aio(fd, block)));
}

// The same on machines where off_t has 64 bits.
static_assert(sizeof(aiocb) == sizeof(aiocb64) && sizeof(off_t) == 8);
CRANE_EXPORT int aio_read64(aiocb64* block) noexcept {
    return aio_read(reinterpret_cast<aiocb*>(block));
}
CRANE_EXPORT int aio_write64(aiocb64* block) noexcept {
    return aio_write(reinterpret_cast<aiocb*>(block));
}
CRANE_EXPORT int aio_fsync64(int operation, aiocb64* block) noexcept {
    return aio_fsync(operation, reinterpret_cast<aiocb*>(block));
}
CRANE_EXPORT int lio_listio64(int mode, aiocb64* const* blocks, int count, sigevent* told) noexcept {
    return lio_listio(mode, reinterpret_cast<aiocb* const*>(blocks), count, told);
}
CRANE_EXPORT int aio_error64(const aiocb64* block) noexcept {
    return aio_error(reinterpret_cast<const aiocb*>(block));
}
CRANE_EXPORT ssize_t aio_return64(aiocb64* block) noexcept {
    return aio_return(reinterpret_cast<aiocb*>(block));
}
CRANE_EXPORT int aio_suspend64(const aiocb64* const* list, int count, const timespec* timeout) {
    return aio_suspend(reinterpret_cast<const aiocb* const*>(list), count, timeout);
}
CRANE_EXPORT int aio_cancel64(int fd, aiocb64* block) noexcept {
    return aio_cancel(fd, reinterpret_cast<aiocb*>(block));
}
