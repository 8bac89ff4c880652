#include "checkpoint/container_entry.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"

namespace crane::checkpoint {
namespace {

// Below the smallest limit on pids that kernels have, and above what servers come to.
constexpr pid_t kHighestPid = 32767;
constexpr int kPidAttempts = 200;

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
    return parts;
}

bool holds_controller(const Mount& mount, const std::string& controllers) {
    if (controllers.empty()) return mount.type == "cgroup2";
    if (mount.type != "cgroup") return false;
    const std::vector<std::string> mounted = split(mount.point.substr(mount.point.rfind('/') + 1), ',');
    return std::ranges::any_of(split(controllers, ','), [&](std::string one) {
        if (one.starts_with("name=")) one.erase(0, 5);
        return std::ranges::count(mounted, one) != 0;
    });
}

void join(const std::string& folder) {
    const int fd = ::open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!::write(fd, "0", 1);  // this process
    ::close(fd);
}

pid_t clone_as(pid_t pid) {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    arguments.set_tid = reinterpret_cast<uintptr_t>(&pid);
    arguments.set_tid_size = 1;
    return static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
}

}  // namespace

void join_cgroups_of(pid_t init) {
    const std::vector<Mount> mounts = read_mounts();
    for (const std::string& line : split(read_text_file("/proc/" + std::to_string(init) + "/cgroup"), '\n')) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        for (const Mount& mount : mounts)
            if (holds_controller(mount, controllers)) join(mount.point + line.substr(second + 1));
    }
}

pid_t fork_into_container(pid_t init, std::string* error) {
    const int pidfd = open_pidfd(init);
    // Not that of System V IPC: CRIU saves what is in one only where it is not its own.
    constexpr int kEntered = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP;
    const bool entered = pidfd >= 0 && ::setns(pidfd, kEntered) == 0;
    if (!entered) *error = std::string("entering the container: ") + std::strerror(errno);
    if (pidfd >= 0) ::close(pidfd);
    if (!entered) return -1;
    pid_t child = -1;
    for (int attempt = 0; attempt < kPidAttempts; ++attempt) {
        child = clone_as(kHighestPid - attempt);
        if (child >= 0 || errno != EEXIST) break;
    }
    if (child < 0) *error = std::string("forking in the container: ") + std::strerror(errno);
    return child;
}

PidCursor::PidCursor() : fd_(::open("/proc/sys/kernel/ns_last_pid", O_RDWR | O_CLOEXEC)) {}

PidCursor::~PidCursor() {
    if (fd_ >= 0) ::close(fd_);
}

long PidCursor::get() const {
    char text[32] = {};
    const ssize_t got = ::pread(fd_, text, sizeof text - 1, 0);
    return got > 0 ? std::strtol(text, nullptr, 10) : -1;
}

bool PidCursor::set(long last_pid) const {
    const std::string text = std::to_string(last_pid);
    return ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

}  // namespace crane::checkpoint
