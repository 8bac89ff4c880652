// The deadline heap and the lists, against models.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <set>

#include "dmt_scheduler/queues.hpp"
#include "dmt_scheduler/scheduler.hpp"
#include "test_dmt_fibers.hpp"

using namespace crane::dmt;
using testing::Dice;

TEST_CASE("deadline heap: random operations agree with an ordered set", "[dmt]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        auto s = std::make_unique<State>();
        Dice dice{seed};
        std::set<std::pair<uint64_t, SlotId>> model;
        const uint64_t range = 1 + dice.below(200);  // small ranges: many equal deadlines
        for (int step = 0; step < 3000; ++step) {
            const auto id = static_cast<SlotId>(dice.below(300));
            Slot& slot = s->slots[id];
            const uint64_t choice = dice.below(10);
            if (slot.heap_place == 0 && choice < 7) {
                slot.deadline_ns = 1 + dice.below(range);
                heap_insert(*s, id);
                model.insert({slot.deadline_ns, id});
            } else if (slot.heap_place != 0 && choice < 5) {
                heap_remove(*s, id);  // from the middle, as a signal does
                model.erase({slot.deadline_ns, id});
            } else if (!model.empty() && choice >= 8) {
                const SlotId top = s->heap[0];
                REQUIRE(std::pair(s->slots[top].deadline_ns, top) == *model.begin());
                heap_remove(*s, top);
                model.erase(model.begin());
            }
            REQUIRE(s->heap_size == model.size());
            REQUIRE((slot.heap_place != 0) == (model.count({slot.deadline_ns, id}) == 1));
        }
        while (!model.empty()) {
            REQUIRE(s->heap[0] == model.begin()->second);
            heap_remove(*s, s->heap[0]);
            model.erase(model.begin());
        }
    }
}

TEST_CASE("deadline heap: holds every slot there is", "[dmt]") {
    auto s = std::make_unique<State>();
    for (SlotId id = 0; id < kMaxThreads; ++id) {
        s->slots[id].deadline_ns = 1 + (id * 2654435761u) % 100;
        heap_insert(*s, id);
    }
    REQUIRE(s->heap_size == kMaxThreads);
    std::pair<uint64_t, SlotId> last{0, 0};
    while (s->heap_size) {
        const SlotId id = s->heap[0];
        const std::pair<uint64_t, SlotId> now{s->slots[id].deadline_ns, id};
        REQUIRE(last < now);
        last = now;
        heap_remove(*s, id);
    }
}

TEST_CASE("lists: random operations agree with a deque", "[dmt]") {
    auto s = std::make_unique<State>();
    Bucket list{kNoSlot, kNoSlot};
    std::deque<SlotId> model;
    Dice dice{5};
    for (int step = 0; step < 5000; ++step) {
        const auto id = static_cast<SlotId>(dice.below(40));
        const auto at = std::find(model.begin(), model.end(), id);
        if (dice.below(4) == 0) {
            const SlotId expected = model.empty() ? kNoSlot : model.front();
            REQUIRE(pop_head(*s, list) == expected);
            if (!model.empty()) model.pop_front();
        } else if (at == model.end()) {
            push_tail(*s, list, id);
            model.push_back(id);
        } else {
            unlink(*s, list, id);
            model.erase(at);
        }
        REQUIRE(list.head == (model.empty() ? kNoSlot : model.front()));
        REQUIRE(list.tail == (model.empty() ? kNoSlot : model.back()));
    }
}
