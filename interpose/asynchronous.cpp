#include "interpose/asynchronous.hpp"

#include <cstring>

#include "interpose/core/blocking.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/notice_threads.hpp"

namespace crane::interpose {
namespace {

constexpr size_t kMostRequests = 1024;
constexpr uint32_t kMostWorkers = 20;  ///< glibc's default, too
constexpr int kMostPriority = 20;      ///< AIO_PRIO_DELTA_MAX

enum class Stage : uint8_t { kFree = 0, kQueued, kUnderWay };

}  // namespace

/// Who waits for all of a list, or is told of its end.
struct AioList {
    uint32_t left;  ///< requests not done yet, and one while it is being made
    uint32_t failed;
    bool waited_for;
    sigevent told;
};

namespace {

struct Request {
    Stage stage;
    int operation;
    uint64_t order;
    aiocb* block;
    AioList* list;
};

/// This process's; the schedule's order guards it.
struct Table {
    uint64_t owner;  ///< Process::ordinal + 1: a forked child starts afresh
    uint64_t made;
    uint32_t workers;
    Request requests[kMostRequests];
    AioList lists[kMostRequests];
};
Table own_table;

uint64_t done_key() {
    return address_key(&own_table);
}

/// Turn in hand.
Table& table() {
    if (own_table.owner != runtime.process->ordinal + 1) {
        std::memset(&own_table, 0, sizeof(own_table));
        own_table.owner = runtime.process->ordinal + 1;
    }
    return own_table;
}

struct Notice {
    bool wanted = false;
    sigevent event;
};

long transfer(const Request& request) {
    const aiocb& block = *request.block;
    auto* bytes = const_cast<void*>(block.aio_buf);
    const int fd = block.aio_fildes;
    ssize_t rc = -1;
    switch (request.operation) {
        case LIO_READ:
            rc = ::pread(fd, bytes, block.aio_nbytes, block.aio_offset);
            if (rc < 0 && errno == ESPIPE) rc = ::read(fd, bytes, block.aio_nbytes);
            break;
        case LIO_WRITE:
            rc = ::pwrite(fd, bytes, block.aio_nbytes, block.aio_offset);
            if (rc < 0 && errno == ESPIPE) rc = ::write(fd, bytes, block.aio_nbytes);
            break;
        case kSyncOperation:
            rc = ::fsync(fd);
            break;
        default:
            rc = ::fdatasync(fd);
            break;
    }
    return rc < 0 ? -errno : rc;
}

/// Turn in hand. What has to be told outside of the turn is put into `notices`.
void finish(Request& request, long rc, Notice (&notices)[2]) {
    request.block->__return_value = rc < 0 ? -1 : rc;
    __atomic_store_n(&request.block->__error_code, rc < 0 ? static_cast<int>(-rc) : 0, __ATOMIC_RELEASE);
    notices[0] = {true, request.block->aio_sigevent};
    if (AioList* list = request.list) {
        if (rc < 0) ++list->failed;
        if (--list->left == 0 && !list->waited_for) {
            notices[1] = {true, list->told};
            *list = {};
        }
    }
    request = {};
    scheduler().signal(done_key(), ~uint32_t{0});
}

/// The oldest request that waits for none before it on its descriptor.
Request* next_request() {
    Request* next = nullptr;
    for (Request& one : own_table.requests) {
        if (one.stage != Stage::kQueued || (next && next->order < one.order)) continue;
        bool first = true;
        for (const Request& other : own_table.requests)
            first = first && (other.stage == Stage::kFree ||
                              other.block->aio_fildes != one.block->aio_fildes || other.order >= one.order);
        if (first) next = &one;
    }
    return next;
}

void* work(void*) {
    for (;;) {
        Request* request = nullptr;
        {
            Operation turn(Op::kFile, done_key());
            request = next_request();
            if (!request) {
                --own_table.workers;
                return nullptr;
            }
            request->stage = Stage::kUnderWay;
        }
        const long rc = transfer(*request);
        Notice notices[2];
        {
            Operation turn(Op::kFile, done_key());
            finish(*request, rc, notices);
        }
        for (const Notice& notice : notices)
            if (notice.wanted) give_notice(notice.event, SI_ASYNCIO);
    }
}

long refuse(aiocb* block, int error) {
    block->__error_code = error;
    block->__return_value = -1;
    return -error;
}

}  // namespace

/// 0 or -errno, which is in the block, too.
long enqueue_aio(aiocb* block, int operation, AioList* list) {
    if (operation == kSyncOperation || operation == kDataSyncOperation) {
        block->aio_reqprio = 0;  // as libc does
    } else if (block->aio_reqprio < 0 || block->aio_reqprio > kMostPriority) {
        return refuse(block, EINVAL);
    }
    bool wants_worker = false;
    Request* made = nullptr;
    {
        Operation turn(Op::kFile, done_key());
        Table& t = table();
        for (size_t i = 0; i < kMostRequests && !made; ++i)
            if (t.requests[i].stage == Stage::kFree) made = &t.requests[i];
        if (!made) return refuse(block, EAGAIN);
        *made = {Stage::kQueued, operation, ++t.made, block, list};
        block->__error_code = EINPROGRESS;
        block->__return_value = 0;
        if (list) ++list->left;
        wants_worker = t.workers < kMostWorkers;
        if (wants_worker) ++t.workers;
    }
    if (!wants_worker || begin_helper(work)) return 0;
    Operation turn(Op::kFile, done_key());
    // Others may do it; without any it is not done.
    if (--own_table.workers > 0 || made->block != block || made->stage != Stage::kQueued) return 0;
    if (list) --list->left;
    *made = {};
    return refuse(block, EAGAIN);
}

namespace {

bool in_progress(const aiocb* block) {
    return block && __atomic_load_n(&block->__error_code, __ATOMIC_ACQUIRE) == EINPROGRESS;
}

}  // namespace

long suspend_for_aio(const aiocb* const* list, int count, const timespec* timeout) {
    const uint64_t deadline = timeout ? deadline_from_relative_ns(to_ns(*timeout)) : dmt::kNoDeadline;
    Operation turn(Op::kFile, done_key());
    for (;;) {
        bool any = false, all_wait = true;
        for (int i = 0; i < count; ++i) {
            if (!list[i]) continue;
            any = true;
            all_wait = all_wait && in_progress(list[i]);
        }
        if (!any || !all_wait) return 0;
        switch (turn.wait(done_key(), deadline, true)) {
            case dmt::WaitResult::kTimedOut:
                return -EAGAIN;
            case dmt::WaitResult::kInterrupted:
                return -EINTR;
            case dmt::WaitResult::kSignaled:
                break;
        }
    }
}

/// One by one: what has to be told of each is told outside of the turn.
long cancel_aio(int fd, const aiocb* block) {
    if (raw(SYS_fcntl, fd, F_GETFL) < 0) return -EBADF;
    if (block && block->aio_fildes != fd) return -EINVAL;
    bool cancelled = false;
    for (;;) {
        Notice notices[2];
        {
            Operation turn(Op::kFile, done_key());
            Request* found = nullptr;
            bool under_way = false;
            for (Request& one : table().requests) {
                if (one.stage == Stage::kFree || one.block->aio_fildes != fd || (block && one.block != block))
                    continue;
                under_way = under_way || one.stage == Stage::kUnderWay;
                if (one.stage == Stage::kQueued && !found) found = &one;
            }
            if (!found) return under_way ? AIO_NOTCANCELED : cancelled ? AIO_CANCELED : AIO_ALLDONE;
            finish(*found, -ECANCELED, notices);
        }
        cancelled = true;
        for (const Notice& notice : notices)
            if (notice.wanted) give_notice(notice.event, SI_ASYNCIO);
    }
}

namespace {

AioList* new_list(const sigevent* told, bool waited_for) {
    Operation turn(Op::kFile, done_key());
    for (AioList& list : table().lists) {
        if (list.left != 0) continue;
        list = {1, 0, waited_for, {}};
        list.told.sigev_notify = SIGEV_NONE;
        if (told) list.told = *told;
        return &list;
    }
    return nullptr;
}

long await_list(AioList* list) {
    Operation turn(Op::kFile, done_key());
    while (list->left > 1) {
        if (turn.wait(done_key(), dmt::kNoDeadline, true) == dmt::WaitResult::kInterrupted) {
            list->waited_for = false;  // its last request frees it, and nobody is told
            list->told.sigev_notify = SIGEV_NONE;
            --list->left;
            return -EINTR;
        }
    }
    const long rc = list->failed ? -EIO : 0;
    *list = {};
    return rc;
}

}  // namespace

long enqueue_aio_list(int mode, aiocb* const* blocks, int count, const sigevent* told) {
    if (mode != LIO_WAIT && mode != LIO_NOWAIT) return -EINVAL;
    AioList* list = new_list(mode == LIO_NOWAIT ? told : nullptr, mode == LIO_WAIT);
    if (!list) return -EAGAIN;
    bool refused = false;
    for (int i = 0; i < count; ++i) {
        if (!blocks[i] || blocks[i]->aio_lio_opcode == LIO_NOP) continue;
        const int operation = blocks[i]->aio_lio_opcode;
        if (operation != LIO_READ && operation != LIO_WRITE) {
            refused = true;
            refuse(blocks[i], EINVAL);
        } else if (enqueue_aio(blocks[i], operation, list) != 0) {
            refused = true;
        }
    }
    if (mode == LIO_WAIT) {
        const long rc = await_list(list);
        return refused ? -EIO : rc;
    }
    bool over = false;
    sigevent event{};
    {
        Operation turn(Op::kFile, done_key());
        over = --list->left == 0;
        if (over) event = list->told, *list = {};
    }
    if (over) give_notice(event, SI_ASYNCIO);
    return refused ? -EIO : 0;
}

int error_of_aio(const aiocb* block) {
    Operation turn(Op::kFile, done_key());
    if (in_progress(block)) turn.yield();
    return block->__error_code;
}

}  // namespace crane::interpose
