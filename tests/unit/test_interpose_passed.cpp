// Descriptors under way between processes: their meaning arrives with them, or is dropped with the message.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <array>
#include <cstring>

#include "interpose/core/epolls.hpp"
#include "interpose/core/passed.hpp"
#include "test_interpose_domain.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;

namespace {

/// The table lies in plain memory; what the tickets lock is a file behind the domain's own number.
struct Passing {
    PlainDomain domain;
    int ends[2];
    int carried = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint32_t epoll = new_epoll();

    Passing() {
        const int file = memfd_create("domain", MFD_CLOEXEC);
        runtime.reserved_fds = 1000;
        runtime.domain_fd = dup2(file, reserved_fd(kDomainPlace));
        REQUIRE(runtime.domain_fd == reserved_fd(kDomainPlace));
        close(file);
        REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        set_entry(carried, FdKind::kEpoll, epoll);
    }
    ~Passing() {
        for (const int fd : {ends[0], ends[1], carried, reserved_fd(kDomainPlace)}) close(fd);
    }
    uint32_t references() { return domain.state().epolls[epoll].references; }

    long send(int count = 1, int through = -1) {
        std::string control(CMSG_SPACE(static_cast<size_t>(count) * sizeof(int)), '\0');
        char byte = 'm';
        iovec one{&byte, 1};
        msghdr message{};
        message.msg_iov = &one;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        *head = {CMSG_LEN(static_cast<size_t>(count) * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        for (int i = 0; i < count; ++i) std::memcpy(CMSG_DATA(head) + i * 4, &carried, sizeof(carried));
        return send_message(through < 0 ? ends[0] : through, &message, MSG_DONTWAIT);
    }
    /// The descriptors that came, and the message's flags.
    std::pair<std::vector<int>, int> receive(size_t room = 64) {
        std::string control(CMSG_SPACE(room * sizeof(int)), '\0');
        char byte;
        iovec one{&byte, 1};
        msghdr message{};
        message.msg_iov = &one;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = CMSG_LEN(room * sizeof(int));
        REQUIRE(receive_message(ends[1], &message, MSG_DONTWAIT) == 1);
        std::vector<int> fds;
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            fds.resize((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            std::memcpy(fds.data(), CMSG_DATA(c), fds.size() * sizeof(int));
        }
        return {fds, message.msg_flags};
    }
    void close_all(const std::vector<int>& fds) {
        for (const int fd : fds) {
            drop_entry(fd);
            close(fd);
        }
    }
};

}  // namespace

TEST_CASE("passed: what a descriptor means arrives with it, without the ticket", "[interpose]") {
    Passing passing;
    REQUIRE(passing.send(3) == 1);
    CHECK(passing.references() == 4);
    CHECK(passing.domain.state().passed_under_way == 1);
    const auto [fds, flags] = passing.receive();
    REQUIRE(fds.size() == 3);
    CHECK((flags & MSG_CTRUNC) == 0);
    for (const int fd : fds) {
        REQUIRE(entry_of_kind(fd, FdKind::kEpoll) != nullptr);
        CHECK(entry_of_kind(fd, FdKind::kEpoll)->object == passing.epoll);
    }
    CHECK(passing.references() == 7);  // until it is known that the message is gone
    settle_passed();
    CHECK(passing.references() == 4);
    CHECK(passing.domain.state().passed_under_way == 0);
    passing.close_all(fds);
    CHECK(passing.references() == 1);
}

TEST_CASE("passed: messages read out of order keep their own meaning", "[interpose]") {
    Passing passing;
    int other[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, other) == 0);
    REQUIRE(passing.send(1, other[0]) == 1);
    const uint32_t second = new_epoll();
    drop_entry(passing.carried);
    set_entry(passing.carried, FdKind::kEpoll, second);
    REQUIRE(passing.send() == 1);
    const auto [fds, flags] = passing.receive();  // the later one
    REQUIRE(fds.size() == 1);
    CHECK(fd_entry(fds[0])->object == second);
    std::swap(passing.ends, other);
    const auto [earlier, more] = passing.receive();
    REQUIRE(earlier.size() == 1);
    CHECK(fd_entry(earlier[0])->object == passing.epoll);
    passing.close_all(fds);
    passing.close_all(earlier);
    for (const int fd : other) close(fd);
}

TEST_CASE("passed: a message lost with its socket gives its references back", "[interpose]") {
    Passing passing;
    REQUIRE(passing.send(2) == 1);
    settle_passed();
    CHECK(passing.references() == 3);  // still under way
    for (int& fd : passing.ends) fd = (close(fd), -1);
    settle_passed();
    CHECK(passing.references() == 1);
    CHECK(passing.domain.state().passed_under_way == 0);
}

TEST_CASE("passed: one that could not be sent leaves nothing", "[interpose]") {
    Passing passing;
    close(passing.ends[1]);
    passing.ends[1] = -1;
    CHECK(passing.send() == -EPIPE);
    CHECK(passing.references() == 1);
    CHECK(passing.domain.state().passed_under_way == 0);
}

TEST_CASE("passed: descriptors for which there is no room are closed, as the kernel does", "[interpose]") {
    Passing passing;
    REQUIRE(passing.send(5) == 1);
    const auto [fds, flags] = passing.receive(2);
    CHECK(fds.size() == 2);
    CHECK((flags & MSG_CTRUNC) != 0);
    settle_passed();
    CHECK(passing.references() == 3);
    passing.close_all(fds);
}

TEST_CASE("passed: a full table refuses, and is looked through before it does", "[interpose]") {
    Passing passing;
    std::vector<std::array<int, 2>> sockets;
    for (size_t sent = 0; sent < kMaxPassed; ++sent) {
        if (sent % 8 == 0) {
            REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.emplace_back().data()) ==
                    0);
        }
        REQUIRE(passing.send(1, sockets.back()[0]) == 1);
    }
    CHECK(passing.domain.state().passed_under_way == kMaxPassed);
    CHECK(passing.send() == -ETOOMANYREFS);
    for (const int fd : sockets[3]) close(fd);
    CHECK(passing.send() == 1);
    CHECK(passing.domain.state().passed_under_way == kMaxPassed - 8 + 1);
    sockets.erase(sockets.begin() + 3);
    for (const auto& pair : sockets) {
        for (const int fd : pair) close(fd);
    }
    passing.close_all(passing.receive().first);
    settle_passed();
    CHECK(passing.references() == 1);
}
