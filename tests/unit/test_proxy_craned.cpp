// Whole craneds over loopback, with a fake domain in the server's place: one alone, then three with
// consensus.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
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
    struct Options {
        std::string mode = "full";
        std::string restart = "always";
        rlim_t descriptors = 0;  ///< limit of open files; 0: this process's
        bool small_disks = false;
    };
    explicit Cluster(int replicas) : Cluster(replicas, Options{}) {}
    Cluster(int replicas, const Options& options)
        : replicas_(replicas), descriptors_(options.descriptors), small_disks_(options.small_disks) {
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
            if (small_disks_) REQUIRE(mount("tmpfs", dir(i).c_str(), "tmpfs", 0, "size=128m") == 0);
            std::ofstream file(dir(i) + "/craned.toml");
            file << "cluster_id = \"" << std::hex << getpid() << port << std::dec << "\"\nreplica_id = " << i
                 << "\nstate_dir = \"" << dir(i) << "\"\nmode = \"" << options.mode << "\"\nrestart = \""
                 << options.restart << "\"\nisolation = \"none\"\nserver = [" << bin_dir() / "fake-domain"
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
        for (int i = 1; small_disks_ && i <= replicas_; ++i) umount2(dir(i).c_str(), MNT_DETACH);
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
            const rlimit limit{descriptors_, descriptors_};
            if (descriptors_ != 0) setrlimit(RLIMIT_NOFILE, &limit);
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

    /// Somebody else takes what is free on its disk, but for so much.
    void fill_disk(int replica, uint64_t leave_bytes) const {
        struct statvfs disk {};
        REQUIRE(statvfs(dir(replica).c_str(), &disk) == 0);
        const int fd = open((dir(replica) + "/ballast").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        REQUIRE(posix_fallocate(fd, 0, static_cast<off_t>(disk.f_bavail * disk.f_frsize - leave_bytes)) == 0);
        close(fd);
    }
    void free_disk(int replica) const { fs::remove(dir(replica) + "/ballast"); }

    void signal_craned(int replica, int number) const { kill(pids_[static_cast<size_t>(replica)], number); }
    /// It has ended by itself.
    bool ended(int replica) {
        pid_t& pid = pids_[static_cast<size_t>(replica)];
        if (pid > 0 && waitpid(pid, nullptr, WNOHANG) == pid) pid = 0;
        return pid == 0;
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
    /// Every replica has a server of that number, and clients are let in.
    bool serves_again(uint64_t generation) const {
        return wait_until([&] {
            for (int i = 1; i <= replicas_; ++i) {
                const json one = status(i);
                if (one.value("generation", 0ULL) != generation || one.value("server", "") != "listening")
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

    const std::string& base() const { return base_; }
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
    rlim_t descriptors_;
    bool small_disks_;
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
    Cluster cluster(1, {.mode = "dmt"});
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

TEST_CASE("three craneds: a replica that differs serves nobody and does not lead", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    const int odd = primary % 3 + 1;
    const int good = odd % 3 + 1;
    Client through(cluster.port(odd));
    REQUIRE(through.echoes("as long as it is right\n"));
    Client maker(cluster.port(good));
    maker.say("odd " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "ok!\n");
    REQUIRE(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(odd).value("fenced", "").empty();
    }));
    CHECK(through.hear(1).empty());
    CHECK_FALSE(Client(cluster.port(odd)).echoes("nobody is served here\n"));
    CHECK(tool_status(cluster.base(), true) == kExitNo);
    CHECK(tool_health(cluster.base(), {static_cast<uint32_t>(odd), false}, false) == kExitNo);
    CHECK(tool_health(cluster.base(), {static_cast<uint32_t>(good), false}, false) == kExitOk);
    // It is asked to lead, and does not; the third one does when the primary dies.
    ask_craned(cluster.dir(primary), {{"cmd", "transfer"}, {"to", odd}});
    cluster.kill_craned(primary);
    CHECK(cluster.primary(primary) == good);
    CHECK(Client(cluster.port(good)).echoes("served by the right one\n"));
    // Its server made anew from the log differs again, and it is fenced again.
    cluster.start(primary);
    cluster.kill_craned(odd);
    cluster.start(odd);
    CHECK(wait_until([&] { return !cluster.status(odd).value("fenced", "").empty(); }));
}

TEST_CASE("three craneds: an odd primary steps down", "[craned]") {
    Cluster cluster(3);
    const int odd = cluster.primary();
    Client maker(cluster.port(odd));
    maker.say("odd " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "odd\n");
    const int other = odd % 3 + 1;
    REQUIRE(wait_until([&] {
        Client(cluster.port(other)).echoes("more\n");
        return !cluster.status(odd).value("fenced", "").empty();
    }));
    CHECK(cluster.primary(odd) != odd);
    CHECK(Client(cluster.port(other)).echoes("served\n"));
}

TEST_CASE("three craneds: of two that differ nobody is fenced before the third one can tell", "[craned]") {
    Cluster cluster(3);
    const int primary = cluster.primary();
    const int odd = primary % 3 + 1;
    const int third = odd % 3 + 1;
    cluster.kill_craned(third);
    Client maker(cluster.port(primary));
    maker.say("odd " + std::to_string(odd) + "\n");
    CHECK(maker.hear(4) == "ok!\n");
    REQUIRE(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(primary)["divergence"]["diverged"].empty();
    }));
    CHECK(cluster.status(primary)["divergence"]["diverged"][0]["replica"] == 0);
    CHECK(cluster.status(odd)["fenced"] == "");
    CHECK(cluster.status(primary)["fenced"] == "");
    cluster.start(third);
    CHECK(wait_until([&] {
        Client(cluster.port(primary)).echoes("more\n");
        return !cluster.status(odd).value("fenced", "").empty();
    }));
    CHECK(cluster.status(primary)["fenced"] == "");
    CHECK(cluster.status(third)["fenced"] == "");
}

TEST_CASE("three craneds: an operator on any host is heard, and told how the cluster is", "[craned]") {
    Cluster cluster(3);
    const int old = cluster.primary();
    const int next = old % 3 + 1;
    const int third = next % 3 + 1;
    REQUIRE(wait_until([&] { return tool_status(cluster.base(), true) == kExitOk; }));
    CHECK(tool_status(cluster.dir(third), true) == kExitOk);  // one replica of several hosts
    CHECK(tool_health(cluster.dir(third), {0, true}, false) == kExitNo);
    CHECK(tool_transfer(cluster.dir(third), static_cast<uint32_t>(next), true) == kExitOk);
    CHECK(cluster.primary(old) == next);
    REQUIRE(wait_until([&] { return tool_health(cluster.dir(next), {0, true}, false) == kExitOk; }));
    CHECK(find_contact(cluster.dir(third))->status["leader"] == next);
    // The primary removes itself by way of its successor.
    CHECK(tool_member(cluster.dir(next), {"remove", static_cast<uint32_t>(next), 0, ""}, true) == kExitOk);
    CHECK(wait_until([&] { return cluster.ended(next); }));
    CHECK(
        wait_until([&] { return tool_status(cluster.base(), true) == kExitOk; }));  // it is nobody's to miss
    cluster.kill_craned(third);
    CHECK(tool_status(cluster.base(), true) == kExitNo);
}

TEST_CASE("craned: logs that were moved away are begun anew on SIGHUP, and nobody is disturbed", "[craned]") {
    Cluster cluster(1);
    Client client(cluster.port(1));
    REQUIRE(client.echoes("before\n"));
    fs::rename(cluster.dir(1) + "/craned.log", cluster.dir(1) + "/craned.log.old");
    cluster.signal_craned(1, SIGHUP);
    CHECK(wait_until([&] {
        std::ifstream log(cluster.dir(1) + "/craned.log");
        return std::string(std::istreambuf_iterator<char>(log), {}).find("reopened") != std::string::npos;
    }));
    CHECK(client.echoes("after\n"));
}

TEST_CASE("craned: when descriptors run out, clients are refused, and the operator is heard", "[craned]") {
    Cluster cluster(1, {.descriptors = 1100});
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 900; ++i) clients.push_back(std::make_unique<Client>(cluster.port(1)));
    CHECK(clients[0]->echoes("served\n"));
    CHECK_FALSE(clients[880]->echoes("refused\n"));
    const json status = cluster.status(1);
    CHECK(status["max_clients"] == 844);
    REQUIRE(status["alarms"].size() == 1);
    CHECK(status["alarms"][0].get<std::string>().find("clients are refused") != std::string::npos);
    CHECK(tool_status(cluster.dir(1), true) == kExitNo);
    CHECK(fs::file_size(cluster.dir(1) + "/craned.log") < 10'000);
    clients.clear();
    CHECK(wait_until([&] { return cluster.status(1)["alarms"].empty(); }));
    CHECK(wait_until([&] { return Client(cluster.port(1)).echoes("served again\n"); }));
}

TEST_CASE("three craneds: whose disk fills up leaves leading to others, and nobody dies of it", "[craned]") {
    if (geteuid() != 0) return;  // who is not root can make no small disk
    Cluster cluster(3, {.small_disks = true});
    const int old = cluster.primary();
    constexpr uint64_t kMiB = 1 << 20;
    const auto full = [&cluster](int replica) {
        return cluster.status(replica).value("message", "").find("DISK FULL") != std::string::npos;
    };
    cluster.fill_disk(old, 5 * kMiB);  // of 128: less than a twentieth
    CHECK(cluster.primary(old) != old);
    CHECK(wait_until([&] { return full(old); }));
    CHECK(wait_until([&] { return Client(cluster.port(old)).echoes("served by way of another's disk\n"); }));
    for (int i = 1; i <= 3; ++i)
        if (i != old) cluster.fill_disk(i, 2 * kMiB);
    REQUIRE(wait_until([&] {
        for (int i = 1; i <= 3; ++i)
            if (!full(i)) return false;
        return true;
    }));
    CHECK(wait_until([&] { return cluster.status(cluster.primary()).value("input_stopped", false); }));
    Client waits(cluster.port(old));
    waits.say("kept\n");
    for (int i = 1; i <= 3; ++i) {
        CHECK_FALSE(cluster.ended(i));
        cluster.free_disk(i);
    }
    CHECK(waits.hear(5) == "kept\n");
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("three craneds: leadership is handed over, and the server's own end is the cluster's", "[craned]") {
    Cluster cluster(3, {.restart = "no"});
    const int old = cluster.primary();
    const int next = old % 3 + 1;
    CHECK(ask_craned(cluster.dir(next), {{"cmd", "transfer"}, {"to", old}})["forwarded"] == old);
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
    // The operator may want another one.
    CHECK(ask_craned(cluster.dir(cluster.primary()), {{"cmd", "restart"}}).contains("ok"));
    CHECK(cluster.serves_again(2));
}

TEST_CASE("three craneds: a server that ends is followed by another one, at every replay, too", "[craned]") {
    Cluster cluster(3);
    for (uint64_t generation : {2, 3}) {
        Client other(cluster.port(1));
        CHECK(other.echoes("echo\n"));
        Client client(cluster.port(cluster.primary() % 3 + 1));
        client.say("quit " + std::to_string(generation) + "\n");
        CHECK(client.hear(1).empty());
        CHECK(other.hear(1).empty());
        CHECK(cluster.serves_again(generation));
    }
    const int lost = cluster.primary();
    cluster.kill_craned(lost);
    cluster.start(lost);
    CHECK(cluster.serves_again(3));
    CHECK(cluster.settles());
    CHECK(cluster.compare().verdict == CompareResult::Verdict::kIdentical);
}

TEST_CASE("one craned: its server is followed by another one", "[craned]") {
    Cluster cluster(1);
    Client client(cluster.port(1));
    client.say("quit 0\n");
    CHECK(client.hear(1).empty());
    CHECK(cluster.serves_again(2));
    CHECK(Client(cluster.port(1)).echoes("echo\n"));
}
