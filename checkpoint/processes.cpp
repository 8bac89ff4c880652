#include "checkpoint/processes.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>

namespace crane::checkpoint {

std::string read_text_file(const std::string& path, size_t most) {
    std::string text;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return text;
    char buffer[8192];
    for (ssize_t got = 0; text.size() < most && (got = ::read(fd, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<size_t>(got));
    ::close(fd);
    return text;
}

int open_pidfd(pid_t pid) {
    return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

bool wait_for_end(int pidfd, int timeout_ms) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd wait{pidfd, POLLIN, 0};
        const int ready = ::poll(&wait, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

std::vector<pid_t> find_processes(const std::function<bool(pid_t)>& matches) {
    std::vector<pid_t> found;
    DIR* proc = ::opendir("/proc");
    if (proc == nullptr) return found;
    while (const dirent* entry = ::readdir(proc)) {
        const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
        if (pid > 0 && pid != ::getpid() && matches(pid)) found.push_back(pid);
    }
    ::closedir(proc);
    return found;
}

std::vector<std::string> command_line(pid_t pid) {
    const std::string text = read_text_file("/proc/" + std::to_string(pid) + "/cmdline");
    std::vector<std::string> words;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\0', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

pid_t parent_of(pid_t pid) {
    const std::string stat = read_text_file("/proc/" + std::to_string(pid) + "/stat");
    const size_t end_of_name = stat.rfind(')');
    if (end_of_name == std::string::npos || end_of_name + 4 >= stat.size()) return 0;
    return static_cast<pid_t>(std::strtol(stat.c_str() + end_of_name + 4, nullptr, 10));
}

std::vector<pid_t> descendants_of(pid_t root) {
    std::multimap<pid_t, pid_t> children;
    for (const pid_t pid : find_processes([](pid_t) { return true; })) children.emplace(parent_of(pid), pid);
    std::vector<pid_t> found;
    std::set<pid_t> seen{root};
    std::vector<pid_t> open{root};
    while (!open.empty()) {
        const pid_t next = open.back();
        open.pop_back();
        for (auto [it, end] = children.equal_range(next); it != end; ++it) {
            if (!seen.insert(it->second).second) continue;
            found.push_back(it->second);
            open.push_back(it->second);
        }
    }
    return found;
}

bool kill_processes(const std::vector<pid_t>& pids, int timeout_ms) {
    bool all = true;
    for (const pid_t pid : pids) {
        const int pidfd = open_pidfd(pid);
        if (pidfd < 0) continue;
        ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
        all = wait_for_end(pidfd, timeout_ms) && all;
        ::close(pidfd);
    }
    return all;
}

}  // namespace crane::checkpoint
