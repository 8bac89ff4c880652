// A listener that has no descriptor for who comes: it pauses, says so once, and goes on.
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <sstream>

#include "paxos/link/accept_pause.hpp"
#include "test_descriptors.hpp"

namespace {

struct Said {
    std::ostringstream text;
    std::shared_ptr<spdlog::logger> before = spdlog::default_logger();
    Said() {
        auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text);
        spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
    }
    ~Said() { spdlog::set_default_logger(before); }
};

void accepted(evconnlistener*, int fd, sockaddr*, int, void* count) {
    close(fd);
    ++*static_cast<int*>(count);
}

size_t times(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
}

}  // namespace

TEST_CASE("accept pause: without descriptors a listener rests, and takes who waited when there are some") {
    Said said;
    event_base* base = event_base_new();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int taken = 0;
    evconnlistener* listener =
        evconnlistener_new_bind(base, accepted, &taken, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 16,
                                reinterpret_cast<sockaddr*>(&address), sizeof(address));
    REQUIRE(listener != nullptr);
    socklen_t length = sizeof(address);
    getsockname(evconnlistener_get_fd(listener), reinterpret_cast<sockaddr*>(&address), &length);
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    {
        crane::paxos::AcceptPause pause(base, listener, "the port of this test");
        int turns = 0;
        {
            const crane::test::NoDescriptors none;
            REQUIRE(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
            const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(450);
            for (; std::chrono::steady_clock::now() < end; ++turns) event_base_loop(base, EVLOOP_ONCE);
        }
        CHECK(turns < 50);  // it tries ten times a second
        CHECK(taken == 0);
        while (taken == 0 && turns < 1000) {
            event_base_loop(base, EVLOOP_ONCE);
            ++turns;
        }
    }
    CHECK(taken == 1);
    CHECK(times(said.text.str(), "cannot accept at the port of this test") == 1);
    CHECK(said.text.str().find("ulimit -n") != std::string::npos);
    close(client);
    evconnlistener_free(listener);
    event_base_free(base);
}
