#include "dmt_scheduler/queues.hpp"

namespace crane::dmt {

void push_tail(State& s, Bucket& list, SlotId id) {
    Slot& slot = s.slots[id];
    slot.next = kNoSlot;
    slot.previous = list.tail;
    if (list.tail != kNoSlot) {
        s.slots[list.tail].next = id;
    } else {
        list.head = id;
    }
    list.tail = id;
}

void push_head(State& s, Bucket& list, SlotId id) {
    Slot& slot = s.slots[id];
    slot.previous = kNoSlot;
    slot.next = list.head;
    (list.head != kNoSlot ? s.slots[list.head].previous : list.tail) = id;
    list.head = id;
}

void unlink(State& s, Bucket& list, SlotId id) {
    Slot& slot = s.slots[id];
    (slot.previous != kNoSlot ? s.slots[slot.previous].next : list.head) = slot.next;
    (slot.next != kNoSlot ? s.slots[slot.next].previous : list.tail) = slot.previous;
    slot.next = slot.previous = kNoSlot;
}

SlotId pop_head(State& s, Bucket& list) {
    const SlotId id = list.head;
    if (id != kNoSlot) unlink(s, list, id);
    return id;
}

void push_set_waiter(State& s, SlotId id) {
    Slot& slot = s.slots[id];
    slot.set_next = kNoSlot;
    slot.set_previous = s.set_waiters.tail;
    if (s.set_waiters.tail != kNoSlot) {
        s.slots[s.set_waiters.tail].set_next = id;
    } else {
        s.set_waiters.head = id;
    }
    s.set_waiters.tail = id;
}

void unlink_set_waiter(State& s, SlotId id) {
    Slot& slot = s.slots[id];
    (slot.set_previous != kNoSlot ? s.slots[slot.set_previous].set_next : s.set_waiters.head) = slot.set_next;
    (slot.set_next != kNoSlot ? s.slots[slot.set_next].set_previous : s.set_waiters.tail) = slot.set_previous;
    slot.set_next = slot.set_previous = kNoSlot;
}

Bucket& bucket_of(State& s, uint64_t key) {
    uint64_t h = key * 0x9e37'79b9'7f4a'7c15ULL;
    return s.buckets[(h >> 32) % kWaitBuckets];
}

namespace {

bool earlier(const State& s, SlotId a, SlotId b) {
    const uint64_t da = s.slots[a].deadline_ns, db = s.slots[b].deadline_ns;
    return da != db ? da < db : a < b;
}

void place(State& s, uint32_t at, SlotId id) {
    s.heap[at] = id;
    s.slots[id].heap_place = at + 1;
}

void sift_up(State& s, uint32_t at) {
    const SlotId id = s.heap[at];
    while (at > 0) {
        const uint32_t parent = (at - 1) / 2;
        if (!earlier(s, id, s.heap[parent])) break;
        place(s, at, s.heap[parent]);
        at = parent;
    }
    place(s, at, id);
}

void sift_down(State& s, uint32_t at) {
    const SlotId id = s.heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= s.heap_size) break;
        if (child + 1 < s.heap_size && earlier(s, s.heap[child + 1], s.heap[child])) ++child;
        if (!earlier(s, s.heap[child], id)) break;
        place(s, at, s.heap[child]);
        at = child;
    }
    place(s, at, id);
}

}  // namespace

void heap_insert(State& s, SlotId id) {
    const uint32_t at = s.heap_size++;
    place(s, at, id);
    sift_up(s, at);
}

void heap_remove(State& s, SlotId id) {
    const uint32_t at = s.slots[id].heap_place - 1;
    s.slots[id].heap_place = 0;
    const SlotId last = s.heap[--s.heap_size];
    if (last == id) return;
    place(s, at, last);
    sift_up(s, at);
    sift_down(s, s.slots[last].heap_place - 1);
}

}  // namespace crane::dmt
