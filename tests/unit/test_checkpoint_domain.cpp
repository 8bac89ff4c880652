// Starts real domains: with a container where this is root with LXC, else without.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "checkpoint/domain_host.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"

namespace fs = std::filesystem;
using namespace crane::checkpoint;

namespace {

struct Domain {
    std::string folder;
    DomainSpec spec;
    explicit Domain(Isolation isolation, const std::string& script) {
        char name[] = "/tmp/crane-domain-XXXXXX";
        folder = ::mkdtemp(name);
        spec.name = "crane-test-" + folder.substr(folder.size() - 6);
        spec.state_dir = folder + "/r1";
        fs::create_directories(spec.state_dir);
        spec.argv = {"/bin/sh", "-c", script};
        spec.cwd = "/";
        spec.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CRANE_TEST=yes"};
        spec.shim_path = "/lib/x86_64-linux-gnu/libdl.so.2";  // stands in for the shim: present, harmless
        spec.init_path = fs::read_symlink("/proc/self/exe").parent_path().string() + "/crane-init";
        spec.isolation = isolation;
    }
    ~Domain() {
        DomainHost::clean(spec);
        fs::remove_all(folder);
    }
    std::string output() const { return read_text_file(spec.state_dir + "/stdout"); }
};

bool eventually(const std::function<bool()>& holds, int timeout_ms = 60'000) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (std::chrono::steady_clock::now() < deadline) {
        if (holds()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return holds();
}

bool can_contain() {
    const bool can = ::geteuid() == 0 && fs::exists("/usr/bin/lxc-start");
    if (!can) WARN("no root or no LXC: containers are not tested");
    return can;
}

bool wait_exit(DomainHost& host) {
    pollfd wait{host.exit_fd(), POLLIN, 0};
    return ::poll(&wait, 1, 60'000) == 1;
}

/// A time to sleep that nobody else on this machine sleeps for: others may run the same tests.
std::string own_nap(int which) {
    return std::to_string(which) + std::to_string(::getpid());
}

std::vector<pid_t> with_argument(const std::string& word) {
    return find_processes([&](pid_t pid) {
        for (const std::string& each : command_line(pid))
            if (each == word) return true;
        return false;
    });
}

}  // namespace

TEST_CASE("a contained server sees a namespace of its own", "[checkpoint][root]") {
    if (!can_contain()) return;
    Domain domain(Isolation::kLxc,
                  "echo pid $$; hostname; echo $LD_PRELOAD $CRANE_TEST $CRANE_TRANSPORT; ls /tmp | wc -l; "
                  "stat -c %Y /etc /etc/hosts /run | uniq; ulimit -c; ls -d /run/crane; cat "
                  "/proc/self/personality; ls /proc/self/fd | wc -l; "
                  "ls " +
                      std::string("/proc/$$/ns") + " >/dev/null && touch /usr/written; exit 3");
    DomainHost host(domain.spec);
    host.start();
    CHECK(host.init_pid() > 0);
    REQUIRE(wait_exit(host));
    const auto exit = host.poll_exit();
    REQUIRE(exit);
    CHECK(exit->known);
    CHECK(exit->code == 3);
    CHECK(exit->text == "exited with status 3");
    CHECK(domain.output() ==
          "pid 2\ncrane\n/run/crane/libcrane.so yes /run/crane\n0\n1000000000\n0\n/run/crane\n00040000\n4\n");
    CHECK_FALSE(fs::exists("/usr/written"));
    CHECK_FALSE(fs::exists(domain.spec.state_dir + "/container/upper/run/lxc"));  // other containers' locks
    CHECK(fs::exists(domain.spec.state_dir + "/container/upper/usr/written"));
    CHECK(host.exit_fd() == -1);
    host.start();  // again, on a fresh file system
    CHECK_FALSE(fs::exists(domain.spec.state_dir + "/container/upper/usr/written2"));
    CHECK(host.kill_all());
    CHECK(host.kill_all());
}

TEST_CASE("a server that becomes a daemon keeps the domain alive", "[checkpoint]") {
    for (const Isolation isolation : {Isolation::kLxc, Isolation::kNone}) {
        if (isolation == Isolation::kLxc && !can_contain()) continue;
        Domain domain(isolation, "setsid sh -c 'sleep 0.2; echo late' & exit 0");
        DomainHost host(domain.spec);
        host.start();
        REQUIRE(wait_exit(host));
        CHECK(host.poll_exit()->code == 0);
        CHECK(domain.output() == "late\n");
    }
}

TEST_CASE("kill_all leaves nothing, SIGTERM reaches the server", "[checkpoint]") {
    for (const Isolation isolation : {Isolation::kLxc, Isolation::kNone}) {
        if (isolation == Isolation::kLxc && !can_contain()) continue;
        const std::string nap = own_nap(98);
        Domain domain(isolation, "trap 'echo polite; exit 7' TERM; sleep " + nap + " & setsid sleep " + nap +
                                     " & echo up; wait");
        DomainHost host(domain.spec);
        host.start();
        REQUIRE(eventually([&] { return domain.output() == "up\n" && with_argument(nap).size() == 2; }));
        const std::vector<pid_t> inside = descendants_of(host.init_pid());
        REQUIRE(inside.size() == 3);
        CHECK_FALSE(host.poll_exit());
        CHECK(host.terminate());
        CHECK(eventually([&] { return domain.output() == "up\npolite\n"; }));
        CHECK(host.kill_all());
        for (const pid_t pid : inside) CHECK(::kill(pid, 0) != 0);
        CHECK(host.init_pid() == 0);
    }
}

TEST_CASE("the death of craned ends the domain at once", "[checkpoint]") {
    for (const Isolation isolation : {Isolation::kLxc, Isolation::kNone}) {
        if (isolation == Isolation::kLxc && !can_contain()) continue;
        const std::string nap = own_nap(87);
        Domain domain(isolation, "setsid sleep " + nap + " & echo up; sleep " + nap);
        const pid_t craned = ::fork();
        if (craned == 0) {
            DomainHost host(domain.spec);
            host.start();
            for (;;) ::pause();
        }
        REQUIRE(eventually([&] { return with_argument(nap).size() >= 2; }));
        ::kill(craned, SIGKILL);
        ::waitpid(craned, nullptr, 0);
        CHECK(eventually([&] { return with_argument(nap).empty(); }));
        DomainHost::clean(domain.spec);
        if (isolation == Isolation::kLxc) {
            CHECK_FALSE(fs::exists("/sys/fs/cgroup/pids/lxc.payload." + domain.spec.name));
        }
        CHECK_FALSE(fs::exists(domain.spec.state_dir + "/container"));
    }
}

TEST_CASE("clean finds the container's cgroups below the cgroup that craned itself was in", "[checkpoint]") {
    if (!can_contain()) return;
    const Domain domain(Isolation::kLxc, "true");
    const std::string outer = "crane-outer-" + domain.spec.name.substr(domain.spec.name.size() - 6);
    std::vector<fs::path> made;
    std::set<dev_t> hierarchies;  // one may be mounted more than once
    for (const Mount& mount : read_mounts()) {
        if (mount.type != "cgroup" && mount.type != "cgroup2") continue;
        struct stat top {};
        if (::stat(mount.point.c_str(), &top) != 0 || !hierarchies.insert(top.st_dev).second) continue;
        const fs::path own = fs::path(mount.point) / outer / "deeper";
        const fs::path other = own / ("lxc.payload." + domain.spec.name + "0");
        std::error_code refused;
        fs::create_directories(own / ("lxc.payload." + domain.spec.name) / "child", refused);
        fs::create_directories(own / ("lxc.monitor." + domain.spec.name + "-1"), refused);
        fs::create_directories(other, refused);
        if (!refused) made.push_back(other);
    }
    REQUIRE_FALSE(made.empty());
    DomainHost::clean(domain.spec);
    for (const fs::path& other : made) {
        CHECK(fs::exists(other));  // somebody else's
        CHECK(::rmdir(other.c_str()) == 0);
        CHECK(::rmdir(other.parent_path().c_str()) == 0);  // empty: the rest is gone
        CHECK(::rmdir(other.parent_path().parent_path().c_str()) == 0);
    }
}

TEST_CASE("the server's limits are the same whatever this machine's are", "[checkpoint]") {
    rlimit files{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
    if (files.rlim_max < 32768) WARN("the limit of open files is below 32768 here");
    const std::string most = std::to_string(std::min<rlim_t>(files.rlim_max, 32768));
    Domain domain(Isolation::kNone, "ulimit -S -n; ulimit -H -n; ulimit -S -s; ulimit -S -c");
    DomainHost host(domain.spec);
    host.start();
    REQUIRE(wait_exit(host));
    CHECK(domain.output() == most + "\n" + most + "\n8192\n0\n");
}

TEST_CASE("clean ends what an earlier craned left running", "[checkpoint]") {
    for (const Isolation isolation : {Isolation::kLxc, Isolation::kNone}) {
        if (isolation == Isolation::kLxc && !can_contain()) continue;
        const std::string nap = own_nap(76);
        Domain domain(isolation, "setsid sleep " + nap + " & sleep " + nap);
        DomainHost host(domain.spec);
        host.start();
        REQUIRE(eventually([&] { return with_argument(nap).size() == 2; }));
        DomainHost::clean(domain.spec);
        CHECK(with_argument(nap).empty());
        REQUIRE(wait_exit(host));
        REQUIRE(host.poll_exit());
        CHECK_FALSE(host.poll_exit()->text == "exited with status 0");
    }
}

TEST_CASE("clean takes no folder away in which another container's lock may be made", "[checkpoint][root]") {
    if (!can_contain()) return;
    Domain domain(Isolation::kLxc, "true");
    const std::string container = "/run/lxc/lock" + domain.spec.state_dir + "/container";
    fs::create_directories(container + "/lxc");
    std::ofstream(container + "/lxc/.lock") << "";
    DomainHost::clean(domain.spec);
    CHECK_FALSE(fs::exists(container + "/lxc"));
    CHECK(fs::exists("/run/lxc/lock" + domain.spec.state_dir));
    std::error_code ignored;
    fs::remove_all("/run/lxc/lock" + domain.folder, ignored);
}

TEST_CASE("a state directory on a disk of its own stays mounted", "[checkpoint][root]") {
    if (::geteuid() != 0) return;
    Domain domain(Isolation::kNone, "echo there");
    if (::mount("none", domain.spec.state_dir.c_str(), "tmpfs", 0, "size=4m") != 0) {
        WARN("nothing can be mounted here: not tested");
        return;
    }
    std::ofstream(domain.spec.state_dir + "/kept") << "data";
    {
        DomainHost host(domain.spec);
        host.start();
        CHECK(wait_exit(host));
    }
    DomainHost::clean(domain.spec);
    CHECK(fs::exists(domain.spec.state_dir + "/kept"));
    CHECK(::umount(domain.spec.state_dir.c_str()) == 0);
}

TEST_CASE("kernel AIO, io_uring and restartable sequences are not there", "[checkpoint]") {
    if (!fs::exists("/usr/bin/python3")) return;
    Domain domain(Isolation::kNone, "");
    domain.spec.argv = {
        "/usr/bin/python3", "-c",
        "import ctypes,os\nl=ctypes.CDLL(None,use_errno=True)\n"
        "for n in (425,426,427,206,209,334,39): r=l.syscall(n,0,0,0,0); print(r<0 and ctypes.get_errno())"};
    DomainHost host(domain.spec);
    host.start();
    REQUIRE(wait_exit(host));
    CHECK(domain.output() == "38\n38\n38\n38\n38\n38\nFalse\n");
}

TEST_CASE("a start that cannot work says why", "[checkpoint]") {
    Domain domain(Isolation::kNone, "");
    const auto message = [&] {
        try {
            DomainHost(domain.spec).start();
        } catch (const std::exception& error) {
            return std::string(error.what());
        }
        return std::string("started");
    };
    domain.spec.argv = {"no-such-server"};
    CHECK_THAT(message(), Catch::Contains("no-such-server: command not found in"));
    domain.spec.argv = {domain.spec.init_path};
    CHECK_THAT(message(), Catch::Contains("cannot be scheduled: statically linked"));
    domain.spec.argv = {"/bin/sh"};
    domain.spec.shim_path = "/no/libcrane.so";
    CHECK_THAT(message(), Catch::Contains("libcrane.so is not at /no/libcrane.so"));
    domain.spec.shim_path = "/lib/x86_64-linux-gnu/libdl.so.2";
    if (!can_contain()) return;
    domain.spec.isolation = Isolation::kLxc;
    fs::copy_file("/bin/true", domain.folder + "/program");
    domain.spec.argv = {domain.folder + "/program"};
    CHECK_THAT(message(), Catch::Contains("/tmp and /run start empty"));
    domain.spec.cwd = domain.folder;
    CHECK(message() == "started");
}

namespace {

/// From now on socketpair() fails in this process, as when no descriptor is left.
bool deny_socketpair() {
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(steps), steps};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// 0: it fails, with the reason, and ends nobody.
int start_without_descriptors(const DomainSpec& spec) {
    if (!deny_socketpair()) return 2;
    try {
        DomainHost host(spec);
        host.start();
    } catch (const std::runtime_error& error) {
        return std::string(error.what()).find("socketpair") != std::string::npos ? 0 : 3;
    }
    return 4;
}

}  // namespace

TEST_CASE("a start that comes to no process of its own ends nobody else's", "[checkpoint][root]") {
    if (::geteuid() != 0) return;
    const Domain domain(Isolation::kNone, "true");
    // In a namespace of pids of its own, since all that there is were in danger.
    const pid_t outer = ::fork();
    if (outer == 0) {
        if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) ::_exit(10);
        const pid_t first = ::fork();
        if (first == 0) {
            if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                ::mount("proc", "/proc", "proc", 0, nullptr) != 0)
                ::_exit(11);
            const pid_t bystander = ::fork();
            if (bystander == 0)
                for (;;) ::pause();
            const pid_t starter = ::fork();
            if (starter == 0) ::_exit(start_without_descriptors(domain.spec));
            int status = 0;
            if (::waitpid(starter, &status, 0) != starter) ::_exit(12);
            if (::waitpid(bystander, nullptr, WNOHANG) != 0) ::_exit(13);
            ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 14);
        }
        int status = 0;
        ::waitpid(first, &status, 0);
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 15);
    }
    int status = 0;
    REQUIRE(::waitpid(outer, &status, 0) == outer);
    if (WEXITSTATUS(status) == 10 || WEXITSTATUS(status) == 11) {
        WARN("no namespace of pids can be had here: not tested");
        return;
    }
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a working directory in /tmp is there, the state directory in it is not", "[checkpoint][root]") {
    if (!can_contain()) return;
    Domain domain(Isolation::kLxc, "cat file; echo new > file; ls r1; ls /tmp | wc -l; pwd");
    domain.spec.cwd = domain.folder;
    std::ofstream(domain.folder + "/file") << "old\n";
    DomainHost host(domain.spec);
    host.start();
    REQUIRE(wait_exit(host));
    CHECK(host.poll_exit()->code == 0);
    CHECK(domain.output() == "old\n1\n" + domain.folder + "\n");
    CHECK(read_text_file(domain.folder + "/file") == "old\n");
}

// It grew for ever, and from 16 TiB on the server was ended there, on that replica alone.
TEST_CASE("domain: what a server writes to its output begins anew with its files, and before it is too long",
          "[checkpoint]") {
    Domain domain(Isolation::kNone, "echo said; echo wrong >&2");
    const std::string out = domain.spec.state_dir + "/stdout", errors = domain.spec.state_dir + "/stderr";
    const auto run = [&](Files files) {
        DomainHost host(domain.spec);
        host.start(files);
        REQUIRE(wait_exit(host));
        CHECK(host.kill_all(files));
    };
    run(Files::kFresh);
    run(Files::kKept);
    CHECK(domain.output() == "said\nsaid\n");
    run(Files::kFresh);
    CHECK(domain.output() == "said\n");
    CHECK(read_text_file(errors) == "wrong\n");
    CHECK(read_text_file(out + ".1") == "said\nsaid\n");
    CHECK(read_text_file(errors + ".1") == "wrong\nwrong\n");
    constexpr off_t kTiB = 1LL << 40;
    REQUIRE(::truncate(out.c_str(), kTiB) == 0);
    run(Files::kKept);
    CHECK(fs::file_size(out) == kTiB + 5);
    run(Files::kKept);
    CHECK(domain.output() == "said\n");
}

TEST_CASE("domain: of what the server writes to its output the newest is kept, without a quota, too",
          "[checkpoint]") {
    constexpr off_t kWritten = 200 << 20, kMost = 64 << 20;
    Domain domain(Isolation::kNone, "true");
    const DomainHost host(domain.spec);
    for (const char* name : {"/stdout", "/stderr"}) {
        const std::string path = domain.spec.state_dir + name;
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        REQUIRE(::posix_fallocate(fd, 0, kWritten) == 0);
        REQUIRE(::pwrite(fd, "newest", 6, kWritten) == 6);
        ::close(fd);
    }
    host.trim_output();
    for (const char* name : {"/stdout", "/stderr"}) {
        struct stat info {};
        REQUIRE(::stat((domain.spec.state_dir + name).c_str(), &info) == 0);
        CHECK(info.st_size == kWritten + 6);
        CHECK(info.st_blocks * 512 <= kMost + (1 << 20));
        CHECK(info.st_blocks * 512 >= kMost);
        CHECK(read_text_file(domain.spec.state_dir + name).ends_with("newest"));
    }
}
