// crane-init: pid 1 of a replica's container, or the sub-reaper of the domain where there is no container.
//
// Usage (by craned only): crane-init DOMAIN_FILE NOTIFY_FD [NAME]
// It prepares itself (see init_sandbox.hpp), starts the server as pid 2, reaps until no process is left, and
// leaves how the server ended in the exit-status file. What the server inherits follows NOTIFY_FD in the
// order of the domain file. NOTIFY_FD is a socket to craned: "started" or "error: ..." go out on it, and its
// closing means that craned is dead, so that the domain must end too. Where the server comes out of images,
// "waiting" goes out instead; CRIU, which enters from outside, leaves the server to this process when it
// ends, and craned then says "restored PID". Statically linked: it must run whatever the container's file
// system holds.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/reserved_descriptors.hpp"
#include "checkpoint/domain_file.hpp"
#include "checkpoint/init_network.hpp"
#include "checkpoint/init_pids.hpp"
#include "checkpoint/init_sandbox.hpp"
#include "checkpoint/shown_machine.hpp"
#include "checkpoint/system_calls.hpp"

namespace crane::checkpoint {
namespace {

constexpr int kNotifyFd = 3;  // where crane-init keeps the socket; the first number a server would use
constexpr int kExitFailure = 125;

void notify(const std::string& message) {
    (void)!::send(kNotifyFd, message.data(), message.size(), MSG_NOSIGNAL);
}

[[noreturn]] void fail(const std::string& message) {
    notify("error: " + message);
    ::_exit(kExitFailure);
}

std::string read_file(const char* path) {
    std::string text;
    const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    char buffer[4096];
    for (ssize_t got = 0; fd >= 0 && (got = ::read(fd, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<size_t>(got));
    if (fd >= 0) ::close(fd);
    return text;
}

// The boot id that LXC makes up per container would be a difference that programs can read.
void equalize_boot_id() {
    const int fd = ::open("/dev/.lxc-boot-id", O_WRONLY | O_TRUNC | O_CLOEXEC);
    constexpr char kBootId[] = "c7a9e000-0000-4000-8000-000000000000\n";
    if (fd >= 0) (void)!::write(fd, kBootId, sizeof kBootId - 1);
    if (fd >= 0) ::close(fd);
}

unsigned reserved_begin;

void prepare(const DomainFile& domain) {
    if (!domain.contained) ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (domain.contained) equalize_boot_id();
    const Network network = domain.loopback_up ? bring_network_up(domain.own_addresses) : Network{};
    for (const std::string& error :
         {set_personality(), set_limits(), set_file_limit(reserved_begin), network.error})
        if (!error.empty()) fail("cannot prepare the domain: " + error);
    if (!network.weaker.empty()) notify("weaker: " + network.weaker);
    if (domain.cpu) pin_to_cpu(*domain.cpu);
    if (domain.contained) forget_what_craned_prefers();
    ::umask(022);
}

// Last before the server: from here on this process, too, has only what the server has, and the right to say
// where pids go on.
void confine(const DomainFile& domain, PidNumbers* numbers) {
    const auto tell = [](const std::vector<std::string>& missing) {
        for (const std::string& one : missing) notify("weaker: " + one);
    };
    if (domain.machine) tell(show_machine(*domain.machine));
    if (domain.contained) tell(seal_file_systems());
    const std::string error = load_system_call_filter(domain.contained, domain.confinement.system_calls);
    if (!error.empty()) fail("cannot prepare the domain: " + error);
    if (domain.contained) tell(drop_privileges(domain.confinement, CAP_CHECKPOINT_RESTORE));
    if (!domain.machine) return;
    for (const std::string& error : {numbers->open(), describe_pid_bound(numbers->pid_bound())})
        if (!error.empty()) notify("weaker: " + error);
}

// One open file as descriptor `as`; reports on the error pipe.
bool open_as(int as, const char* path, int flags) {
    const int fd = ::open(path, flags, 0644);
    if (fd < 0) return false;
    if (fd == as) return true;
    const bool moved = ::dup2(fd, as) == as;
    ::close(fd);
    return moved;
}

bool become(const Identity& identity) {
    const uid_t uid = identity.uid;
    const gid_t gid = identity.gid;
    if (uid == ::geteuid() && uid != 0) return true;  // already, and without the right to change
    return ::setgroups(identity.groups.size(), identity.groups.data()) == 0 &&
           ::setresgid(gid, gid, gid) == 0 && ::setresuid(uid, uid, uid) == 0;
}

// From 4 on, but for those from `kept` on, `count` of them.
void close_all_but(unsigned kept, unsigned count) {
    ::close_range(4, kept - 1, 0);
    ::close_range(kept + count, ~0U, 0);
}

// In the child. What stopped it goes to error_fd as text; nothing is written when exec succeeds.
[[noreturn]] void run_server(const DomainFile& domain, int error_fd) {
    auto give_up = [&](const std::string& what) {
        const std::string text = what + ": " + std::strerror(errno);
        (void)!::write(error_fd, text.data(), text.size());
        ::_exit(127);
    };
    ::setsid();
    constexpr int kLog = O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY;
    if (!open_as(0, "/dev/null", O_RDONLY)) give_up("/dev/null");
    if (!open_as(1, domain.stdout_path.c_str(), kLog)) give_up(domain.stdout_path);
    if (!open_as(2, domain.stderr_path.c_str(), kLog)) give_up(domain.stderr_path);
    int given = kNotifyFd + 1;
    for (const int place : domain.inherited)
        if (::dup2(given++, static_cast<int>(reserved_begin) + place) < 0)
            give_up("descriptor " + std::to_string(reserved_begin + place));
    if (error_fd != 3 && ::dup3(error_fd, 3, O_CLOEXEC) == 3) error_fd = 3;
    close_all_but(reserved_begin, domain.inherited.empty() ? 0 : kReservedFds);
    if (::chdir(domain.cwd.c_str()) != 0) give_up("working directory " + domain.cwd);
    if (domain.identity && !become(*domain.identity))
        give_up("becoming user " + std::to_string(domain.identity->uid));
    if (!domain.contained) ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);  // forgotten when the user changes
    std::vector<char*> argv, environment;
    for (const std::string& word : domain.argv) argv.push_back(const_cast<char*>(word.c_str()));
    for (const std::string& entry : domain.environment)
        environment.push_back(const_cast<char*>(entry.c_str()));
    std::string reserved = kReservedVariable + ("=" + std::to_string(reserved_begin));
    if (!domain.inherited.empty()) environment.push_back(reserved.data());
    argv.push_back(nullptr);
    environment.push_back(nullptr);
    environ = environment.data();  // execvpe would search crane-init's own PATH
    reset_signals();
    ::execvp(argv[0], argv.data());
    give_up("cannot execute " + domain.argv[0]);
    ::_exit(127);
}

pid_t start_server(const DomainFile& domain) {
    int error_pipe[2];
    if (::pipe2(error_pipe, O_CLOEXEC) != 0) fail("pipe: " + std::string(std::strerror(errno)));
    const pid_t server = ::fork();
    if (server < 0) fail("fork: " + std::string(std::strerror(errno)));
    if (server == 0) run_server(domain, error_pipe[1]);
    if (domain.contained) ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // no business of the server's
    ::close(error_pipe[1]);
    char text[1024];
    const ssize_t got = ::read(error_pipe[0], text, sizeof text);
    ::close(error_pipe[0]);
    if (got > 0) fail(std::string(text, static_cast<size_t>(got)));
    return server;
}

struct Ending {
    int status = 0;
    bool known = false;
    unsigned others_killed = 0;  // processes besides the server that SIGKILL ended
};

std::string describe(const Ending& ending) {
    std::string text;
    if (WIFSIGNALED(ending.status)) {
        const int number = WTERMSIG(ending.status);
        const char* name = ::sigabbrev_np(number);
        text = "killed by signal " + std::to_string(number) + " (SIG" + (name ? name : "?") + ")";
        if (number == SIGKILL) text += ": killed from outside, or the machine ran out of memory";
    } else {
        text = "exited with status " + std::to_string(WEXITSTATUS(ending.status));
    }
    if (ending.others_killed > 0)
        text += "; " + std::to_string(ending.others_killed) + " other process(es) were killed by SIGKILL";
    return text;
}

// The file that only this process can write: a server in a container does not even see it.
int exit_status_fd = -1;

void open_exit_status(const DomainFile& domain) {
    const char* path = domain.exit_status_path.c_str();
    exit_status_fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (domain.contained) ::umount2(path, MNT_DETACH);
}

void write_exit_status(pid_t server, const Ending& ending) {
    const bool signaled = WIFSIGNALED(ending.status);
    const std::string json = "{\"pid\":" + std::to_string(server) +
                             ",\"signaled\":" + (signaled ? "true" : "false") +
                             ",\"code\":" + std::to_string(signaled ? 0 : WEXITSTATUS(ending.status)) +
                             ",\"signal\":" + std::to_string(signaled ? WTERMSIG(ending.status) : 0) +
                             ",\"text\":\"" + describe(ending) + "\"}\n";
    if (exit_status_fd >= 0) (void)!::pwrite(exit_status_fd, json.data(), json.size(), 0);
}

// Takes every child that has ended. False when there is none left at all.
bool reap(pid_t server, Ending* ending) {
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid == 0) return true;
        if (pid < 0) return errno != ECHILD;
        if (pid == server) {
            ending->status = status;
            ending->known = true;
        } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            ++ending->others_killed;
        }
    }
}

pid_t parent_of(pid_t pid) {
    const std::string stat = read_file(("/proc/" + std::to_string(pid) + "/stat").c_str());
    const size_t end_of_name = stat.rfind(')');
    if (end_of_name == std::string::npos || end_of_name + 4 >= stat.size()) return 0;
    return static_cast<pid_t>(std::strtol(stat.c_str() + end_of_name + 4, nullptr, 10));
}

// Without a container: every process below this one.
void signal_descendants(int signal_number) {
    std::map<pid_t, pid_t> parents;
    DIR* proc = ::opendir("/proc");
    if (proc == nullptr) return;
    while (const dirent* entry = ::readdir(proc)) {
        const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
        if (pid > 0) parents[pid] = parent_of(pid);
    }
    ::closedir(proc);
    const pid_t self = ::getpid();
    for (const auto& [pid, parent] : parents) {
        pid_t up = parent;
        for (int depth = 0; depth < 64 && up > 1 && up != self; ++depth) {
            const auto next = parents.find(up);
            up = next == parents.end() ? 0 : next->second;
        }
        if (up == self) ::kill(pid, signal_number);
    }
}

[[noreturn]] void end_domain(const DomainFile& domain) {
    if (domain.contained) ::_exit(137);          // pid 1 is gone: the kernel kills the rest of the namespace
    for (int round = 0; round < 100; ++round) {  // what is forked meanwhile is met in the next round
        signal_descendants(SIGKILL);
        ::usleep(5000);
        Ending ignored;
        if (!reap(-1, &ignored)) break;
    }
    ::_exit(137);
}

bool craned_is_gone() {
    char discard[64];
    const ssize_t got = ::recv(kNotifyFd, discard, sizeof discard, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void forward(const DomainFile& domain, int signal_number, pid_t server, bool server_alive) {
    if (server_alive)
        ::kill(server, signal_number);
    else if (domain.contained)
        ::kill(-1, signal_number);  // a daemonized server: all there is
    else
        signal_descendants(signal_number);
}

// The server that CRIU has made a child of this process.
pid_t adopt_server(const DomainFile& domain) {
    if (domain.contained) ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    notify("waiting");
    char text[64];
    const ssize_t got = ::recv(kNotifyFd, text, sizeof text - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    constexpr char kRestored[] = "restored ";
    if (std::strncmp(text, kRestored, sizeof kRestored - 1) != 0) end_domain(domain);
    const pid_t server = std::atoi(text + sizeof kRestored - 1);
    if (parent_of(server) != ::getpid())
        fail("process " + std::to_string(server) + " is not there after the restore");
    return server;
}

int serve(const DomainFile& domain, pid_t server, int signal_fd, PidNumbers* numbers) {
    Ending ending;
    while (reap(server, &ending)) {
        // What a killed server leaves behind would wait for it for ever.
        if (ending.known && WIFSIGNALED(ending.status)) {
            write_exit_status(server, ending);
            end_domain(domain);
        }
        pollfd waits[3] = {{signal_fd, POLLIN, 0}, {kNotifyFd, POLLIN, 0}, {numbers->fd(), POLLIN, 0}};
        if (::poll(waits, 3, -1) < 0 && errno != EINTR) end_domain(domain);
        if (waits[1].revents != 0 && craned_is_gone()) end_domain(domain);
        if (waits[2].revents != 0) numbers->answer();
        signalfd_siginfo info;
        if ((waits[0].revents & POLLIN) != 0 && ::read(signal_fd, &info, sizeof info) == sizeof info &&
            info.ssi_signo != SIGCHLD)
            forward(domain, static_cast<int>(info.ssi_signo), server, !ending.known);
    }
    write_exit_status(server, ending);
    return WIFSIGNALED(ending.status) ? 128 + WTERMSIG(ending.status) : WEXITSTATUS(ending.status);
}

int run(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "crane-init is started by craned, not by hand\n");
        return kExitFailure;
    }
    const int given_fd = std::atoi(argv[2]);
    if (given_fd != kNotifyFd && ::dup2(given_fd, kNotifyFd) != kNotifyFd) return kExitFailure;
    ::fcntl(kNotifyFd, F_SETFD, FD_CLOEXEC);
    const std::optional<DomainFile> domain = decode_domain_file(read_file(argv[1]));
    if (!domain) fail(std::string(argv[1]) + " is not a domain file");
    // These stay open here: after a checkpoint the server is given them again.
    const auto inherited = static_cast<unsigned>(domain->inherited.size());
    ::close_range(kNotifyFd + 1 + inherited, ~0U, 0);
    ::close_range(kNotifyFd + 1, kNotifyFd + inherited, CLOSE_RANGE_CLOEXEC);
    ::signal(SIGPIPE, SIG_IGN);
    prepare(*domain);
    sigset_t handled;
    sigemptyset(&handled);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH})
        sigaddset(&handled, number);
    ::sigprocmask(SIG_SETMASK, &handled, nullptr);
    const int signal_fd = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0) fail("signalfd: " + std::string(std::strerror(errno)));
    open_exit_status(*domain);
    PidNumbers numbers;
    confine(*domain, &numbers);
    const pid_t server = domain->restored ? adopt_server(*domain) : start_server(*domain);
    notify("started " + std::to_string(server));
    return serve(*domain, server, signal_fd, &numbers);
}

}  // namespace
}  // namespace crane::checkpoint

int main(int argc, char** argv) {
    return crane::checkpoint::run(argc, argv);
}
