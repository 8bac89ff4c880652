// Intrusive lists and the deadline heap over slot indices.
#pragma once

#include "dmt_scheduler/state.hpp"

namespace crane::dmt {

void push_tail(State& s, Bucket& list, SlotId id);
void push_head(State& s, Bucket& list, SlotId id);
void unlink(State& s, Bucket& list, SlotId id);
SlotId pop_head(State& s, Bucket& list);

void push_set_waiter(State& s, SlotId id);
void unlink_set_waiter(State& s, SlotId id);

Bucket& bucket_of(State& s, uint64_t key);

/// Binary min-heap by (deadline, slot): equal deadlines fall due in the order of slot numbers.
void heap_insert(State& s, SlotId id);
void heap_remove(State& s, SlotId id);

}  // namespace crane::dmt
