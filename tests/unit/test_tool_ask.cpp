// A question to a craned that may not answer.
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <thread>

#include "proxy/tool/tools.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::proxy;

namespace {

/// Listens where a craned would, and does nothing else.
struct Listener {
    crane::paxos::testing::TemporaryDirectory dir;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    Listener() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        strcpy(address.sun_path, (dir.path + "/control.sock").c_str());
        REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
        REQUIRE(listen(fd, 2) == 0);
    }
    ~Listener() { close(fd); }
};

std::string why_not(const std::string& dir, int timeout_ms) {
    try {
        ask_craned(dir, {{"cmd", "status"}}, timeout_ms);
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("ask: a craned that is stopped holds nobody up, however often it is asked", "[ask]") {
    Listener stopped;
    for (int round = 0; round < 8; ++round) {  // more than its queue has room for
        CAPTURE(round);
        CHECK(why_not(stopped.dir.path, 30).find("craned did not answer on ") == 0);
    }
}

TEST_CASE("ask: a craned that accepts again answers those that waited", "[ask]") {
    Listener busy;
    for (int round = 0; round < 4; ++round) why_not(busy.dir.path, 1);
    std::thread craned([&] {
        for (;;) {
            const int client = accept(busy.fd, nullptr, nullptr);
            char line[100];
            const bool asks = recv(client, line, sizeof(line), 0) > 0;
            const bool hears = asks && send(client, "{\"ok\":true}\n", 12, MSG_NOSIGNAL) == 12 &&
                               recv(client, line, sizeof(line), 0) == 0;
            close(client);
            if (hears && !strncmp(line, "{\"cmd\":\"last\"}", 14)) return;
        }
    });
    CHECK(ask_craned(busy.dir.path, {{"cmd", "last"}}, 10'000).value("ok", false));
    craned.join();
}

TEST_CASE("ask: nobody there, and a path that no socket can have, are told apart", "[ask]") {
    crane::paxos::testing::TemporaryDirectory dir;
    CHECK(why_not(dir.path, 1000) == "not running");
    CHECK(why_not(dir.path + "/" + std::string(200, 'x'), 1000).find("too long for a socket") !=
          std::string::npos);
}
