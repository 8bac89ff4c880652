// A question to a craned that may not answer.
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>
#include <thread>
#include <utility>

#include "proxy/tool/tools.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::proxy;
using nlohmann::json;

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

namespace {

/// A backup that knows a primary, and is told to hand on that it is to be removed itself.
json say(const json& request, const json& of_order) {
    if (request["cmd"] != "status") return of_order;
    return {{"replica", 1},
            {"role", "backup"},
            {"leader", 2},
            {"peers", json::array()},
            {"membership", {{"decided", true}, {"members", {{{"replica", 1}, {"voter", true}}}}}}};
}

/// What `crane member remove 1` says of it; the last answer ends the craned.
std::string remove_itself(const json& of_order) {
    Listener backup;
    std::thread craned([&] {
        for (bool ordered = false; !ordered;) {
            const int client = accept(backup.fd, nullptr, nullptr);
            char line[1000];
            const ssize_t got = recv(client, line, sizeof(line), 0);
            const json request =
                json::parse(std::string(line, got > 0 ? static_cast<size_t>(got) : 0), nullptr, false);
            ordered = request.value("cmd", "") == "member";
            const std::string answer = say(request, of_order).dump() + "\n";
            send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
            close(client);
        }
        close(std::exchange(backup.fd, -1));
        unlink((backup.dir.path + "/control.sock").c_str());
    });
    std::string said = "removed";
    std::ofstream(backup.dir.path + "/craned.toml") << "";  // it is a replica's folder, also without a socket
    try {
        tool_member(backup.dir.path, {"remove", 1, 0, ""}, true);
    } catch (const std::runtime_error& error) {
        said = error.what();
    }
    craned.join();
    return said;
}

}  // namespace

TEST_CASE("ask: an order that the primary did not answer is known by a field, not by its words", "[ask]") {
    crane::paxos::testing::TemporaryDirectory dir;
    const Contact contact{{1, dir.path}, {{"role", "backup"}, {"leader", 2}}};
    CHECK(ask_primary(contact, {{"cmd", "member"}}).value("unanswered", false));
    CHECK(remove_itself({{"unanswered", true}, {"error", "gone"}}) == "removed");
    const std::string refused = "replica 9, whose disk did not answer, would be needed";
    CHECK(remove_itself({{"error", refused}}) == refused);
}
