// The server's processes, found without going through the host's.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "proxy/process_tree.hpp"

using namespace crane::proxy;

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

TEST_CASE("process tree: without a /proc of its own the host's is looked through", "[proxy]") {
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
