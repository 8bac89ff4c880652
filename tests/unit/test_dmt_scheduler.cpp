// The scheduler, stepped: order of turns, waits, deadlines, ends.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "dmt_scheduler/queues.hpp"
#include "test_dmt_fibers.hpp"

using namespace crane::dmt;
using testing::broken_invariant;
using testing::FiberDomain;

namespace {

constexpr uint32_t kOp = 7;
constexpr uint32_t kAll = ~uint32_t{0};

char name(SlotId id) {
    return static_cast<char>('A' + id);
}

/// Threads A, B, C… in slots 0, 1, 2…, and what they write down.
struct Crew {
    FiberDomain domain;
    std::string trace;

    Crew(Policy policy, uint32_t quantum) : domain(policy, quantum) {}
    Scheduler& s() { return domain.scheduler; }

    /// One operation that leaves its thread's name.
    void operate(SlotId me) {
        s().get_turn(me);
        trace += name(me);
        s().put_turn(me, kOp);
    }
    /// Thread A starts the others in one operation, then runs `first`.
    void run(const std::vector<FiberDomain::Body>& others, FiberDomain::Body first) {
        domain.spawn([=, this](SlotId me) {
            s().get_turn(me);
            for (const auto& body : others) domain.spawn(body);
            s().put_turn(me, kOp);
            first(me);
        });
        domain.run([this] {
            const char* broken = broken_invariant(domain.state());
            if (broken) FAIL(broken);
        });
    }
    FiberDomain::Body waiter(uint64_t key, uint64_t mask = 0, uint64_t deadline = kNoDeadline,
                             bool interruptible = false) {
        return [=, this](SlotId me) {
            s().get_turn(me);
            const WaitResult result = s().wait(me, kOp, key, mask, deadline, interruptible);
            trace += name(me);
            trace += "sti"[static_cast<uint32_t>(result)];
            s().put_turn(me, kOp);
        };
    }
    /// Lets all that can run do so until only the caller is left.
    void let_others_run(SlotId me) {
        do {
            s().get_turn(me);
            s().yield(me);
            s().put_turn(me, kOp);
            s().get_turn(me);
            s().put_turn(me, kOp);
        } while (domain.state().runnable != 0);
    }
};

std::string round_robin(Policy policy, uint32_t quantum) {
    Crew crew(policy, quantum);
    const auto body = [&](SlotId me) {
        for (int i = 0; i < 4; ++i) crew.operate(me);
    };
    crew.run({body, body}, body);
    return crew.trace;
}

}  // namespace

TEST_CASE("scheduler: round robin, an operation each with quantum 1, Q with quantum Q", "[dmt]") {
    // A's first operation, which starts B and C, is not in the trace.
    CHECK(round_robin(Policy::kSerial, 1) == "BCABCABCABCA");
    CHECK(round_robin(Policy::kParallel, 1) == "BCABCABCABCA");
    CHECK(round_robin(Policy::kSerial, 3) == "AABBBCCCAABC");
    CHECK(round_robin(Policy::kParallel, 3) == "AABBBCCCAABC");
    CHECK(round_robin(Policy::kSerial, 100) == "AAAABBBBCCCC");
    CHECK(round_robin(Policy::kSerial, 0) == round_robin(Policy::kSerial, 1));
}

TEST_CASE("scheduler: serial passes the turn when the next operation starts, parallel when one ends",
          "[dmt]") {
    for (const Policy policy : {Policy::kSerial, Policy::kParallel}) {
        Crew crew(policy, 1);
        const auto body = [&](SlotId me) {
            for (int i = 0; i < 2; ++i) {
                crew.operate(me);
                crew.trace += crew.s().holds_turn(me) ? '+' : '-';
                crew.domain.compute();
            }
        };
        crew.run({body}, body);
        if (policy == Policy::kSerial) {
            CHECK(crew.trace == "B+A+B+A+");  // what follows an operation belongs to it
            CHECK(crew.domain.most_able == 1);
        } else {
            CHECK(crew.trace.find('-') != std::string::npos);
            CHECK(crew.domain.most_able > 1);
        }
    }
}

TEST_CASE("scheduler: a thread that yields passes the turn on, whatever is left of its quantum", "[dmt]") {
    for (const Policy policy : {Policy::kSerial, Policy::kParallel}) {
        Crew crew(policy, 100);
        const auto body = [&](SlotId me) {
            for (int i = 0; i < 2; ++i) {
                crew.s().get_turn(me);
                crew.trace += name(me);
                crew.s().yield(me);
                crew.s().put_turn(me, kOp);
            }
        };
        crew.run({body}, body);
        CHECK(crew.trace == "ABAB");
    }
}

TEST_CASE("scheduler: waiters are woken first come first served, no more than asked", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    const uint64_t key = 11;
    uint64_t twin = key + 1;  // another object in the same bucket
    while (&bucket_of(crew.domain.state(), twin) != &bucket_of(crew.domain.state(), key)) ++twin;
    std::vector<uint32_t> woken;
    crew.run({crew.waiter(key), crew.waiter(twin), crew.waiter(key), crew.waiter(key), crew.waiter(key)},
             [&](SlotId me) {
                 const auto signal = [&](uint64_t which, uint32_t most) {
                     crew.s().get_turn(me);
                     woken.push_back(crew.s().signal(which, most));
                     crew.s().put_turn(me, kOp);
                     crew.let_others_run(me);
                     crew.trace += ' ';
                 };
                 crew.let_others_run(me);
                 signal(99, kAll);
                 signal(key, 1);
                 signal(key, 2);
                 signal(twin, 0);
                 signal(twin, kAll);
                 signal(key, kAll);
                 signal(key, kAll);
             });
    CHECK(crew.trace == " Bs DsEs  Cs Fs  ");
    CHECK(woken == std::vector<uint32_t>{0, 1, 2, 0, 1, 1, 0});
}

TEST_CASE("scheduler: requeue wakes some and moves some behind those that wait there", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    uint32_t met = 0;
    crew.run({crew.waiter(1), crew.waiter(1), crew.waiter(1), crew.waiter(1), crew.waiter(2)},
             [&](SlotId me) {
                 crew.let_others_run(me);
                 crew.s().get_turn(me);
                 met = crew.s().requeue(1, 2, 1, 2);  // B runs, C and D move
                 crew.s().put_turn(me, kOp);
                 crew.let_others_run(me);
                 crew.trace += ' ';
                 crew.s().get_turn(me);
                 crew.s().signal(2, kAll);
                 crew.s().put_turn(me, kOp);
                 crew.let_others_run(me);
                 crew.trace += ' ';
                 crew.s().get_turn(me);
                 crew.s().signal(1, kAll);
                 crew.s().put_turn(me, kOp);
             });
    CHECK(met == 3);
    CHECK(crew.trace == "Bs FsCsDs Es");
}

TEST_CASE("scheduler: requeue within one bucket, and of an object to itself, ends", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    uint64_t twin = 2;
    while (&bucket_of(crew.domain.state(), twin) != &bucket_of(crew.domain.state(), 1)) ++twin;
    uint32_t itself = 0, other = 0;
    crew.run({crew.waiter(1), crew.waiter(1), crew.waiter(1)}, [&](SlotId me) {
        crew.let_others_run(me);
        crew.s().get_turn(me);
        // As a futex requeue with no bound: two billion rounds, if each waiter were met again and again.
        itself = crew.s().requeue(1, 1, 0, 0x7fffffff);
        other = crew.s().requeue(1, twin, 0, 0x7fffffff);
        crew.s().signal(twin, kAll);
        crew.s().put_turn(me, kOp);
    });
    CHECK(itself == 3);
    CHECK(other == 3);
    CHECK(crew.trace == "BsCsDs");
}

TEST_CASE("scheduler: waiters on sets are woken by any object in theirs, or by their key", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    crew.run({crew.waiter(1, 0b0011), crew.waiter(2, 0b0100), crew.waiter(3, 0b0110), crew.waiter(4, 0b1000)},
             [&](SlotId me) {
                 const auto then = [&](auto what) {
                     crew.s().get_turn(me);
                     what();
                     crew.s().put_turn(me, kOp);
                     crew.let_others_run(me);
                     crew.trace += ' ';
                 };
                 crew.let_others_run(me);
                 then([&] { crew.s().signal_set(uint64_t{1} << 63); });
                 then([&] { crew.s().signal_set(0b0010); });
                 then([&] { crew.s().signal(4, kAll); });
                 then([&] { crew.s().signal_set(0b1100); });
             });
    CHECK(crew.trace == " BsDs Es Cs ");
    CHECK(crew.domain.state().set_waiters.head == kNoSlot);
}

TEST_CASE("scheduler: deadlines fall due in the order of time, then of slots", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    constexpr uint64_t kSecond = 1'000'000'000;
    uint64_t earliest = 0, after = 1;
    crew.run({crew.waiter(1, 0, 3 * kSecond), crew.waiter(2, 1, 1 * kSecond), crew.waiter(1, 0, 2 * kSecond),
              crew.waiter(1, 0, 1 * kSecond), crew.waiter(1, 0, 9 * kSecond)},
             [&](SlotId me) {
                 crew.let_others_run(me);
                 earliest = crew.s().earliest_deadline_ns();
                 crew.s().get_turn(me);
                 crew.s().advance_time(kSecond - 1000);
                 crew.s().put_turn(me, kOp);
                 crew.trace += ' ';
                 crew.s().get_turn(me);
                 crew.s().advance_time(3 * kSecond);
                 crew.s().advance_time(5);  // never back
                 crew.s().put_turn(me, kOp);
                 crew.let_others_run(me);
                 crew.trace += ' ';
                 crew.s().get_turn(me);
                 crew.s().signal(1, kAll);
                 crew.s().put_turn(me, kOp);
                 crew.let_others_run(me);
                 after = crew.s().earliest_deadline_ns();
             });
    CHECK(earliest == kSecond);
    CHECK(crew.trace == " CtEtDtBt Fs");
    CHECK(after == kNoDeadline);
    CHECK(crew.domain.state().now_ns >= 3 * kSecond);
}

TEST_CASE("scheduler: a deadline comes by operations alone, and one that has passed does not block",
          "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    bool due_before = true;
    crew.run({crew.waiter(1, 0, 100 * kOperationStepNs)}, [&](SlotId me) {
        for (int i = 0; i < 96; ++i) crew.operate(me);
        due_before = crew.trace.find('t') != std::string::npos;
        for (int i = 0; i < 8; ++i) crew.operate(me);
        crew.s().get_turn(me);
        crew.trace += ' ';
        crew.trace += "sti"[static_cast<uint32_t>(crew.s().wait(me, kOp, 3, 0, 1, false))];
        crew.s().put_turn(me, kOp);
    });
    CHECK_FALSE(due_before);
    CHECK(crew.trace.find("Bt") != std::string::npos);
    CHECK(crew.trace.substr(crew.trace.size() - 2) == " t");
    CHECK_FALSE(crew.domain.halted());
}

TEST_CASE("scheduler: when nobody can run the source of input is asked until somebody can", "[dmt]") {
    Crew crew(Policy::kParallel, 1);
    int asked = 0;
    crew.domain.input = [&](bool quiescent) {
        CHECK(quiescent);
        if (++asked == 3) crew.s().signal(5, 1);
        if (asked == 5) crew.s().advance_time(1'000'000);
        if (asked > 5) crew.domain.halt();
    };
    uint64_t clock = 0;
    crew.run({crew.waiter(5)}, [&](SlotId me) {
        crew.waiter(6, 0, 1'000'000)(me);
        clock = crew.domain.state().clock;
    });
    CHECK(crew.trace == "BsAt");
    CHECK(asked == 5);
    CHECK(clock == 6);  // start, two waits, two ends of waits, B's end: standing still costs no clock
}

TEST_CASE("scheduler: the source of input is asked at the clock it named, to the operation", "[dmt]") {
    Crew crew(Policy::kSerial, 4);
    std::vector<uint64_t> asked;
    crew.domain.state().check_clock = 5;
    crew.domain.input = [&](bool quiescent) {
        CHECK_FALSE(quiescent);
        asked.push_back(crew.domain.state().clock);
        crew.domain.state().check_clock += 7;
    };
    const auto body = [&](SlotId me) {
        for (int i = 0; i < 10; ++i) crew.operate(me);
    };
    crew.run({body, body}, body);
    CHECK(asked ==
          std::vector<uint64_t>{5, 12, 19, 26, 33});  // 34 at the end: the last has nobody to admit for
}

TEST_CASE("scheduler: interrupt ends interruptible waits and nothing else", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    std::string done;
    crew.run(
        {crew.waiter(1, 1, 1'000'000'000, true), crew.waiter(1, 0, 0, false), crew.waiter(1, 0, 0, true)},
        [&](SlotId me) {
            const auto interrupt = [&](SlotId slot) { done += crew.s().interrupt(slot) ? 'y' : 'n'; };
            crew.let_others_run(me);
            crew.s().get_turn(me);
            interrupt(1);
            interrupt(1);  // runnable by now
            interrupt(2);
            interrupt(me);
            crew.s().put_turn(me, kOp);
            crew.let_others_run(me);
            crew.s().get_turn(me);
            crew.s().signal(1, kAll);
            crew.s().put_turn(me, kOp);
        });
    CHECK(done == "ynnn");
    CHECK(crew.trace == "BiCsDs");
    CHECK(crew.s().earliest_deadline_ns() == kNoDeadline);
}

TEST_CASE("scheduler: a discarded thread leaves every queue, and its slot starts anew", "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    SlotId reused = kNoSlot, fresh = kNoSlot;
    uint32_t generation = 0;
    crew.run({crew.waiter(1, 1, 5'000'000'000), [&](SlotId me) { crew.operate(me); }, crew.waiter(1)},
             [&](SlotId me) {
                 crew.s().get_turn(me);
                 crew.domain.discard(2);  // has not run yet
                 crew.domain.discard(2);
                 crew.s().put_turn(me, kOp);
                 generation = crew.s().slot(2).generation;
                 crew.let_others_run(me);
                 crew.s().get_turn(me);
                 crew.domain.discard(1);
                 CHECK(crew.s().signal(1, kAll) == 1);
                 reused = crew.domain.spawn([&](SlotId other) { crew.operate(other); });
                 crew.domain.spawn([&](SlotId other) { crew.operate(other); });
                 fresh = crew.domain.spawn([&](SlotId other) { crew.operate(other); });
                 crew.s().put_turn(me, kOp);
             });
    CHECK(reused == 1);
    CHECK(fresh == 4);
    CHECK(crew.s().slot(2).generation == generation + 1);
    CHECK(crew.trace == "DsBCE");
    CHECK(crew.s().earliest_deadline_ns() == kNoDeadline);
    CHECK_FALSE(crew.domain.halted());
}

TEST_CASE("scheduler: a thread that leaves the schedule while it waits is not met again", "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    crew.run({crew.waiter(1, 1, 50'000), crew.waiter(1), [&](SlotId me) { crew.operate(me); }},
             [&](SlotId me) {
                 crew.s().get_turn(me);
                 crew.s().make_opaque(3);
                 crew.s().put_turn(me, kOp);
                 crew.let_others_run(me);
                 crew.s().get_turn(me);
                 crew.s().make_opaque(1);
                 crew.s().advance_time(1'000'000);
                 crew.s().signal_set(~uint64_t{0});
                 CHECK(crew.s().signal(1, kAll) == 1);
                 crew.domain.discard(1);
                 crew.domain.discard(3);
                 crew.s().put_turn(me, kOp);
             });
    CHECK(crew.trace == "Cs");
    CHECK(crew.domain.state().used == 0);
}

TEST_CASE("scheduler: an ending thread frees its slot and passes the turn on", "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    crew.domain.state().check_clock = ~uint64_t{0};
    crew.run({[&](SlotId me) { crew.operate(me); }, [&](SlotId me) { crew.operate(me); }},
             [&](SlotId me) { crew.operate(me); });
    CHECK(crew.trace == "ABC");
    CHECK(crew.domain.state().used == 0);
    CHECK(crew.domain.state().holder == kNoSlot);
    CHECK(crew.domain.state().clock == 7);  // starting, three operations, three ends
    CHECK_FALSE(crew.domain.halted());      // nobody left: no input is asked for
}

TEST_CASE("scheduler: who ends last leaves it to one that waits to ask for input", "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    std::string asked;
    crew.domain.input = [&](bool quiescent) {
        if (!quiescent) return;
        const SlotId asker = crew.domain.state().holder;
        asked += asker == kNoSlot ? '-' : name(asker);
        CHECK(crew.domain.state().slots[0].state == SlotState::kFree);
        CHECK(crew.s().signal(asked.size(), kAll) == 1);
    };
    // C is woken first, though B is the one that asks, and B then in its turn.
    crew.run({crew.waiter(2), crew.waiter(1)}, [&](SlotId me) { crew.let_others_run(me); });
    CHECK(asked == "BB");
    CHECK(crew.trace == "CsBs");
    CHECK(crew.domain.state().used == 0);
    CHECK_FALSE(crew.domain.halted());
}

TEST_CASE("scheduler: more threads than there are slots are refused, and a freed slot is usable", "[dmt]") {
    auto state = std::make_unique<State>();
    Scheduler::format(*state, Policy::kSerial, 1, 0);
    Scheduler s(state.get(), {});
    REQUIRE(s.create(0, true) == 0);
    for (SlotId id = 1; id < kMaxThreads; ++id) REQUIRE(s.create(0, false) == id);
    CHECK(s.create(0, false) == kNoSlot);
    s.discard(17);
    CHECK(s.create(0, false) == 17);
    CHECK(s.create(0, false) == kNoSlot);
    CHECK(state->used == kMaxThreads);
}

TEST_CASE("scheduler: virtual time never falls along a hand-over", "[dmt]") {
    for (const Policy policy : {Policy::kSerial, Policy::kParallel}) {
        for (const uint32_t quantum : {1u, 3u}) {
            Crew crew(policy, quantum);
            uint64_t last = 0;  // handed from thread to thread, as by an atomic variable or a lock
            int fell = 0;
            const auto read = [&](SlotId me) {
                const uint64_t now = crew.s().read_clock(me);
                fell += now <= last;
                last = now;
            };
            const auto body = [&](SlotId me) {
                for (int i = 0; i < 20; ++i) {
                    crew.s().get_turn(me);
                    for (int n = 0; n < 5 * (i % 3); ++n) read(me);
                    if (i % 5 == 4) crew.s().wait(me, kOp, 1, 0, crew.s().read_clock(me) + 500, false);
                    read(me);
                    crew.s().put_turn(me, kOp);
                    // Between operations too, where the thread still has the turn.
                    if (policy == Policy::kSerial) {
                        for (int n = 0; n < 100; ++n) read(me);
                    }
                }
            };
            crew.domain.input = [&](bool) { crew.s().advance_time(crew.s().earliest_deadline_ns()); };
            crew.run({body, body}, body);
            CHECK(fell == 0);
        }
    }
}

namespace {

/// A lock as programs build it from a futex, in a domain whose threads pass the turn on at their operations.
struct FutexLock {
    Crew& crew;
    uint64_t key = 11;
    bool held = false;
    uint32_t waiters = 0;

    void lock(SlotId me) {
        ++waiters;
        while (held) {
            crew.s().get_turn(me);
            if (held) crew.s().wait(me, kOp, key, 0, kNoDeadline, false, true);
            crew.s().put_turn(me, kOp);
        }
        --waiters;
        held = true;
    }
    void unlock(SlotId me) {
        held = false;
        if (waiters == 0) return;
        crew.s().get_turn(me);
        crew.s().signal(key, 1);
        crew.s().put_turn(me, kOp);
    }
};

}  // namespace

TEST_CASE("scheduler: a thread that takes its lock again and again does not keep it from the others",
          "[dmt]") {
    // The loop's length divides the quantum, so that without more the turn always moves with the lock held.
    for (const uint32_t quantum : {6u, 60u, 1000u}) {
        for (int steps_inside = 1; steps_inside < 6; ++steps_inside) {
            Crew crew(Policy::kSerial, quantum);
            FutexLock lock{crew};
            int got = 0;
            const auto claimant = [&](SlotId me) {
                for (int i = 0; i < 3; ++i) {
                    lock.lock(me);
                    crew.operate(me);
                    lock.unlock(me);
                    ++got;
                }
            };
            int rounds = 0;
            crew.run({claimant, claimant, claimant}, [&](SlotId me) {
                for (; rounds < 20'000 && got < 9; ++rounds) {
                    lock.lock(me);
                    for (int i = 0; i < steps_inside; ++i) crew.operate(me);
                    lock.unlock(me);
                }
            });
            CAPTURE(quantum, steps_inside);
            CHECK(got == 9);
            CHECK(rounds < 10 * static_cast<int>(quantum));
        }
    }
}

TEST_CASE("scheduler: a thread that was woken in vain is next when it is woken again", "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    const uint64_t key = 11;
    const auto contender = [&](int times) {
        return [&, times](SlotId me) {
            crew.s().get_turn(me);
            for (int i = 0; i < times; ++i) crew.s().wait(me, kOp, key, 0, kNoDeadline, false, true);
            crew.trace += name(me);
            crew.s().put_turn(me, kOp);
        };
    };
    crew.run({contender(2), contender(1), [&](SlotId me) { crew.operate(me); }}, [&](SlotId me) {
        crew.let_others_run(me);  // D runs; B and C wait
        crew.s().get_turn(me);
        CHECK(crew.s().signal(key, 1) == 1);
        crew.s().put_turn(me, kOp);
        crew.let_others_run(me);  // B waits again, now behind C
        crew.s().get_turn(me);
        CHECK(crew.s().signal(key, 2) == 2);
        crew.s().put_turn(me, kOp);
        crew.operate(me);
    });
    CHECK(crew.trace == "DBCA");
}

TEST_CASE("scheduler: a quantum of some length varies, from the schedule alone", "[dmt]") {
    const auto lengths = [](uint32_t quantum) {
        Crew crew(Policy::kSerial, quantum);
        const auto body = [&](SlotId me) {
            for (uint32_t i = 0; i < 20 * quantum; ++i) crew.operate(me);
        };
        crew.run({body}, body);
        std::vector<size_t> found;
        for (size_t at = 0, end; at < crew.trace.size(); at = end) {
            end = crew.trace.find_first_not_of(crew.trace[at], at);
            if (end == std::string::npos) break;
            found.push_back(end - at);
        }
        return found;
    };
    const auto once = lengths(80), again = lengths(80);
    CHECK(once == again);
    const auto middle = [](const std::vector<size_t>& all) {  // without what starts and ends the threads
        return std::set<size_t>(all.begin() + 1, all.end() - 4);
    };
    CHECK(middle(once).size() > 3);
    CHECK(*middle(once).begin() >= 70);
    CHECK(*middle(once).rbegin() <= 80);
    CHECK(middle(lengths(7)) == std::set<size_t>{7});
}

TEST_CASE("dmt: a thread that only spins is not one that could work") {
    Crew crew(Policy::kSerial, 1000);
    std::string seen;
    const auto yield = [&](SlotId me, bool spinning) {
        crew.s().set_spinning(me, spinning);
        crew.s().get_turn(me);
        crew.s().set_spinning(me, false);
        seen += name(me);
        seen += crew.s().others_can_work() ? '+' : '-';
        crew.s().yield(me);
        crew.s().put_turn(me, kOp);
    };
    crew.run({[&](SlotId me) {
                 yield(me, false);
                 yield(me, true);
                 yield(me, false);
             }},
             [&](SlotId me) {
                 yield(me, false);
                 yield(me, false);
                 yield(me, true);
                 yield(me, false);
             });
    // A sees B, which has not begun; B sees A; each sees the other spin; then each sees the other work, and
    // at last A sees B, which has come to its end.
    CHECK(seen == "A+B+A-B-A+B+A+");
    CHECK(crew.domain.state().spinning == 0);
}

namespace {

/// What a thread does beside the schedule: it leaves its name when it begins, and ends once `until` holds.
struct Aside {
    Crew& crew;
    SlotId me;
    std::function<bool()> until;
    bool had_turn = false;

    void run() {
        crew.s().beside(
            me, kOp,
            [](void* what) {
                auto& self = *static_cast<Aside*>(what);
                self.had_turn = self.crew.s().holds_turn(self.me);
                self.crew.trace += static_cast<char>(name(self.me) - 'A' + 'a');
                for (int i = 0; !self.until(); ++i) {
                    if (i == 10'000) FAIL("nobody goes on beside it");
                    self.crew.domain.compute();
                }
            },
            this);
    }
};

}  // namespace

TEST_CASE("scheduler: others go on while a thread works beside the schedule", "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    const auto body = [&](SlotId me) {
        crew.operate(me);
        crew.operate(me);
    };
    crew.run({body, body}, [&](SlotId me) {
        crew.s().get_turn(me);
        Aside aside{crew, me, [&] { return crew.trace.find("CC") != std::string::npos; }};
        aside.run();
        CHECK_FALSE(aside.had_turn);
        CHECK(crew.s().holds_turn(me));
        crew.trace += name(me);
        crew.s().put_turn(me, kOp);
    });
    // Where it stands when the others begin is a matter of time; its place in the schedule is not.
    crew.trace.erase(crew.trace.find('a'), 1);
    CHECK(crew.trace == "BBCCA");
}

TEST_CASE("scheduler: whose turn it is waits until it has done what it does beside the schedule", "[dmt]") {
    Crew crew(Policy::kSerial, 1);
    int rounds = 0;
    crew.run({[&](SlotId me) {
                 for (int i = 0; i < 3; ++i) crew.operate(me);
             }},
             [&](SlotId me) {
                 crew.s().get_turn(me);
                 Aside aside{crew, me, [&] { return ++rounds > 500; }};
                 aside.run();
                 crew.trace += name(me);
                 crew.s().put_turn(me, kOp);
             });
    crew.trace.erase(crew.trace.find('a'), 1);
    CHECK(crew.trace == "BBAB");
    CHECK(rounds > 500);
}

TEST_CASE("scheduler: where nobody else can go on, what is done beside the schedule keeps the turn",
          "[dmt]") {
    Crew crew(Policy::kSerial, 100);
    crew.run({crew.waiter(11)}, [&](SlotId me) {
        crew.let_others_run(me);
        crew.s().get_turn(me);
        Aside aside{crew, me, [] { return true; }};
        aside.run();
        CHECK(aside.had_turn);
        crew.s().signal(11, 1);
        crew.s().put_turn(me, kOp);
    });
    CHECK(crew.trace == "aBs");
}
