// Whole craneds over loopback, with a fake domain in the server's place, and their clients.
#pragma once

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
#include "tests/unit/test_free_port.hpp"
#include "tests/unit/test_shared_memory.hpp"

namespace crane::proxy::testing {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kLimitSeconds = 60;

inline bool wait_until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kLimitSeconds);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        usleep(5000);
    }
    return true;
}

inline fs::path bin_dir() {
    return fs::read_symlink("/proc/self/exe").parent_path();
}

using crane::testing::free_port;

/// A client with blocking calls that give up after the limit.
class Client {
  public:
    explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const timeval limit{kLimitSeconds, 0};
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
        bool repair = true;
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
            file << "cluster_id = \"" << crane::testing::run_id() << port << "\"\nreplica_id = " << i
                 << "\nstate_dir = \"" << dir(i) << "\"\nmode = \"" << options.mode << "\"\nrestart = \""
                 << options.restart << "\"\nisolation = \"none\"\nserver = [" << bin_dir() / "fake-domain"
                 << ", \"" << port << "\"]\nshim = \"" << shim() << "\"\ninit = " << bin_dir() / "crane-init"
                 << "\n[checkpoint]\nrepair = " << (options.repair ? "true" : "false")
                 << "\n[consensus]\nelection_timeout_ms = 300\n"
                 << list;
        }
        pids_.resize(static_cast<size_t>(replicas) + 1, 0);
        for (int i = 1; i <= replicas; ++i) start(i);
        const bool all_listen = wait_until([&] {
            for (int k = 1; k <= replicas_; ++k) {
                if (status(k).value("server", "") != "listening") return false;
            }
            return true;
        });
        INFO(logs());
        REQUIRE(all_listen);
    }
    ~Cluster() {
        for (size_t i = 1; i < pids_.size(); ++i) {
            if (pids_[i] > 0) kill(pids_[i], SIGTERM);
        }
        for (size_t i = 1; i < pids_.size(); ++i) {
            if (pids_[i] > 0) waitpid(pids_[i], nullptr, 0);
        }
        for (int i = 1; i <= replicas_; ++i) remove_shared_memory(i);
        for (int i = 1; small_disks_ && i <= replicas_; ++i) umount2(dir(i).c_str(), MNT_DETACH);
        if (!getenv("CRANE_KEEP")) fs::remove_all(base_);
    }

    /// What the craneds have said so far.
    std::string logs() const {
        std::string all;
        for (int i = 1; i <= replicas_; ++i) {
            std::ifstream log(dir(i) + "/craned.log");
            all +=
                "replica " + std::to_string(i) + ":\n" + std::string(std::istreambuf_iterator<char>(log), {});
        }
        return all;
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
    /// It has ended by itself; with `status`, as waitpid has it.
    bool ended(int replica, int* status = nullptr) {
        pid_t& pid = pids_[static_cast<size_t>(replica)];
        if (pid > 0 && waitpid(pid, status, WNOHANG) == pid) pid = 0;
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
    /// One that was killed, and not started again, leaves what it has shared with its server.
    void remove_shared_memory(int replica) const {
        std::error_code none;
        const fs::path shared = fs::read_symlink(dir(replica) + "/shared", none);
        if (!none) fs::remove_all(shared.parent_path(), none);
    }
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

inline std::string pattern(size_t bytes) {
    std::string out(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>('a' + (i / 7) % 26);
    return out;
}

}  // namespace crane::proxy::testing
