// crane check: probes what Crane needs, each thing by doing it, and says what is missing and how to get it.
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "checkpoint/criu_program.hpp"
#include "checkpoint/domain_launch.hpp"
#include "checkpoint/init_network.hpp"
#include "checkpoint/init_pids.hpp"
#include "checkpoint/program_check.hpp"
#include "proxy/call_dispatch.hpp"
#include "proxy/client_limit.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

enum class Result { kOk, kWarning, kMissing };

struct Finding {
    std::string what;
    Result result;
    std::string detail;
};

/// Runs `probe` in a child, so that what it does to its process ends with it. Its result is the child's
/// status.
int in_child(const std::function<int()>& probe) {
    const pid_t child = fork();
    if (child == 0) _exit(probe());
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 255;
    return WEXITSTATUS(status);
}

bool in_path(const char* program) {
    std::istringstream path(getenv("PATH") ? getenv("PATH") : "/usr/sbin:/usr/bin:/sbin:/bin");
    for (std::string dir; std::getline(path, dir, ':');) {
        if (access((dir + "/" + program).c_str(), X_OK) == 0) return true;
    }
    return false;
}

Finding check_namespaces() {
    const int failed = in_child([] {
        const int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET;
        return unshare(flags) == 0 ? 0 : errno;
    });
    if (failed == 0) return {"namespaces", Result::kOk, "mount, pid, uts, ipc and network"};
    return {"namespaces", Result::kMissing,
            std::string(strerror(failed)) + ": run as root with CAP_SYS_ADMIN, or use --isolation none"};
}

Finding check_overlay() {
    char dir[] = "/tmp/crane-check-XXXXXX";
    if (!mkdtemp(dir)) return {"overlay", Result::kMissing, "cannot make a directory in /tmp"};
    const std::string base = dir;
    for (const char* name : {"/lower", "/upper", "/work", "/merged"}) fs::create_directory(base + name);
    const int failed = in_child([&base] {
        if (unshare(CLONE_NEWNS) != 0) return errno;
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        // On a tmpfs of its own: /tmp may itself be an overlay, which cannot hold an upper layer.
        if (mount("tmpfs", base.c_str(), "tmpfs", 0, nullptr) != 0) return errno;
        for (const char* name : {"/lower", "/upper", "/work", "/merged"}) fs::create_directory(base + name);
        const std::string options =
            "lowerdir=" + base + "/lower,upperdir=" + base + "/upper,workdir=" + base + "/work";
        return mount("overlay", (base + "/merged").c_str(), "overlay", 0, options.c_str()) == 0 ? 0 : errno;
    });
    fs::remove_all(base);
    if (failed == 0) return {"overlay file system", Result::kOk, ""};
    return {"overlay file system", Result::kMissing,
            std::string(strerror(failed)) + ": modprobe overlay, and root with CAP_SYS_ADMIN"};
}

/// The one that servers find beside loopback, on every host or on none.
Finding check_interface() {
    const int failed = in_child([] {
        if (unshare(CLONE_NEWNET) != 0) return 1;
        const checkpoint::Network network = checkpoint::bring_network_up({});
        return network.error.empty() && network.weaker.empty() ? 0 : 1;
    });
    if (failed == 0) return {"network interface", Result::kOk, ""};
    return {
        "network interface", Result::kWarning,
        "no eth0 can be made in a container (modprobe veth), and servers find loopback alone: then so must "
        "they on the other hosts"};
}

Finding check_lxc() {
    if (!in_path("lxc-start")) {
        return {"LXC", Result::kMissing,
                "lxc-start is not installed: apt-get install lxc, or use --isolation none"};
    }
    return {"LXC", Result::kOk, ""};
}

/// Needed by those alone who use them.
Finding check_base_images() {
    const char what[] = "base images";
    std::ifstream known("/proc/filesystems");
    const std::string text{std::istreambuf_iterator<char>(known), {}};
    if (text.find("\tsquashfs\n") == std::string::npos && system("modprobe -q squashfs 2>/dev/null") != 0)
        return {what, Result::kWarning,
                "this kernel cannot mount them: it has no squashfs (modprobe squashfs)"};
    if (access("/dev/loop-control", R_OK | W_OK) != 0)
        return {what, Result::kWarning, "there are no loop devices (/dev/loop-control) to mount them by"};
    if (!in_path("mksquashfs"))
        return {what, Result::kWarning, "they can be used, not made: apt-get install squashfs-tools"};
    return {what, Result::kOk, ""};
}

Finding check_shm() {
    struct statfs info {};
    if (statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC) {
        return {"/dev/shm", Result::kWarning,
                "is no tmpfs: the server's own shared memory is written to disk now and then; mount -t "
                "tmpfs tmpfs /dev/shm"};
    }
    return {"/dev/shm", Result::kOk, ""};
}

Finding check_confinement() {
    std::string lost;
    for (const std::string& one : checkpoint::lost_confinement({})) lost += (lost.empty() ? "" : "; ") + one;
    return {"confinement", lost.empty() ? Result::kOk : Result::kWarning, lost};
}

Finding check_descriptors() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {"open files", Result::kWarning, strerror(errno)};
    const size_t most = limit.rlim_max == RLIM_INFINITY ? size_t{1} << 20 : limit.rlim_max;
    const size_t clients = ClientLimit(most).max_clients();
    const std::string text = "hard limit " + std::to_string(most) + ": room for " + std::to_string(clients) +
                             " clients at a replica";
    if (clients >= kFewClients) return {"open files", Result::kOk, text};
    return {"open files", Result::kWarning, text + "; raise it: ulimit -Hn, LimitNOFILE= of a systemd unit"};
}

/// What is one for the whole host: a server that meets it on one replica alone goes on in another way there.
Finding check_bounds() {
    constexpr std::pair<const char*, long> kLeast[] = {{"net.core.wmem_max", 212'992},
                                                       {"fs.pipe-user-pages-soft", 16'384},
                                                       {"fs.inotify.max_queued_events", 16'384},
                                                       {"fs.inotify.max_user_watches", 8'192},
                                                       {"fs.inotify.max_user_instances", 128}};
    std::string low;
    for (const auto& [name, least] : kLeast) {
        std::string path = name;
        std::replace(path.begin(), path.end(), '.', '/');
        long value = 0;  // as it reads where there is no bound
        if (!(std::ifstream("/proc/sys/" + path) >> value) || value == 0 || value >= least) continue;
        low += (low.empty() ? "" : ", ") + std::string(name) + " below " + std::to_string(least);
    }
    if (low.empty()) return {"bounds of the kernel", Result::kOk, "none below Linux's own"};
    return {"bounds of the kernel", Result::kWarning, low + ": set them with sysctl, equal on all hosts"};
}

/// Of containers, which have a bound of their own where the kernel can.
Finding check_pids() {
    const bool equal =
        in_child([] {
            if (unshare(CLONE_NEWPID) != 0) return 0;  // another finding
            const auto look = [] { return checkpoint::read_pid_bound() != checkpoint::kMostPids; };
            return in_child(look);
        }) == 0;
    if (equal) return {"pids", Result::kOk, "begin anew after " + std::to_string(checkpoint::kMostPids)};
    return {"pids", Result::kWarning, checkpoint::describe_pid_bound(checkpoint::read_pid_bound())};
}

Finding check_seccomp() {
    const int failed = in_child([] {
        sock_filter allow{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
        sock_fprog program{1, &allow};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 ? 0 : errno;
    });
    if (failed == 0) return {"seccomp filters", Result::kOk, ""};
    return {"seccomp filters", Result::kMissing,
            std::string(strerror(failed)) + ": a kernel with CONFIG_SECCOMP_FILTER"};
}

Finding check_backstop() {
    if (kernel_dispatches_calls()) return {"backstop", Result::kOk, ""};
    return {"backstop", Result::kMissing, kNoCallDispatch};
}

/// What cannot be had costs images of a server's processes, and nothing else.
Finding check_criu() {
    const char* const what = "process images";
    const std::string script = checkpoint::find_criu_script();
    const std::string criu = checkpoint::find_criu();
    const std::string advice =
        (script.empty() ? std::string("reinstall Crane") : "run " + script) + "; all else works without";
    if (criu.empty()) return {what, Result::kWarning, "CRIU is not installed: " + advice};
    if (geteuid() != 0) return {what, Result::kWarning, criu + ": only root can try and use it"};
    if (script.empty()) return {what, Result::kWarning, criu + " was not tried: " + advice};
    const checkpoint::CriuTrial trial = checkpoint::try_criu(criu, script);
    if (trial.works) return {what, Result::kOk, "CRIU " + trial.text + ", " + criu};
    return {what, Result::kWarning, criu + " does not work here: " + trial.text + ": " + advice};
}

Finding check_root() {
    if (geteuid() != 0) {
        return {"root", Result::kWarning, "not root: containers are not possible, only --isolation none"};
    }
    std::ifstream status("/proc/self/status");
    uint64_t caps = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("CapEff:")) caps = strtoull(line.c_str() + 7, nullptr, 16);
    }
    const bool admin = caps >> 21 & 1;
    return {"root", admin ? Result::kOk : Result::kMissing,
            admin ? "" : "root without CAP_SYS_ADMIN: no containers"};
}

/// Where the shim is: beside this program, in the tree or installed.
std::string find_shim() {
    std::error_code error;
    const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
    for (const char* name : {"../lib/libcrane.so", "../libcrane.so", "../lib/crane/libcrane.so"}) {
        if (fs::exists(here / name)) return fs::canonical(here / name);
    }
    return "";
}

/// Runs a program with the shim in front and sees whether the loader took it.
bool loader_takes(const std::string& shim, const std::string& program, std::string& error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        setenv("LD_PRELOAD", shim.c_str(), 1);
        setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);  // the loader lists what it loads and runs nothing
        execlp(program.c_str(), program.c_str(), nullptr);
        _exit(127);
    }
    close(ends[1]);
    std::string said;
    char bytes[4096];
    for (ssize_t got; (got = read(ends[0], bytes, sizeof(bytes))) > 0;)
        said.append(bytes, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (said.find("libcrane.so") != std::string::npos &&
        said.find("cannot be preloaded") == std::string::npos)
        return true;
    error = said.substr(0, 300);
    return false;
}

Finding check_shim(const std::string& program) {
    const std::string shim = find_shim();
    const std::string what = "shim in " + program;
    if (shim.empty())
        return {what, Result::kMissing, "libcrane.so is not there: run make, or reinstall Crane"};
    std::vector<std::string> environment;
    for (char** one = environ; *one; ++one) environment.emplace_back(*one);
    // What is not dynamic must not even be started: it would not know that it is only asked.
    const auto checked = checkpoint::check_program(program, fs::current_path(), environment);
    if (!checked.ok) return {what, Result::kMissing, checked.message};
    std::string error;
    if (loader_takes(shim, program, error)) return {what, Result::kOk, shim};
    return {what, Result::kMissing,
            "the loader did not load it: a static, Go or setuid program cannot be scheduled (" + error + ")"};
}

}  // namespace

int tool_check(const std::vector<std::string>& program, bool as_json) {
    std::vector<Finding> all = {
        check_root(),        check_namespaces(),  check_overlay(),
        check_interface(),   check_lxc(),         check_shm(),
        check_descriptors(), check_bounds(),      check_pids(),
        check_seccomp(),     check_backstop(),    check_confinement(),
        check_criu(),        check_base_images(), check_shim(program.empty() ? "true" : program[0])};
    bool missing = false;
    json rows = json::array();
    for (const Finding& one : all) {
        const char* word = one.result == Result::kOk        ? "ok"
                           : one.result == Result::kWarning ? "warning"
                                                            : "missing";
        missing |= one.result == Result::kMissing;
        rows.push_back({{"check", one.what}, {"result", word}, {"detail", one.detail}});
        if (!as_json) printf("%-8s %-22s %s\n", word, one.what.c_str(), one.detail.c_str());
    }
    if (as_json) std::cout << json{{"ok", !missing}, {"checks", rows}}.dump(1) << "\n";
    return missing ? kExitNo : kExitOk;
}

}  // namespace crane::proxy
