// POSIX asynchronous input and output. libc makes threads for it that the schedule would not know, so it is
// done here by threads like any other of the program: requests for one descriptor one after the other, in the
// order that they were made in, as libc does. Results are 0, a value, or -errno.
#pragma once

#include <aio.h>

namespace crane::interpose {

/// Operations beside LIO_READ and LIO_WRITE.
constexpr int kSyncOperation = 128, kDataSyncOperation = 129;

struct AioList;  ///< lio_listio's

/// -errno is in the block, too.
long enqueue_aio(aiocb* block, int operation, AioList* list);
long enqueue_aio_list(int mode, aiocb* const* blocks, int count, const sigevent* told);
long suspend_for_aio(const aiocb* const* list, int count, const timespec* timeout);
long cancel_aio(int fd, const aiocb* block);
/// aio_error(): who asks again and again lets it be done.
int error_of_aio(const aiocb* block);

}  // namespace crane::interpose
