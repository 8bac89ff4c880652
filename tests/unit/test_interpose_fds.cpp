// What descriptor numbers mean: references follow every copy, and a number used again is told from before.
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <map>

#include "interpose/core/epolls.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/timers.hpp"
#include "test_interpose_sockets.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;

namespace {

/// Numbers that the kernel knows nothing of here.
constexpr int kFirst = 5000;

}  // namespace

TEST_CASE("descriptors: random copies and closes leave exactly the references there are", "[interpose]") {
    const uint64_t seed = GENERATE(1, 2, 3);
    CAPTURE(seed);
    PlainDomain domain;
    Dice dice{seed};
    std::map<int, uint32_t> model;  // number -> timer
    std::map<uint32_t, uint32_t> references;
    for (int step = 0; step < 5000; ++step) {
        const int fd = kFirst + static_cast<int>(dice.below(40)),
                  other = kFirst + static_cast<int>(dice.below(40));
        const bool open = model.count(fd);
        if (!open && references.size() < 20) {
            const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
            REQUIRE(references.count(timer) == 0);
            set_entry(fd, FdKind::kTimer, timer);
            model[fd] = timer;
            ++references[timer];
        } else if (open && dice.below(2)) {
            drop_entry(fd);
            if (--references[model[fd]] == 0) references.erase(model[fd]);
            model.erase(fd);
        } else if (open && !model.count(other)) {
            copy_entry(fd, other);
            model[other] = model[fd];
            ++references[model[fd]];
        }
        for (uint32_t timer = 0; timer < 41; ++timer) {
            const auto found = references.find(timer);
            REQUIRE(domain.state().timers[timer].references ==
                    (found == references.end() ? 0 : found->second));
        }
        for (const auto& [number, timer] : model) {
            REQUIRE(entry_of_kind(number, FdKind::kTimer)->object == timer);
            REQUIRE(object_of(number) == make_key(ObjectKind::kTimer, timer));
        }
        REQUIRE((entry_of_kind(fd, FdKind::kTimer) != nullptr) == (model.count(fd) == 1));
    }
}

TEST_CASE("descriptors: a number closed and used again is not what it was", "[interpose]") {
    PlainDomain domain;
    const uint32_t timer = new_timer(CLOCK_MONOTONIC, true);
    set_entry(kFirst, FdKind::kTimer, timer);
    const FdEntry then = *fd_entry(kFirst);
    CHECK(same_descriptor(kFirst, then));
    drop_entry(kFirst);
    CHECK_FALSE(same_descriptor(kFirst, then));
    REQUIRE(new_timer(CLOCK_MONOTONIC, true) == timer);
    set_entry(kFirst, FdKind::kTimer, timer);
    CHECK_FALSE(same_descriptor(kFirst, then));
}

TEST_CASE("descriptors: the kernel's own are looked at once", "[interpose]") {
    PlainDomain domain;
    const int stream = eventfd(0, EFD_CLOEXEC), file = dup(STDIN_FILENO);
    CHECK(fd_entry(stream)->kind == FdKind::kStream);
    CHECK(fd_entry(-1) == nullptr);
    CHECK(fd_entry(static_cast<int>(kMaxFds)) == nullptr);
    set_stream(stream, file);
    CHECK(fd_entry(stream)->object == fd_entry(file)->object);
    CHECK(fd_entry(stream)->object != 0);
    for (const int fd : {stream, file}) close(fd);
    drop_entry(stream);
    CHECK(fd_entry(stream)->kind == FdKind::kUnknown);  // closed: nothing to look at
}

TEST_CASE("descriptors: a number too large is refused and said", "[interpose]") {
    PlainDomain domain;
    set_entry(static_cast<int>(kMaxFds), FdKind::kPlain, 0);
    const auto said = domain.said();
    REQUIRE(said.size() == 1);
    CHECK(said[0].payload.find("32768") != std::string::npos);
    copy_entry(kFirst, static_cast<int>(kMaxFds));
    adopt_entry(-1, {});
}

TEST_CASE("descriptors: a child has references of its own, and one forgotten gives them back",
          "[interpose]") {
    PlainDomain domain;
    const uint32_t epoll = new_epoll(), socket = new_socket(AF_INET, false);
    set_entry(kFirst, FdKind::kEpoll, epoll);
    set_entry(kFirst + 1, FdKind::kSocket, socket);
    const uint32_t child = make_child();
    REQUIRE(child != kNone);
    CHECK(domain.state().epolls[epoll].references == 2);
    CHECK(domain.state().sockets[socket].references == 2);
    CHECK(domain.state().processes[child].parent == 0);
    drop_entry(kFirst);
    CHECK(domain.state().epolls[epoll].references == 1);
    forget_child(child);
    CHECK(domain.state().epolls[epoll].references == 0);
    CHECK(domain.state().sockets[socket].references == 1);
    CHECK(domain.state().processes[child].state == ProcessState::kFree);
    CHECK(new_epoll() == epoll);
}

TEST_CASE("descriptors: a child has what its parent has, and nothing of an earlier process", "[interpose]") {
    PlainDomain domain;
    Process& parent = *runtime.process;
    set_entry(900, FdKind::kPlain, 7);
    note_file_write(901);
    const uint32_t first = make_child();
    REQUIRE(first != kNone);
    Process& child = domain.state().processes[first];
    CHECK(child.fds[900].kind == FdKind::kPlain);
    CHECK(child.fds[900].object == 7);
    CHECK(child.fds[901].flags == kFdWritten);
    child.state = ProcessState::kFree;  // reaped, with what nobody has looked at
    drop_entry(900);
    parent.fds[901] = {};
    parent.fds_end = kFirst + 1;
    REQUIRE(make_child() == first);
    CHECK(child.fds[900].kind == FdKind::kUnknown);
    CHECK(child.fds[901].flags == 0);
    CHECK(child.fds_end == kFirst + 1);
}

TEST_CASE("descriptors: a full table of processes says so", "[interpose]") {
    PlainDomain domain;
    for (size_t i = 1; i < kMaxProcesses; ++i) REQUIRE(make_child() == i);
    CHECK(make_child() == kNone);
    forget_child(300);
    CHECK(make_child() == 300);
}
