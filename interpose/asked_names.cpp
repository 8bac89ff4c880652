// Host names that a program asks for without waiting (getaddrinfo_a). libc makes threads for it that the
// schedule would not know, so it is done here by threads like any other of the program: the requests are
// begun in the order that they were made in.
#include <netdb.h>

#include <cstdlib>
#include <optional>

#include "interpose/core/blocking.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/notice_threads.hpp"

namespace crane::interpose {
namespace {

constexpr uint32_t kMostWorkers = 20;  ///< glibc's, too

/// One call: who waits for all that it asks for, or is told of its end.
struct Asking {
    uint32_t left = 0;
    bool waited_for = true;
    sigevent told{};
};

struct Request {
    Request* next;
    gaicb* block;
    Asking* of;
    bool under_way;
};

/// This process's; the schedule's order guards it.
struct Table {
    uint64_t owner;  ///< Process::ordinal + 1: a forked child starts afresh
    uint32_t workers;
    Request* first;
};
Table own_table;

uint64_t done_key() {
    return address_key(&own_table);
}

/// Turn in hand.
Table& table() {
    if (own_table.owner != runtime.process->ordinal + 1)
        own_table = {runtime.process->ordinal + 1, 0, nullptr};
    return own_table;
}

Request* request_of(const gaicb* block) {
    Request* one = table().first;
    while (one && one->block != block) one = one->next;
    return one;
}

/// Turn in hand. What is left to do for it outside of the turn: over() is.
class Finished {
  public:
    Finished(Request* request, int result) : request_(request) {
        Request** place = &table().first;
        while (*place != request) place = &(*place)->next;
        *place = request->next;
        __atomic_store_n(&request->block->__return, result, __ATOMIC_RELEASE);
        Asking* asking = request->of;
        if (--asking->left == 0 && !asking->waited_for) told_ = asking;
        scheduler().signal(done_key(), ~uint32_t{0});
    }
    void over() {
        free(request_);
        if (!told_) return;
        give_notice(told_->told, SI_ASYNCNL);
        free(told_);
    }

  private:
    Request* request_;
    Asking* told_ = nullptr;
};

void* work(void*) {
    for (;;) {
        Request* request = nullptr;
        {
            Operation turn(Op::kResolve, done_key());
            for (request = table().first; request && request->under_way;) request = request->next;
            if (!request) {
                --table().workers;
                return nullptr;
            }
            request->under_way = true;
        }
        gaicb& block = *request->block;
        const int result = ::getaddrinfo(block.ar_name, block.ar_service, block.ar_request, &block.ar_result);
        const auto end = [&] {
            Operation turn(Op::kResolve, done_key());
            return Finished(request, result);
        };
        end().over();
    }
}

/// What was counted as workers begins to work. Where there can be no thread at all, it is this one.
void begin_workers(uint32_t count) {
    for (; count > 0; --count) {
        if (begin_helper(work)) continue;
        bool none_else;
        {
            Operation turn(Op::kResolve, done_key());
            table().workers -= count - 1;
            none_else = table().workers == 1;
            if (!none_else) --table().workers;
        }
        if (none_else) work(nullptr);
        return;
    }
}

/// Requests of a list, not asked yet. False: not all found memory.
bool make_requests(gaicb* const* list, int count, Asking* asking, Request*& first) {
    bool all = true;
    Request** end = &first;
    for (int i = 0; i < count; ++i) {
        if (!list[i]) continue;
        auto* one = static_cast<Request*>(malloc(sizeof(Request)));
        all = all && one;
        if (!one) continue;
        *one = {nullptr, list[i], asking, false};
        *end = one;
        end = &one->next;
        ++asking->left;
    }
    return all;
}

/// How many workers are to begin.
uint32_t enqueue(Request* first) {
    Operation turn(Op::kResolve, done_key());
    uint32_t count = 0;
    for (const Request* one = first; one; one = one->next, ++count)
        __atomic_store_n(&one->block->__return, EAI_INPROGRESS, __ATOMIC_RELEASE);
    Table& t = table();
    Request** place = &t.first;
    while (*place) place = &(*place)->next;
    *place = first;
    const uint32_t more = count < kMostWorkers - t.workers ? count : kMostWorkers - t.workers;
    t.workers += more;
    return more;
}

int ask_for_all(gaicb* const* list, int count, Asking* asking) {
    Request* first = nullptr;
    const bool all = make_requests(list, count, asking, first);
    // Who has asked for nothing is told at once.
    const bool nothing = !first && !asking->waited_for;
    if (first) begin_workers(enqueue(first));
    if (nothing) {
        give_notice(asking->told, SI_ASYNCNL);
        free(asking);
    }
    if (all) return 0;
    errno = EAGAIN;
    return EAI_SYSTEM;
}

bool in_progress(const gaicb* block) {
    return block && __atomic_load_n(&block->__return, __ATOMIC_ACQUIRE) == EAI_INPROGRESS;
}

int count_in_progress(const gaicb* const* list, int count) {
    int found = 0;
    for (int i = 0; i < count; ++i) found += in_progress(list[i]) && request_of(list[i]);
    return found;
}

}  // namespace
}  // namespace crane::interpose

using namespace crane::interpose;

CRANE_EXPORT int getaddrinfo_a(int mode, gaicb* list[], int count, sigevent* told) {
    if (!active()) return resolve_real(), real.getaddrinfo_a(mode, list, count, told);
    if (mode == GAI_WAIT) {
        Asking asking;
        const int result = ask_for_all(list, count, &asking);
        Operation turn(Op::kResolve, done_key());
        while (asking.left > 0) turn.outlast(done_key());
        return result;
    }
    if (mode != GAI_NOWAIT) {
        errno = EINVAL;
        return EAI_SYSTEM;
    }
    auto* asking = static_cast<Asking*>(malloc(sizeof(Asking)));
    if (!asking) return EAI_AGAIN;
    *asking = {0, false, {}};
    asking->told.sigev_notify = SIGEV_NONE;
    if (told) asking->told = *told;
    return ask_for_all(list, count, asking);
}

CRANE_EXPORT int gai_suspend(const gaicb* const list[], int count, const timespec* timeout) {
    if (!active()) return resolve_real(), real.gai_suspend(list, count, timeout);
    const uint64_t deadline = timeout ? deadline_from_relative_ns(to_ns(*timeout)) : crane::dmt::kNoDeadline;
    Operation turn(Op::kResolve, done_key());
    const int before = count_in_progress(list, count);
    if (before == 0) return EAI_ALLDONE;
    while (count_in_progress(list, count) == before) {
        switch (turn.wait(done_key(), deadline, true)) {
            case crane::dmt::WaitResult::kTimedOut:
                return EAI_AGAIN;
            case crane::dmt::WaitResult::kInterrupted:
                return EAI_INTR;
            case crane::dmt::WaitResult::kSignaled:
                break;
        }
    }
    return 0;
}

CRANE_EXPORT int gai_cancel(gaicb* block) noexcept {
    if (!active()) return resolve_real(), real.gai_cancel(block);
    const auto remove = [&]() -> std::optional<Finished> {
        Operation turn(Op::kResolve, done_key());
        Request* found = request_of(block);
        if (!found || found->under_way) return {};
        return Finished(found, EAI_CANCELED);
    };
    if (std::optional<Finished> removed = remove()) {
        removed->over();
        return EAI_CANCELED;
    }
    return in_progress(block) ? EAI_NOTCANCELED : EAI_ALLDONE;
}

/// Who asks again and again lets it be done.
CRANE_EXPORT int gai_error(gaicb* block) noexcept {
    if (!active()) return resolve_real(), real.gai_error(block);
    Operation turn(Op::kResolve, done_key());
    if (in_progress(block)) turn.yield();
    return block->__return;
}
