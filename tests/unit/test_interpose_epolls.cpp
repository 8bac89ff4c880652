// epoll's table, against a naive model: a list of what is ready, in order of becoming so.
#include <sys/eventfd.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <list>
#include <map>

#include "interpose/core/epolls.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/signal_fds.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/timers.hpp"
#include "test_amount.hpp"
#include "test_interpose_sockets.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using crane::timebubble::CallKind;

namespace {

std::vector<std::pair<uint32_t, uint64_t>> collect(uint32_t epoll, int most = 64) {
    std::vector<epoll_event> events(static_cast<size_t>(most));
    const int count = epoll_collect(epoll, -1, events.data(), most);
    REQUIRE(count >= 0);
    std::vector<std::pair<uint32_t, uint64_t>> all;
    for (int i = 0; i < count; ++i)
        all.emplace_back(uint32_t{events[i].events}, uint64_t{events[i].data.u64});
    return all;
}

int control(uint32_t epoll, int operation, uint32_t socket, uint32_t events, uint64_t data) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return epoll_control(epoll, operation, static_cast<int>(socket), Watched::kSocket, socket, &event);
}

/// One epoll of sockets that are only read from.
struct Model {
    struct Item {
        uint32_t events = 0;
        bool disabled = false;
    };
    std::map<uint32_t, Item> items;
    std::list<uint32_t> ready;
    std::map<uint32_t, size_t> unread;

    void push(uint32_t socket) {
        if (std::find(ready.begin(), ready.end(), socket) == ready.end()) ready.push_back(socket);
    }
    int add(uint32_t socket, uint32_t events) {
        if (items.count(socket)) return -EEXIST;
        items[socket] = {events, false};
        if (unread[socket]) push(socket);
        return 0;
    }
    int modify(uint32_t socket, uint32_t events) {
        if (!items.count(socket)) return -ENOENT;
        ready.remove(socket);
        items[socket] = {events, false};
        if (unread[socket]) push(socket);
        return 0;
    }
    int remove(uint32_t socket) {
        if (!items.erase(socket)) return -ENOENT;
        ready.remove(socket);
        return 0;
    }
    void input(uint32_t socket, size_t bytes) {
        unread[socket] += bytes;
        if (items.count(socket) && !items[socket].disabled) push(socket);
    }
    std::vector<uint32_t> collect(size_t most) {
        std::vector<uint32_t> told, again;
        std::list<uint32_t> left = std::exchange(ready, {});
        while (!left.empty() && told.size() < most) {
            const uint32_t socket = left.front();
            left.pop_front();
            Item& item = items[socket];
            if (item.disabled || unread[socket] == 0) continue;
            told.push_back(socket);
            if (item.events & EPOLLONESHOT) {
                item.disabled = true;
            } else if (!(item.events & EPOLLET)) {
                again.push_back(socket);
            }
        }
        ready = left;
        ready.insert(ready.end(), again.begin(), again.end());
        return told;
    }
};

}  // namespace

TEST_CASE("epoll table: random operations agree with a naive list", "[interpose]") {
    const uint64_t seed = GENERATE(1, 2, 3);
    CAPTURE(seed);
    PlainDomain domain;
    Dice dice{seed};
    Model model;
    const uint32_t epoll = new_epoll();
    std::vector<uint32_t> sockets;
    Clients clients(domain);
    for (uint64_t c = 1; c <= 12; ++c) sockets.push_back(clients.connect_and_accept(c));
    size_t told = 0;
    const uint64_t steps = crane::test::rounds(5000, 100'000);
    for (uint64_t step = 0; step < steps; ++step) {
        const size_t which = dice.below(sockets.size());
        const uint32_t socket = sockets[which];
        uint32_t events = EPOLLIN;
        if (dice.below(2)) events |= EPOLLET;
        if (dice.below(4) == 0) events |= EPOLLONESHOT;
        switch (dice.below(8)) {
            case 0:
                REQUIRE(control(epoll, EPOLL_CTL_ADD, socket, events, socket) == model.add(socket, events));
                break;
            case 1:
                REQUIRE(control(epoll, EPOLL_CTL_MOD, socket, events, socket) ==
                        model.modify(socket, events));
                break;
            case 2:
                if (dice.below(3)) break;
                REQUIRE(control(epoll, EPOLL_CTL_DEL, socket, 0, 0) == model.remove(socket));
                break;
            case 3:
            case 4:
                domain.call(CallKind::kSend, which + 1, "four");
                model.input(socket, 4);
                break;
            case 5:
                model.unread[socket] -= receive(socket, 1 + dice.below(12)).size();
                break;
            default: {
                const size_t most = 1 + dice.below(6);
                std::vector<uint32_t> got;
                for (const auto& [what, data] : collect(epoll, static_cast<int>(most))) {
                    REQUIRE(what == EPOLLIN);
                    got.push_back(static_cast<uint32_t>(data));
                }
                REQUIRE(got == model.collect(most));
                told += got.size();
            }
        }
        const bool any = std::any_of(model.ready.begin(), model.ready.end(), [&](uint32_t one) {
            return model.unread[one] && !model.items[one].disabled;
        });
        REQUIRE(epoll_ready(epoll, -1) == any);
        domain.said();
    }
    CHECK(told > steps / 10);
}

TEST_CASE("epoll table: EPOLLEXCLUSIVE wakes one sleeper, without it each epoll wakes one", "[interpose]") {
    const bool exclusive = GENERATE(false, true);
    PlainDomain domain;
    const uint32_t listener = Clients(domain).listener();
    std::vector<crane::dmt::SlotId> sleepers;
    for (int i = 0; i < 3; ++i) {
        const uint32_t epoll = new_epoll();
        REQUIRE(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | (exclusive ? uint32_t{EPOLLEXCLUSIVE} : 0),
                        1) == 0);
        for (int two = 0; two < 2; ++two) {
            sleepers.push_back(domain.thread([epoll] {
                Operation turn(Op::kEpollWait, epoll_key(epoll));
                turn.wait(epoll_key(epoll));
            }));
        }
    }
    domain.settle();
    Clients::connect(domain, 1);
    domain.settle();
    const auto left = std::count_if(sleepers.begin(), sleepers.end(),
                                    [&](crane::dmt::SlotId slot) { return domain.waits(slot); });
    CHECK(left == (exclusive ? 5 : 3));
}

TEST_CASE("epoll table: a closed socket, timer or signalfd is watched no longer", "[interpose]") {
    PlainDomain domain;
    const uint32_t epoll = new_epoll();
    const uint32_t free_items = domain.state().item_high;
    const epoll_event wanted{EPOLLIN, {.u64 = 7}};
    SECTION("socket") {
        Clients clients(domain);
        const uint32_t socket = clients.connect_and_accept(1);
        REQUIRE(control(epoll, EPOLL_CTL_ADD, socket, EPOLLIN, 7) == 0);
        domain.call(CallKind::kSend, 1, "x");
        release_socket(socket);
        const uint32_t again = clients.connect_and_accept(2);
        REQUIRE(again == socket);
        domain.call(CallKind::kSend, 2, "y");
        CHECK(collect(epoll).empty());
        CHECK(control(epoll, EPOLL_CTL_ADD, again, EPOLLIN, 8) == 0);
    }
    SECTION("timer") {
        const itimerspec soon{{}, to_timespec(1)};
        const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
        REQUIRE(epoll_control(epoll, EPOLL_CTL_ADD, 5, Watched::kTimer, timer, &wanted) == 0);
        release_timer(timer);
        REQUIRE(new_timer(CLOCK_MONOTONIC, true) == timer);
        REQUIRE(timer_set(timer, 0, &soon, nullptr) == 0);
        domain.pass_time(1000);
        CHECK(collect(epoll).empty());
        CHECK(epoll_deadline(epoll) == crane::dmt::kNoDeadline);
        CHECK(epoll_control(epoll, EPOLL_CTL_ADD, 5, Watched::kTimer, timer, &wanted) == 0);
        CHECK(collect(epoll).size() == 1);
    }
    SECTION("signalfd") {
        const uint32_t fd = new_signal_fd(signal_bit(SIGUSR1), true);
        domain.state().threads[self.slot].mask = signal_bit(SIGUSR1);
        REQUIRE(epoll_control(epoll, EPOLL_CTL_ADD, 5, Watched::kSignals, fd, &wanted) == 0);
        release_signal_fd(fd);
        REQUIRE(new_signal_fd(signal_bit(SIGUSR1), true) == fd);
        REQUIRE(post_signal(0, SIGUSR1, crane::dmt::kNoSlot) == 0);
        CHECK(collect(epoll).empty());
        CHECK(epoll_control(epoll, EPOLL_CTL_ADD, 5, Watched::kSignals, fd, &wanted) == 0);
        CHECK(collect(epoll).size() == 1);
    }
    release_epoll(epoll);
    CHECK(domain.state().item_high <= free_items + 1);
}

TEST_CASE("epoll table: an edge of a timer is told once for each time it falls due", "[interpose]") {
    PlainDomain domain;
    const uint32_t epoll = new_epoll();
    const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
    const itimerspec every{to_timespec(1000), to_timespec(1000)};
    REQUIRE(timer_set(timer, 0, &every, nullptr) == 0);
    const epoll_event wanted{EPOLLIN | EPOLLET, {.u64 = 1}};
    REQUIRE(epoll_control(epoll, EPOLL_CTL_ADD, 3, Watched::kTimer, timer, &wanted) == 0);
    CHECK(epoll_deadline(epoll) == timer_deadline(timer));
    CHECK(collect(epoll).empty());
    domain.pass_time(5000);
    CHECK(collect(epoll).size() == 1);
    CHECK(collect(epoll).empty());
    CHECK(timer_take(timer) >= 4);
    domain.pass_time(1000);
    CHECK(collect(epoll).size() == 1);
}

TEST_CASE("epoll table: full tables say so, and what is given back can be had again", "[interpose]") {
    PlainDomain domain;
    std::vector<uint32_t> all;
    for (size_t i = 0; i < kMaxEpolls; ++i) all.push_back(new_epoll());
    CHECK(new_epoll() == kNone);
    const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
    const epoll_event wanted{EPOLLIN, {.u64 = 1}};
    for (size_t i = 0; i < kMaxEpollItems; ++i) {
        const int fd = static_cast<int>(i / kMaxEpolls);
        REQUIRE(epoll_control(all[i % kMaxEpolls], EPOLL_CTL_ADD, fd, Watched::kTimer, timer, &wanted) == 0);
    }
    CHECK(epoll_control(all[0], EPOLL_CTL_ADD, 9999, Watched::kTimer, timer, &wanted) == -ENOSPC);
    CHECK(epoll_control(all[1], EPOLL_CTL_DEL, 0, Watched::kTimer, timer, nullptr) == 0);
    CHECK(epoll_control(all[0], EPOLL_CTL_ADD, 9999, Watched::kTimer, timer, &wanted) == 0);
    release_epoll(all[500]);
    CHECK(new_epoll() == 500);
    for (int fd = 0; fd < 64; ++fd) {  // the items of the one released
        REQUIRE(epoll_control(500, EPOLL_CTL_ADD, fd, Watched::kTimer, timer, &wanted) == 0);
    }
    CHECK(epoll_control(500, EPOLL_CTL_ADD, 64, Watched::kTimer, timer, &wanted) == -ENOSPC);
}

TEST_CASE("epoll table: calls that make no sense get the kernel's answers", "[interpose]") {
    PlainDomain domain;
    const uint32_t epoll = new_epoll();
    const uint32_t listener = Clients(domain).listener();
    CHECK(control(epoll, EPOLL_CTL_MOD, listener, EPOLLIN, 1) == -ENOENT);
    CHECK(control(epoll, EPOLL_CTL_DEL, listener, EPOLLIN, 1) == -ENOENT);
    CHECK(control(epoll, 17, listener, EPOLLIN, 1) == -EINVAL);
    CHECK(epoll_control(epoll, EPOLL_CTL_ADD, 1, Watched::kSocket, listener, nullptr) == -EFAULT);
    CHECK(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLEXCLUSIVE, 1) == 0);
    CHECK(control(epoll, EPOLL_CTL_ADD, listener, EPOLLIN, 1) == -EEXIST);
    CHECK(control(epoll, EPOLL_CTL_MOD, listener, EPOLLIN, 1) == -EINVAL);
    const BadAddresses bad;
    CHECK(epoll_collect(epoll, -1, nullptr, 1) == 0);  // nothing is there to be told
    Clients::connect(domain, 1);
    CHECK(epoll_collect(epoll, -1, nullptr, 1) == -EFAULT);
}

TEST_CASE("epoll table: one inside another wakes who waits on the outer one, until it is gone",
          "[interpose]") {
    PlainDomain domain;
    const uint32_t outer = new_epoll(), inner = new_epoll();
    const uint32_t listener = Clients(domain).listener();
    epoll_event event{EPOLLIN, {.u64 = 7}};
    REQUIRE(epoll_control(outer, EPOLL_CTL_ADD, 5, Watched::kEpoll, inner, &event) == 0);
    CHECK(epoll_control(inner, EPOLL_CTL_ADD, 6, Watched::kEpoll, outer, &event) == -ELOOP);
    CHECK(collect(outer).empty());
    const auto sleeper = domain.thread([outer] {
        Operation turn(Op::kEpollWait, epoll_key(outer));
        turn.wait(epoll_key(outer));
    });
    domain.settle();
    REQUIRE(control(inner, EPOLL_CTL_ADD, listener, EPOLLIN, 1) == 0);  // later than it was nested
    Clients::connect(domain, 1);
    domain.settle();
    CHECK_FALSE(domain.waits(sleeper));
    CHECK(collect(outer) == std::vector<std::pair<uint32_t, uint64_t>>{{EPOLLIN, 7}});
    release_epoll(inner);
    CHECK(collect(outer).empty());
}

TEST_CASE("epoll table: the kernel's descriptors are asked for in the real epoll", "[interpose]") {
    PlainDomain domain;
    const uint32_t epoll = new_epoll();
    const int real_epoll = epoll_create1(EPOLL_CLOEXEC), stream = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event wanted{EPOLLIN, {.u64 = 99}};
    REQUIRE(epoll_control_kernel(epoll, real_epoll, EPOLL_CTL_ADD, stream, &wanted) == 0);
    CHECK_FALSE(epoll_ready(epoll, real_epoll));
    const auto sleeper = domain.thread([epoll] {
        Operation turn(Op::kEpollWait, epoll_key(epoll));
        turn.wait(epoll_key(epoll));
    });
    domain.settle();
    REQUIRE(eventfd_write(stream, 1) == 0);
    kernel_stream_event(~uint64_t{0});
    domain.settle();
    CHECK_FALSE(domain.waits(sleeper));
    epoll_event got{};
    REQUIRE(epoll_collect(epoll, real_epoll, &got, 1) == 1);
    CHECK(uint64_t{got.data.u64} == 99);
    REQUIRE(epoll_control_kernel(epoll, real_epoll, EPOLL_CTL_DEL, stream, nullptr) == 0);
    CHECK(domain.state().epolls[epoll].kernel_mask == 0);
    for (const int fd : {real_epoll, stream}) close(fd);
}

TEST_CASE("epoll table: with room for one event each kind comes in its turn", "[interpose]") {
    PlainDomain domain;
    Clients clients(domain);
    const uint32_t epoll = new_epoll();
    const int real_epoll = epoll_create1(EPOLL_CLOEXEC), stream = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event wanted{EPOLLIN, {.u64 = 99}};
    REQUIRE(epoll_control_kernel(epoll, real_epoll, EPOLL_CTL_ADD, stream, &wanted) == 0);
    for (uint64_t i = 0; i < 3; ++i) {
        const uint32_t socket = clients.connect_and_accept(5 + i);
        domain.call(CallKind::kSend, 5 + i, "x");
        REQUIRE(control(epoll, EPOLL_CTL_ADD, socket, EPOLLIN, i) == 0);
    }
    std::vector<uint32_t> timers;
    for (uint64_t i = 10; i < 12; ++i) {
        timers.push_back(new_timer(CLOCK_MONOTONIC, true));
        domain.state().timers[timers.back()].next_ns = 1;
        epoll_event event{EPOLLIN, {.u64 = i}};
        REQUIRE(epoll_control(epoll, EPOLL_CTL_ADD, 40 + static_cast<int>(i), Watched::kTimer, timers.back(),
                              &event) == 0);
    }
    std::map<uint64_t, int> met;
    for (int i = 0; i < 60; ++i) {
        epoll_event got{};
        REQUIRE(epoll_collect(epoll, real_epoll, &got, 1) == 1);
        ++met[uint64_t{got.data.u64}];
    }
    for (const uint64_t one : {0, 1, 2, 10, 11, 99}) CHECK(met[one] >= 5);
    drop_watches(Watched::kTimer, timers[1]);
    drop_watches(Watched::kTimer, timers[0]);
    std::vector<epoll_event> all(10);
    CHECK(epoll_collect(epoll, real_epoll, all.data(), 10) == 4);
    for (const int fd : {real_epoll, stream}) close(fd);
}
