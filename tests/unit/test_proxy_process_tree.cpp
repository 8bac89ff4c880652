// The server's processes, found without going through the host's.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "proxy/process_tree.hpp"
#include "tests/unit/test_shared_memory.hpp"

using namespace crane::proxy;

namespace fs = std::filesystem;

namespace {

void burn() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile bool on = true; on;) {
    }
}

/// The first process of a pid namespace, with a child that computes; with a /proc of its own if `with_proc`.
[[noreturn]] void be_first(int ready, bool with_proc) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (with_proc && (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                      mount("proc", "/proc", "proc", 0, nullptr) != 0))
        _exit(1);
    if (fork() == 0) burn();
    if (write(ready, "x", 1) != 1) _exit(1);
    for (;;) pause();
}

struct Namespace {
    pid_t maker = 0;
    pid_t first = 0;  ///< its pid here

    explicit Namespace(bool with_proc) {
        int names[2], ready[2];
        REQUIRE(pipe(names) == 0);
        REQUIRE(pipe(ready) == 0);
        maker = fork();
        if (maker == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) _exit(1);
            const pid_t child = fork();
            if (child == 0) be_first(ready[1], with_proc);
            if (write(names[1], &child, sizeof(child)) != sizeof(child)) _exit(1);
            for (;;) pause();
        }
        close(names[1]);
        close(ready[1]);
        char there = 0;
        REQUIRE(read(names[0], &first, sizeof(first)) == sizeof(first));
        REQUIRE(read(ready[0], &there, 1) == 1);
        close(names[0]);
        close(ready[0]);
    }
    ~Namespace() {
        kill(maker, SIGKILL);  // the others follow
        waitpid(maker, nullptr, 0);
    }
    Namespace(const Namespace&) = delete;
    Namespace& operator=(const Namespace&) = delete;
};

/// A /proc made of files, that says who was looked at.
class FakeProc {
  public:
    FakeProc() {
        REQUIRE(mkdtemp(path_.data()) != nullptr);
        REQUIRE(events_ >= 0);
    }
    ~FakeProc() {
        fs::remove_all(path_);
        close(events_);
    }
    FakeProc(const FakeProc&) = delete;
    FakeProc& operator=(const FakeProc&) = delete;

    void add(pid_t pid, pid_t parent, const std::map<pid_t, std::string>& children_of_threads,
             bool told = true) const {
        const fs::path folder = fs::path(path_) / std::to_string(pid);
        fs::create_directories(folder);
        std::ofstream(folder / "stat")
            << pid << " (a) b) S " << parent << " 0 0 0 0 0 0 0 0 0 3 4 1 2 20 0 1 0 77 0\n";
        for (const auto& [thread, children] : children_of_threads) {
            fs::create_directories(folder / "task" / std::to_string(thread));
            if (told) std::ofstream(folder / "task" / std::to_string(thread) / "children") << children;
        }
    }
    void watch(pid_t pid) const {
        const std::string folder = path() + "/" + std::to_string(pid);
        REQUIRE(inotify_add_watch(events_, folder.c_str(), IN_OPEN) >= 0);
    }
    bool was_looked_at() const {
        char events[4096];
        return read(events_, events, sizeof(events)) > 0;
    }
    std::string path() const { return path_; }

  private:
    std::string path_ = crane::testing::in_shared_memory("tree");
    int events_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
};

bool computes(pid_t root) {
    const double before = tree_cpu_seconds(root);
    for (int i = 0; i < 1000; ++i) {
        if (tree_cpu_seconds(root) > before + 0.03) return true;
        usleep(10'000);
    }
    return false;
}

}  // namespace

TEST_CASE("process tree: a container's processes are found in its own /proc", "[proxy]") {
    if (geteuid() != 0) return;  // namespaces are for root
    const Namespace container(true);
    const pid_t first = container.first;
    CHECK(own_proc(first) == "/proc/" + std::to_string(first) + "/root/proc");
    CHECK(process_tree(first).size() == 2);
    CHECK(computes(first));
    CHECK(tree_io_bytes(first) > 0);
    CHECK(tree_memory_bytes(first) > 10'000);
}

TEST_CASE("process tree: without a /proc of its own one goes down from parent to child", "[proxy]") {
    CHECK(own_proc(getpid()).empty());
    CHECK(own_proc(0).empty());
    CHECK(own_proc(1).empty());
    CHECK(process_tree(getpid()).count(getpid()) == 1);
    const pid_t child = fork();
    if (child == 0) burn();
    CHECK(computes(child));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (geteuid() != 0) return;
    const Namespace container(false);  // it sees the host's
    const pid_t first = container.first;
    CHECK(own_proc(first).empty());
    CHECK(computes(first));
}

TEST_CASE("process tree: nobody else's process is looked at", "[proxy]") {
    const FakeProc proc;
    proc.add(100, 1, {{100, "101 "}, {110, "102 103 "}});  // the second thread's, too
    proc.add(101, 100, {{101, ""}});
    proc.add(102, 100, {{102, "104 "}});
    proc.add(104, 102, {{104, ""}});
    for (pid_t other = 1000; other < 1500; ++other) {  // 103 has ended meanwhile
        proc.add(other, 1, {{other, ""}});
        proc.watch(other);
    }
    const auto found = process_tree(100, proc.path());
    REQUIRE(found.size() == 4);
    CHECK(found.count(104) == 1);
    CHECK(found.at(102).parent == 100);
    CHECK(found.at(102).ticks == 10);
    CHECK_FALSE(proc.was_looked_at());
    CHECK(process_tree(99, proc.path()).empty());
    CHECK(process_tree(1000, proc.path()).size() == 1);
    CHECK(proc.was_looked_at());  // so it would have been seen
}

TEST_CASE("process tree: a look at very many processes, or at a loop of them, is cut short", "[proxy]") {
    const FakeProc proc;
    std::string children;
    for (pid_t child = 101; child < 5200; ++child) {
        proc.add(child, 100, {{child, "100 "}});
        children += std::to_string(child) + " ";
    }
    proc.add(100, 1, {{100, children}});
    CHECK(process_tree(100, proc.path()).size() == 4096);
}

TEST_CASE("process tree: where children are not told, all are looked through", "[proxy]") {
    const FakeProc proc;
    proc.add(100, 1, {{100, ""}}, false);
    proc.add(101, 100, {{101, ""}}, false);
    proc.add(102, 101, {{102, ""}}, false);
    proc.add(103, 1, {{103, ""}}, false);
    CHECK(process_tree(100, proc.path()).size() == 3);
}
