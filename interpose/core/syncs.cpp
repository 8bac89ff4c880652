#include "interpose/core/syncs.hpp"

#include <linux/futex.h>

#include <atomic>

#include "interpose/core/operation.hpp"
#include "interpose/core/raw.hpp"
#include "interpose/core/selector.hpp"

namespace crane::interpose {

namespace {

constexpr unsigned kWords = 64;
constexpr uint32_t kAwaited = 1u << 31;

/// How many syncs are under way of the descriptors that share the word. Raised with the turn in hand.
std::atomic<uint32_t> under_way[kWords];
/// Whose they are: a child of fork() has none of its parent's threads.
pid_t owner = 0;

std::atomic<uint32_t>& word_of(unsigned fd) {
    if (owner != runtime.process->pid) {
        for (auto& word : under_way) word.store(0, std::memory_order_relaxed);
        owner = runtime.process->pid;
    }
    return under_way[fd % kWords];
}

struct Sync {
    long number, arguments[4];
    std::atomic<uint32_t>* word;
    long rc;
};

void make(void* what) {
    auto& sync = *static_cast<Sync*>(what);
    const long(&a)[4] = sync.arguments;
    {
        const CallsPass pass;
        sync.rc = raw(sync.number, a[0], a[1], a[2], a[3]);
    }
    if (sync.word->fetch_sub(1, std::memory_order_acq_rel) != (kAwaited | 1)) return;
    uint32_t expected = kAwaited;  // who waits may have seen it already, and another sync may have begun
    sync.word->compare_exchange_strong(expected, 0, std::memory_order_acq_rel);
    raw(SYS_futex, sync.word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 0x7fffffff, 0, 0, 0);
}

void await_word(std::atomic<uint32_t>& word) {
    while (word.load(std::memory_order_acquire) != 0) {
        const uint32_t seen = word.fetch_or(kAwaited, std::memory_order_acq_rel) | kAwaited;
        if (seen == kAwaited) {
            word.store(0, std::memory_order_relaxed);  // the last one ended just before
            return;
        }
        raw(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, 0, 0, 0);
    }
}

}  // namespace

long sync_beside(long number, int fd, long from, long bytes, long flags) {
    Operation turn(Op::kSync, descriptor_key(fd));
    std::atomic<uint32_t>& word = word_of(static_cast<unsigned>(fd));
    word.fetch_add(1, std::memory_order_relaxed);
    Sync sync{number, {fd, from, bytes, flags}, &word, 0};
    scheduler().beside(self.slot, static_cast<uint32_t>(Op::kSync), make, &sync);
    return sync.rc;
}

void await_syncs(unsigned first, unsigned last) {
    if (last - first >= kWords) last = first + kWords - 1;
    for (unsigned fd = first; fd <= last; ++fd) await_word(word_of(fd));
}

}  // namespace crane::interpose
