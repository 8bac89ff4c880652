// The control socket: whoever asks is answered, and cannot fill memory with answers that it does not read.
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proxy/control.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using crane::proxy::ControlServer;

// All answers were kept, however many.
TEST_CASE("control socket: who asks and does not read is not answered further, until it reads", "[proxy]") {
    const crane::paxos::testing::TemporaryDirectory directory;
    const std::string path = directory.path + "/control.sock";
    const std::unique_ptr<event_base, decltype(&event_base_free)> base(event_base_new(), event_base_free);
    constexpr int kAsked = 64, kAtOnce = 24;
    constexpr size_t kBytes = 1 << 18;
    int answered = 0;
    ControlServer server(base.get(), path, [&](const nlohmann::json&) {
        ++answered;
        return nlohmann::json{{"text", std::string(kBytes, 'x')}};
    });
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    memcpy(to.sun_path, path.data(), path.size());
    REQUIRE(connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
    std::string questions;
    for (int i = 0; i < kAsked; ++i) questions += "{\"cmd\":\"status\"}\n";
    REQUIRE(send(client, questions.data(), questions.size(), 0) == static_cast<ssize_t>(questions.size()));
    // Each call takes all that is ready; then nothing moves any more.
    for (int before = -1; answered != before || answered == 0;) {
        before = answered;
        event_base_loop(base.get(), EVLOOP_NONBLOCK);
    }
    CHECK(answered < kAtOnce);
    size_t lines = 0;
    std::string heard(kBytes, '\0');
    while (lines < kAsked) {
        const ssize_t got = recv(client, heard.data(), heard.size(), 0);
        if (got > 0) lines += static_cast<size_t>(std::count(heard.begin(), heard.begin() + got, '\n'));
        REQUIRE(got != 0);
        event_base_loop(base.get(), EVLOOP_NONBLOCK);
    }
    CHECK(answered == kAsked);
    close(client);
}

TEST_CASE("control socket: one that somebody has removed is made anew, its folder too", "[proxy]") {
    const crane::paxos::testing::TemporaryDirectory directory;
    const std::string folder = directory.path + "/state", path = folder + "/control.sock";
    std::filesystem::create_directory(folder);
    const std::unique_ptr<event_base, decltype(&event_base_free)> base(event_base_new(), event_base_free);
    ControlServer server(base.get(), path, [](const nlohmann::json&) { return nlohmann::json{}; }, {0, 1000});
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    memcpy(to.sun_path, path.data(), path.size());
    const auto is_reached = [&] {
        const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool reached = connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
        close(client);
        return reached;
    };
    const auto comes_back = [&] {
        for (int look = 0; look < 1000 && !is_reached(); ++look) event_base_loop(base.get(), EVLOOP_ONCE);
        return is_reached();
    };
    REQUIRE(is_reached());
    unlink(path.c_str());
    CHECK_FALSE(is_reached());
    CHECK(comes_back());
    std::filesystem::remove_all(folder);
    for (int look = 0; look < 5; ++look) event_base_loop(base.get(), EVLOOP_ONCE);
    CHECK_FALSE(is_reached());
    std::filesystem::create_directory(folder);
    CHECK(comes_back());
}

// Sixty-four held ones, and the operator's own was closed unheard.
TEST_CASE("control socket: many that are held and say nothing keep nobody from asking", "[proxy]") {
    const crane::paxos::testing::TemporaryDirectory directory;
    const std::string path = directory.path + "/control.sock";
    const std::unique_ptr<event_base, decltype(&event_base_free)> base(event_base_new(), event_base_free);
    ControlServer server(base.get(), path, [](const nlohmann::json&) {
        return nlohmann::json{{"ok", true}};
    });
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    memcpy(to.sun_path, path.data(), path.size());
    const auto connected = [&] {
        const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        REQUIRE(connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
        event_base_loop(base.get(), EVLOOP_NONBLOCK);
        return client;
    };
    const auto is_answered = [&](int client) {
        char answer[64];
        if (send(client, "{\"cmd\":\"status\"}\n", 17, MSG_NOSIGNAL) != 17) return false;
        event_base_loop(base.get(), EVLOOP_NONBLOCK);
        return recv(client, answer, sizeof(answer), 0) > 0;
    };
    const int talks = connected();
    std::vector<int> held;
    for (int i = 0; i < 625; ++i) {
        held.push_back(connected());
        REQUIRE(is_answered(talks));
    }
    const int asks = connected();
    CHECK(is_answered(asks));
    size_t open = 0;
    for (const int one : held) {
        char nothing;
        open += recv(one, &nothing, 1, 0) != 0;
        close(one);
    }
    CHECK(open == 62);
    close(talks);
    close(asks);
}
