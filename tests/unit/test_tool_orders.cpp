// What an operator's command asks of craneds, and what it does not: the answers are made up, the orders
// counted.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "proxy/tool/tools.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::proxy;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

json member(uint32_t id, bool voter) {
    return {{"replica", id}, {"voter", voter}, {"address", "10.0.0." + std::to_string(id) + ":7400"}};
}

json peer(uint32_t id, bool voter, uint64_t matched) {
    return {{"replica", id},      {"voter", voter},     {"connected", true},
            {"rejoining", false}, {"matched", matched}, {"needs_checkpoint", false},
            {"heard_ms_ago", 20}};
}

/// The primary of replicas 1 to 3, with the learner 4, which has `matched` of 9000 entries.
json primary_of_four(uint64_t matched) {
    return {{"replica", 1},
            {"role", "primary"},
            {"leader", 1},
            {"decided", 9000},
            {"peers", {peer(2, true, 9000), peer(3, true, 9000), peer(4, false, matched)}},
            {"membership",
             {{"decided", true},
              {"highest_id", 4},
              {"members", {member(1, true), member(2, true), member(3, true), member(4, false)}}}}};
}

/// A craned as far as its control socket goes: follows changes of the members, and keeps what it was told.
class FakeCraned {
  public:
    explicit FakeCraned(json status) : status_(std::move(status)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        strcpy(address.sun_path, (dir_.path + "/control.sock").c_str());
        REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
        REQUIRE(listen(fd_, 8) == 0);
        thread_ = std::thread([this] { serve(); });
    }
    ~FakeCraned() {
        shutdown(fd_, SHUT_RDWR);
        thread_.join();
        close(fd_);
    }
    const std::string& dir() const { return dir_.path; }
    void change(const std::function<void(json&)>& how) {
        const std::lock_guard lock(mutex_);
        how(status_);
    }
    /// At the n-th question from now on everybody has the whole log.
    void level_after(int questions) {
        const std::lock_guard lock(mutex_);
        left_ = questions;
    }
    /// A backup from now on, which hands on what it is told to replica 1.
    void follow_another() {
        change([](json& status) {
            status["replica"] = 2;
            status["role"] = "backup";
        });
    }
    /// What it is ordered next is done, and nobody hears so. Who is asked how things are has not learned of
    /// it before the n-th time, except from the primary.
    void lose_answer(int questions_behind = 0) {
        const std::lock_guard lock(mutex_);
        lost_ = true;
        behind_ = questions_behind;
    }
    /// "remove 3 promote 4 ", what else but questions was asked.
    std::string orders() {
        const std::lock_guard lock(mutex_);
        return orders_;
    }

  private:
    void serve() {
        for (int client; (client = accept(fd_, nullptr, nullptr)) >= 0; close(client)) {
            char line[4096];
            const ssize_t got = recv(client, line, sizeof(line), 0);
            const json request = json::parse(
                std::string(line, static_cast<size_t>(std::max<ssize_t>(got, 0))), nullptr, false);
            const json reply = request.is_object() ? answer_to(request) : json::object();
            const std::string answer = reply.is_null() ? "" : reply.dump() + "\n";
            send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
        }
    }
    json answer_to(const json& request) {
        const std::lock_guard lock(mutex_);
        if (request["cmd"] == "status") {
            if (left_ > 0 && --left_ == 0) catch_up();
            json out = status_;
            if (request.contains("replica"))
                out.update({{"replica", request["replica"]}, {"role", "primary"}});
            if (!request.contains("replica") && !before_.is_null() && behind_-- > 0)
                out["membership"] = before_;
            return out;
        }
        if (request["cmd"] == "output") return {{"error", "it has no log"}};
        orders_ += request["cmd"] == "member"
                       ? request["do"].get<std::string>() + " " + request["id"].dump() + " "
                       : request["cmd"].get<std::string>() + " ";
        if (request["cmd"] != "member") return {{"ok", true}};
        const json before = status_["membership"];
        follow(request["do"], request["id"]);
        if (std::exchange(lost_, false)) {
            before_ = before;
            return {};
        }
        if (before == status_["membership"]) return {{"error", "there is nothing to change"}};
        return {{"ok", true}};
    }
    void follow(const std::string& what, uint32_t id) {
        json& members = status_["membership"]["members"];
        for (size_t i = 0; i < members.size(); ++i) {
            if (members[i]["replica"] != id) continue;
            if (what == "promote") members[i]["voter"] = true;
            if (what == "remove") members.erase(i);
            return;
        }
    }
    void catch_up() {
        for (json& one : status_["peers"]) one["matched"] = status_["decided"];
    }

    crane::paxos::testing::TemporaryDirectory dir_;
    int fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::mutex mutex_;
    json status_;
    json before_;
    int left_ = 0, behind_ = 0;
    bool lost_ = false;
    std::string orders_;
    std::thread thread_;
};

/// What it said, or why not.
std::string say(const std::function<int()>& command) {
    std::ostringstream out;
    const std::unique_ptr<std::streambuf, void (*)(std::streambuf*)> before(
        std::cout.rdbuf(out.rdbuf()), [](std::streambuf* one) { std::cout.rdbuf(one); });
    try {
        command();
    } catch (const std::runtime_error& error) {
        return std::string("refused: ") + error.what();
    }
    return out.str();
}

std::string replace(const FakeCraned& craned, uint32_t old, uint32_t newcomer, uint32_t wait_s) {
    return say([&] { return tool_member(craned.dir(), {"replace", old, newcomer, "", wait_s}, false); });
}

}  // namespace

TEST_CASE("replace: nobody is removed for a newcomer that has not caught up", "[tool]") {
    FakeCraned craned(primary_of_four(3000));
    CHECK_THAT(replace(craned, 3, 4, 0),
               Catch::Contains("replica 4 is 6000 log entries behind: replica 3 was "
                               "not removed, and nothing has changed"));
    const auto with = [&](const char* key, const json& value, const std::string& words) {
        craned.change([&](json& status) {
            status["peers"][2] = peer(4, false, 9000);
            status["peers"][2][key] = value;
        });
        CHECK_THAT(replace(craned, 3, 4, 0), Catch::Contains(words));
    };
    with("needs_checkpoint", true, "has not got the checkpoint yet");
    with("rejoining", true, "has lost its database");
    with("matched", 0, "has nothing of the log yet");
    with("heard_ms_ago", 5000, "does not answer");
    with("connected", false, "is not connected");
    CHECK(craned.orders().empty());
}

TEST_CASE("replace: a newcomer is waited for, and then takes the place", "[tool]") {
    FakeCraned craned(primary_of_four(3000));
    craned.level_after(4);
    CHECK(replace(craned, 3, 4, 60) == "replica 4 votes in the place of replica 3\n");
    CHECK(craned.orders() == "remove 3 promote 4 ");
}

TEST_CASE("replace: said again it goes on where it ended, and a number that nobody had is refused",
          "[tool]") {
    FakeCraned craned(primary_of_four(9000));
    craned.change([](json& status) { status["membership"]["members"].erase(2); });
    CHECK(replace(craned, 3, 4, 0) == "replica 4 votes in the place of replica 3\n");
    CHECK(craned.orders() == "promote 4 ");
    CHECK(replace(craned, 3, 4, 0) == "replica 4 votes in the place of replica 3\n");
    CHECK_THAT(replace(craned, 2, 4, 0), Catch::Contains("replica 4 votes already"));
    CHECK_THAT(replace(craned, 9, 4, 0), Catch::Contains("replica 9 has never been a member"));
    CHECK_THAT(replace(craned, 2, 3, 0), Catch::Contains("replica 3 is not a member: add and start it"));
    CHECK(craned.orders() == "promote 4 ");
}

TEST_CASE("member: a change whose answer is lost is looked for before it is asked for again", "[tool]") {
    for (const bool backup : {false, true}) {
        INFO("backup: " << backup);
        FakeCraned craned(primary_of_four(9000));
        if (backup) craned.follow_another();
        craned.lose_answer();
        CHECK(replace(craned, 3, 4, 0) == "replica 4 votes in the place of replica 3\n");
        CHECK(craned.orders() == "remove 3 promote 4 ");
    }
    FakeCraned craned(primary_of_four(9000));
    craned.lose_answer();
    CHECK(say([&] {
              return tool_member(craned.dir(), {"promote", 4, 0, ""}, false);
          }) == "replica 4 votes\n");
    CHECK(craned.orders() == "promote 4 ");
}

TEST_CASE("member: what is refused since it is done already is no failure", "[tool]") {
    FakeCraned craned(primary_of_four(9000));
    craned.follow_another();
    craned.lose_answer(3);
    CHECK(replace(craned, 3, 4, 0) == "replica 4 votes in the place of replica 3\n");
    CHECK(craned.orders() == "remove 3 remove 3 remove 3 remove 3 promote 4 ");
}

TEST_CASE("--json: an order that is taken, and comes to nothing, is said once, as what came of it",
          "[tool]") {
    FakeCraned craned(primary_of_four(9000));
    int code = -1;
    const auto transfer = [&](uint32_t to) {
        return json::parse(say([&] { return code = tool_transfer(craned.dir(), to, true); }), nullptr, false);
    };
    CHECK(transfer(3) == json{{"error", "it did not take over"}});
    CHECK(code == kExitNo);
    CHECK(transfer(1) == json{{"ok", true}});
    CHECK(code == kExitOk);
    CHECK(say([&] { return code = tool_signal(craned.dir(), "HUP", true); }) == "{\"ok\":true}\n");
    CHECK(code == kExitOk);
    CHECK(craned.orders() == "transfer transfer signal ");
}

TEST_CASE("--replica: what is on another host is refused, and that host named", "[tool]") {
    FakeCraned craned(primary_of_four(9000));
    const std::string elsewhere =
        "refused: " + craned.dir() +
        " is that of replica 1: say this on the host of replica 3, which its peers reach at 10.0.0.3:7400";
    CHECK(say([&] { return remake_server(craned.dir(), 3, false); }) == elsewhere);
    CHECK(craned.orders().empty());
    CHECK(say([&] { return tool_checkpoint(craned.dir(), {"list", 3}, false); }) == elsewhere);
    CHECK(say([&] { return tool_output(craned.dir(), {3, {}}, false); }) == elsewhere);
    CHECK(say([&] { return tool_log(craned.dir(), {3, 1, 1}, false); }) == elsewhere);
    CHECK(say([&] { return tool_verify(craned.dir(), 3, false); }) == elsewhere);
    CHECK_THAT(say([&] {
                   return tool_checkpoint(craned.dir(), {"list", 9}, false);
               }),
               Catch::EndsWith(", and the cluster has no replica 9 (crane member list)"));
    CHECK(say([&] {
              return tool_checkpoint(craned.dir(), {"list", 1}, false);
          }) == "there are no checkpoints\n");
}

TEST_CASE("recover: what starts the replica is its unit where its configuration is a package's", "[tool]") {
    const crane::paxos::testing::TemporaryDirectory dir;
    const std::string etc = dir.path + "/etc", state = dir.path + "/web";
    fs::create_directories(etc);
    fs::create_directories(state);
    CHECK(how_to_start(state, etc) == "craned --config FILE, its configuration");
    std::ofstream(etc + "/web.toml") << "";
    CHECK(how_to_start(state, etc) == "systemctl start crane@web");
    CHECK(how_to_start(state + "/", etc) == "systemctl start crane@web");
    CHECK(how_to_stop(state, etc) == "systemctl stop crane@web");
    CHECK(config_file(state, etc) == etc + "/web.toml");
    std::ofstream(state + "/craned.toml") << "";
    CHECK(how_to_start(state, etc) == "craned --config " + state + "/craned.toml");
    CHECK(how_to_stop(state, etc) == "crane stop");
    CHECK(config_file(state, etc) == state + "/craned.toml");
}

TEST_CASE("--state-dir: where there is none, those beside it are named", "[tool]") {
    const crane::paxos::testing::TemporaryDirectory dir;
    const std::string missing = dir.path + "/default";
    CHECK_THAT(say([&] { return tool_status(missing, false); }),
               Catch::StartsWith("refused: " + missing) &&
                   Catch::EndsWith("; give the cluster's directory with --state-dir"));
    fs::create_directories(dir.path + "/web/db");
    fs::create_directories(dir.path + "/images");
    CHECK_THAT(say([&] { return tool_status(missing, false); }),
               Catch::EndsWith("; say which with --state-dir: there is " + dir.path + "/web"));
}

TEST_CASE("log verify: of a replica that runs it is said how to end it", "[tool]") {
    const crane::paxos::testing::TemporaryDirectory dir;
    fs::create_directories(dir.path + "/db");
    const int lock = open((dir.path + "/db/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(flock(lock, LOCK_EX | LOCK_NB) == 0);
    for (const std::string& said : {say([&] { return tool_verify(dir.path, 0, false); }), say([&] {
                                        return tool_recover(dir.path, {0, true}, false);
                                    })})
        CHECK_THAT(said,
                   Catch::Contains("is in use, so its replica runs") && Catch::EndsWith("(crane stop)"));
    close(lock);
}

TEST_CASE("diff: the logs of other hosts are asked for", "[tool]") {
    FakeCraned craned(primary_of_four(9000));
    std::ofstream(craned.dir() + "/output.log") << "";
    CHECK_THAT(say([&] { return tool_diff(craned.dir(), {}, false); }),
               Catch::Contains("not compared: replica 3: it has no log"));
}
