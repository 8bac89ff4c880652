// Whole craneds over loopback, with a fake domain in the server's place: one alone, then three with
// consensus.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "proxy/tool/compare.hpp"
#include "proxy/tool/tools.hpp"

using namespace crane::proxy;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kLimitS = 20;

bool wait_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kLimitS);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        usleep(5000);
    }
    return true;
}

fs::path bin_dir() {
    return fs::read_symlink("/proc/self/exe").parent_path();
}

uint16_t free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

/// A client with blocking calls that give up after the limit.
class Client {
  public:
    explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const timeval limit{kLimitS, 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
    ~Client() { close(fd_); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void say(std::string_view bytes) { REQUIRE(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0); }
    /// Exactly so many bytes, or fewer at the end.
    std::string hear(size_t bytes) {
        std::string out(bytes, '\0');
        size_t got = 0;
        for (ssize_t n; got < bytes && (n = recv(fd_, out.data() + got, bytes - got, 0)) > 0;) {
            got += static_cast<size_t>(n);
        }
        out.resize(got);
        return out;
    }
    void end() { shutdown(fd_, SHUT_WR); }
    bool echoes(const std::string& bytes) {
        return connected_ && send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0 &&
               hear(bytes.size()) == bytes;
    }

  private:
    int fd_;
    bool connected_ = false;
};

class Cluster {
  public:
    explicit Cluster(int replicas, const std::string& mode = "full") : replicas_(replicas) {
        char name[] = "/tmp/crane-unit-XXXXXX";
        REQUIRE(mkdtemp(name));
        base_ = name;
        const uint16_t port = free_port();
        std::string list;
        for (int i = 1; i <= replicas; ++i) {
            ports_.push_back(free_port());
            list += "[[replica]]\nid = " + std::to_string(i) +
                    "\npeer = \"127.0.0.1:" + std::to_string(free_port()) + "\"\nport_map = { \"" +
                    std::to_string(port) + "\" = " + std::to_string(ports_.back()) + " }\n";
        }
        for (int i = 1; i <= replicas; ++i) {
            fs::create_directories(dir(i));
            std::ofstream file(dir(i) + "/craned.toml");
            file << "cluster_id = \"" << std::hex << getpid() << port << std::dec << "\"\nreplica_id = " << i
                 << "\nstate_dir = \"" << dir(i) << "\"\nmode = \"" << mode
                 << "\"\nisolation = \"none\"\nserver = [" << bin_dir() / "fake-domain"
                 << ", \"" << port << "\"]\nshim = \"" << shim() << "\"\ninit = " << bin_dir() / "crane-init"
                 << "\n[consensus]\nelection_timeout_ms = 300\n"
                 << list;
        }
        pids_.resize(static_cast<size_t>(replicas) + 1, 0);
        for (int i = 1; i <= replicas; ++i) start(i);
        REQUIRE(wait_until([&] {
            for (int k = 1; k <= replicas_; ++k) {
                if (status(k).value("server", "") != "listening") return false;
            }
            return true;
        }));
    }
    ~Cluster() {
        for (size_t i = 1; i < pids_.size(); ++i) {
            if (pids_[i] > 0) kill(pids_[i], SIGTERM);
        }
        for (size_t i = 1; i < pids_.size(); ++i) {
            if (pids_[i] > 0) waitpid(pids_[i], nullptr, 0);
        }
        if (!getenv("CRANE_KEEP")) fs::remove_all(base_);
    }

    void start(int replica) {
        const std::string program = bin_dir() / "craned";
        const std::string config = dir(replica) + "/craned.toml";
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            const int null = open("/dev/null", O_RDWR);
            for (int fd : {0, 1, 2}) dup2(null, fd);
            execl(program.c_str(), "craned", "--config", config.c_str(), nullptr);
            _exit(127);
        }
        pids_[static_cast<size_t>(replica)] = pid;
    }
    void kill_craned(int replica) {
        kill(pids_[static_cast<size_t>(replica)], SIGKILL);
        waitpid(pids_[static_cast<size_t>(replica)], nullptr, 0);
        pids_[static_cast<size_t>(replica)] = 0;
    }

    json status(int replica) const {
        try {
            return ask_craned(dir(replica), {{"cmd", "status"}});
        } catch (const std::runtime_error&) {
            return json::object();
        }
    }
    int primary(int other_than = 0) const {
        int found = 0;
        REQUIRE(wait_until([&] {
            for (int i = 1; i <= replicas_ && found == 0; ++i) {
                const json one = status(i);
                if (i != other_than && one.value("role", "") == "primary" && one.value("ready", false))
                    found = i;
            }
            return found != 0;
        }));
        return found;
    }
    /// All living replicas have admitted the same and said the same.
    bool settles() const {
        return wait_until([&] {
            json first;
            for (int i = 1; i <= replicas_; ++i) {
                if (pids_[static_cast<size_t>(i)] == 0) continue;
                const json one = status(i);
                if (one.value("lag", 1) != 0) return false;
                if (first.is_null()) first = one;
                if (one["admitted"] != first["admitted"] || one["output_hash"] != first["output_hash"])
                    return false;
            }
            return true;
        });
    }
    CompareResult compare() const {
        std::vector<std::string> paths;
        for (int i = 1; i <= replicas_; ++i) paths.push_back(dir(i));
        CompareResult result;
        wait_until([&] {  // buffers are written out a little later
            result = compare_logs(paths);
            return result.verdict == CompareResult::Verdict::kIdentical ||
                   result.verdict == CompareResult::Verdict::kDifferent;
        });
        return result;
    }

    std::string dir(int replica) const { return base_ + "/r" + std::to_string(replica); }
    uint16_t port(int replica) const { return ports_[static_cast<size_t>(replica) - 1]; }

  private:
    /// Any library will do: the fake domain needs no shim.
    static std::string shim() {
        for (const char* path :
             {"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"}) {
            if (fs::exists(path)) return path;
        }
        return "/lib/libm.so.6";
    }

    int replicas_;
    std::string base_;
    std::vector<uint16_t> ports_;
    std::vector<pid_t> pids_;
};

std::string pattern(size_t bytes) {
    std::string out(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>('a' + (i / 7) % 26);
    return out;
}

}  // namespace

TEST_CASE("craned alone, without a log: clients are served", "[craned]") {
    Cluster cluster(1, "dmt");
    Client client(cluster.port(1));
    CHECK(client.echoes("hello\n"));
    CHECK(client.echoes("again"));
    Client busy(cluster.port(1));
    busy.say("work 100000\n");  // far beyond one grant: bubbles must come
    CHECK(busy.hear(5) == "done\n");
    CHECK(cluster.status(1)["counters"]["bubbles"].get<uint64_t>() > 0);
}

TEST_CASE("craned alone: a restart replays the log to the same output", "[craned]") {
    Cluster cluster(1);
    {
        Client client(cluster.port(1));
        CHECK(client.echoes("hello\n"));
        Client blast(cluster.port(1));
        blast.say("blast 10000000\n");
        CHECK(blast.hear(10'000'001) == pattern(10'000'000));  // past the send window, then the end
    }
    REQUIRE(wait_until([&] { return cluster.status(1).value("open_connections", 9) == 0; }));
    const json before = cluster.status(1);
    cluster.kill_craned(1);
    cluster.start(1);
    REQUIRE(wait_until([&] {
        const json now = cluster.status(1);
        return now.value("admitted", 0) == before["admitted"] && now.value("lag", 1) == 0;
    }));
    CHECK(cluster.status(1)["output_hash"] == before["output_hash"]);
    const auto again = compare_logs({cluster.dir(1) + "/output.log.previous", cluster.dir(1)});
    CHECK(again.verdict != CompareResult::Verdict::kDifferent);
    CHECK(again.records > 0);
    CHECK(Client(cluster.port(1)).echoes("back\n"));
}

TEST_CASE("three craneds: every address serves, and all say the same", "[craned]") {
    Cluster cluster(3);
    for (int i : {1, 2, 3}) {
        Client client(cluster.port(i));
        CHECK(client.echoes("via " + std::to_string(i) + "\n"));
        Client blast(cluster.port(i));
        blast.say("blast 6000000\n");
        CHECK(blast.hear(6'000'001).size() == 6'000'000);
    }
    CHECK(cluster.settles());
    const CompareResult result = cluster.compare();
    CHECK(result.verdict == CompareResult::Verdict::kIdentical);
    CHECK(result.bytes >= 18'000'000);
    CHECK(result.schedule_difference.empty());
    const json divergence = cluster.status(cluster.primary())["divergence"];
    CHECK(divergence["diverged"].empty());
    CHECK(divergence["compared"].get<uint64_t>() > 0);
}

TEST_CASE("three craneds: the primary is killed, its clients are reset, those of others go on", "[craned]") {
    Cluster cluster(3);
    const int old = cluster.primary();
    const int other = old % 3 + 1;
    Client lost(cluster.port(old));
    REQUIRE(lost.echoes("before\n"));
    Client stays(cluster.port(other));
    REQUIRE(stays.echoes("before\n"));
    cluster.kill_craned(old);
    CHECK(Client(cluster.port(other)).echoes("waits for a primary\n"));
    CHECK(lost.hear(1).empty());
    CHECK(stays.echoes("after\n"));
    const int now = cluster.primary(old);
    REQUIRE(wait_until([&] { return cluster.status(now).value("open_connections", 9) == 1; }));
    CHECK(stays.echoes("and later\n"));
    stays.end();
    REQUIRE(wait_until([&] { return cluster.status(now).value("open_connections", 9) == 0; }));
    cluster.start(old);
    REQUIRE(wait_until([&] { return cluster.status(old).value("server", "") == "listening"; }));
    CHECK(Client(cluster.port(old)).echoes("through the returned one\n"));
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: a domain is killed and comes back by replay", "[craned]") {
    Cluster cluster(3);
    const int first = cluster.primary();
    const int backup = first % 3 + 1;
    Client client(cluster.port(first));
    REQUIRE(client.echoes("unaffected\n"));
    const auto lose_domain = [&](int replica) {
        kill(cluster.status(replica)["server_pid"].get<pid_t>(), SIGKILL);
        REQUIRE(wait_until([&] {
            const json now = cluster.status(replica);
            return now.contains("counters") && now["counters"]["domain_restarts"] == 1 &&
                   now["server"] == "listening" && now["lag"] == 0;
        }));
    };
    lose_domain(backup);
    CHECK(client.echoes("still here"));
    lose_domain(first);
    CHECK(Client(cluster.port(first)).echoes("served again\n"));
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: divergence is found while running", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    Client odd(cluster.port(primary));
    odd.say("differ\n");
    REQUIRE(odd.hear(4) == "pid ");
    CHECK(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(primary)["divergence"]["diverged"].empty();
    }));
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kDifferent);
}

TEST_CASE("three craneds: a planned hand-over resets nobody", "[craned]") {
    Cluster cluster(3);
    std::vector<std::unique_ptr<Client>> clients;
    for (int i : {1, 2, 3}) {
        clients.push_back(std::make_unique<Client>(cluster.port(i)));
        REQUIRE(clients.back()->echoes("before\n"));
    }
    for (int round = 0; round < 4; ++round) {
        const int old = cluster.primary();
        // Said and not yet answered when leadership moves.
        for (auto& client : clients) client->say(std::string(20'000, static_cast<char>('a' + round)));
        REQUIRE(ask_craned(cluster.dir(old), {{"cmd", "transfer"}, {"to", old % 3 + 1}}).contains("ok"));
        for (auto& client : clients)
            CHECK(client->hear(20'000) == std::string(20'000, static_cast<char>('a' + round)));
        REQUIRE(cluster.primary(old) == old % 3 + 1);
    }
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: leadership is handed over, and the server's own end is the cluster's", "[craned]") {
    Cluster cluster(3);
    const int old = cluster.primary();
    const int next = old % 3 + 1;
    CHECK(ask_craned(cluster.dir(next), {{"cmd", "transfer"}, {"to", old}}).contains("error"));
    CHECK(ask_craned(cluster.dir(old), {{"cmd", "transfer"}, {"to", next}}).contains("ok"));
    CHECK(cluster.primary(old) == next);
    CHECK(ask_craned(cluster.dir(next), {{"cmd", "dance"}}).contains("error"));
    Client client(cluster.port(next));
    client.say("quit 3\n");
    CHECK(wait_until([&] {
        for (int i : {1, 2, 3}) {
            const json now = cluster.status(i);
            if (now.value("server", "") != "exited" ||
                now.value("message", "").find("status 3") == std::string::npos) {
                return false;
            }
        }
        return true;
    }));
    CHECK(client.hear(1).empty());
}
