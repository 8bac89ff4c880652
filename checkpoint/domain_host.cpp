#include "checkpoint/domain_host.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "checkpoint/base_image.hpp"
#include "checkpoint/disk_quota.hpp"
#include "checkpoint/domain_files.hpp"
#include "checkpoint/domain_launch.hpp"
#include "checkpoint/fail_point.hpp"
#include "checkpoint/folder_walk.hpp"
#include "checkpoint/fresh_root.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"

namespace crane::checkpoint {
namespace {

constexpr int kNotifyFd = 3;                     // in crane-init
constexpr uint64_t kMostOutputBytes = 64 << 20;  // of standard output and error, each
constexpr uint64_t kOutputShare = 8;             // of the quota, if that is less
constexpr int kKillTimeoutMs = 3000;
constexpr size_t kMaxMessage = 4096;
constexpr char kNoContainer[] = "the container could not be started";
constexpr int kMostStarts = 3;

struct Message {
    std::string text;
    pid_t sender = 0;  // as this process' pid namespace numbers it
};

// One record from crane-init; nothing when the other side is closed.
std::optional<Message> receive(int fd) {
    char text[kMaxMessage];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
    iovec part{text, sizeof text};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (got <= 0) return std::nullopt;
    Message message{std::string(text, static_cast<size_t>(got)), 0};
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_CREDENTIALS) continue;
        ucred sender;
        std::memcpy(&sender, CMSG_DATA(item), sizeof sender);
        message.sender = sender.pid;
    }
    return message;
}

// Between fork and exec: only async-signal-safe calls, for craned has threads.
// `inherited` and its end: descriptors for the server, which follow the notify descriptor in their order.
[[noreturn]] void become_monitor(char* const* argv, pid_t craned, int log_fd, int notify_fd, bool contained,
                                 const int* inherited, const int* inherited_end) {
    ::setsid();  // a Ctrl-C at the operator's terminal is for crane-run
    // Without a container crane-init must outlive craned by a moment, to end what is below it.
    if (contained) ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != craned) ::_exit(126);  // died before the line above
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int number : {SIGPIPE, SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::signal(number, SIG_DFL);
    ::dup2(log_fd, 0);
    ::dup2(log_fd, 1);
    ::dup2(log_fd, 2);
    // Nothing of craned's (its sockets, its database) may live on in the domain.
    ::dup2(notify_fd, kNotifyFd);
    unsigned next = kNotifyFd + 1;
    for (; inherited != inherited_end; ++inherited) ::dup2(*inherited, static_cast<int>(next++));
    ::close_range(next, ~0U, 0);
    ::execv(argv[0], argv);
    ::_exit(127);
}

std::string last_lines(const std::string& path, size_t count) {
    std::vector<std::string> lines;
    std::istringstream text(read_text_file(path));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::string tail;
    for (size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i)
        tail += "\n  " + lines[i];
    return tail;
}

ExitReport read_exit_report(const std::string& path) {
    ExitReport report;
    const auto json = nlohmann::json::parse(read_text_file(path, kMaxMessage), nullptr, false);
    try {
        report.signaled = json.at("signaled").get<bool>();
        report.code = json.at("code").get<int>();
        report.signal = json.at("signal").get<int>();
        report.text = json.at("text").get<std::string>();
        report.known = true;
    } catch (const nlohmann::json::exception&) {  // of a server without a container, which may write there
        report = ExitReport{};
        report.text = "killed from outside; the server left no exit status";
    }
    return report;
}

}  // namespace

// What exists only while a domain runs. Its descriptors are closed with it.
struct DomainHost::Running {
    pid_t monitor = 0;  // this process' child: lxc-start, or crane-init itself without a container
    int monitor_pidfd = -1;
    pid_t init = 0;
    int init_pidfd = -1;
    int notify_fd = -1;  // its closing tells crane-init to end the domain

    ~Running() {
        for (const int fd : {monitor_pidfd, init_pidfd, notify_fd})
            if (fd >= 0) ::close(fd);
        if (monitor > 0) ::waitpid(monitor, nullptr, WNOHANG);
    }
    void signal_monitor(int number) const {
        if (monitor_pidfd >= 0) ::syscall(SYS_pidfd_send_signal, monitor_pidfd, number, nullptr, 0);
    }
    bool signal_init(int number) const {
        return init_pidfd >= 0 && ::syscall(SYS_pidfd_send_signal, init_pidfd, number, nullptr, 0) == 0;
    }
    void spawn(const std::vector<std::string>& command, const std::string& log_path, const DomainSpec& spec);
    std::string wait_for_start(int timeout_ms, std::vector<std::string>* weaknesses,
                               const BringServer& bring_server);
};

void DomainHost::Running::spawn(const std::vector<std::string>& command, const std::string& log_path,
                                const DomainSpec& spec) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        throw std::runtime_error(std::string("socketpair: ") + std::strerror(errno));
    notify_fd = pair[0];
    const int on = 1;
    ::setsockopt(notify_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    const int log_fd = ::open(log_path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    std::vector<char*> argv;
    argv.reserve(command.size() + 2);
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    char notify_number[] = "3";
    argv.push_back(notify_number);
    argv.push_back(nullptr);
    std::vector<int> inherited;
    for (const DomainSpec::Inherited& one : spec.inherited) inherited.push_back(one.fd);
    const pid_t craned = ::getpid();
    monitor = ::fork();
    const int error = errno;
    // Duplicates keep clear of the numbers that become_monitor fills.
    if (monitor == 0) {
        for (int& fd : inherited) fd = ::fcntl(fd, F_DUPFD, 10);
        become_monitor(argv.data(), craned, ::fcntl(log_fd, F_DUPFD, 10), ::fcntl(pair[1], F_DUPFD, 10),
                       spec.isolation == Isolation::kLxc, inherited.data(),
                       inherited.data() + inherited.size());
    }
    ::close(pair[1]);
    if (log_fd >= 0) ::close(log_fd);
    if (monitor < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(error));
    monitor_pidfd = open_pidfd(monitor);
}

// "" when the server has been executed, else what went wrong.
std::string DomainHost::Running::wait_for_start(int timeout_ms, std::vector<std::string>* weaknesses,
                                                const BringServer& bring_server) {
    using Clock = std::chrono::steady_clock;
    const auto patience = std::chrono::milliseconds(timeout_ms);
    auto deadline = Clock::now() + patience;
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        if (left <= 0) return "it did not start within " + std::to_string(timeout_ms / 1000) + " s";
        pollfd wait{notify_fd, POLLIN, 0};
        const int ready = ::poll(&wait, 1, static_cast<int>(left));
        if (ready <= 0) continue;
        const std::optional<Message> message = receive(notify_fd);
        if (!message) return kNoContainer;
        if (message->text.compare(0, 7, "error: ") == 0) return message->text.substr(7);
        if (message->text.compare(0, 8, "weaker: ") == 0) weaknesses->push_back(message->text.substr(8));
        if (message->text == "waiting") {
            const std::string server = "restored " + std::to_string(bring_server(message->sender));
            (void)!::send(notify_fd, server.data(), server.size(), MSG_NOSIGNAL);
            deadline = Clock::now() + patience;  // that took its own time, which has a limit of its own
        }
        if (message->text.compare(0, 7, "started") != 0) continue;
        init = message->sender;
        init_pidfd = open_pidfd(init);
        return {};
    }
}

DomainHost::DomainHost(DomainSpec spec) : spec_(std::move(spec)) {}

DomainHost::~DomainHost() {
    kill_all();
}

void DomainHost::clean(const DomainSpec& spec) {
    remove_leftovers(spec);
    try {
        remove_unpacked_images(spec);
        remove_tree(DomainPaths(spec.state_dir).container);
    } catch (const std::runtime_error&) {  // the next start says it
    }
}

void DomainHost::start(Files files) {
    launch(files, {});
}

std::string DomainHost::launch_once(Files files, const BringServer& bring_server) {
    weaknesses_ = lost_confinement(spec_);
    // Of a craned that was killed: two domains would share one file system.
    if (files == Files::kFresh) {
        remove_leftovers(spec_);
        remove_unpacked_images(spec_);
    }
    const BaseMount base(spec_);
    check_spec(spec_);
    fail_point("launch.mounted");
    const DomainPaths paths(spec_.state_dir);
    const std::vector<std::string> command = prepare_launch(spec_, files);
    fail_point("launch.prepared");
    running_ = new Running;
    std::string error;
    try {
        running_->spawn(command, paths.lxc_log, spec_);
        error = running_->wait_for_start(spec_.start_timeout_ms, &weaknesses_, bring_server);
    } catch (const std::exception& problem) {
        error = problem.what();
    }
    fail_point("launch.started");
    if (error.empty()) return error;
    kill_all(files);  // they may be tried again
    last_exit_.reset();
    return error;
}

void DomainHost::launch(Files files, const BringServer& bring_server) {
    if (running_ != nullptr) {
        if (!wait_for_end(running_->monitor_pidfd, 0))
            throw std::runtime_error("the domain " + spec_.name + " runs already");
        kill_all(files);
    }
    last_exit_.reset();
    for (int starts = 1;; ++starts) {
        const MountWatch mounts;
        const std::string error = launch_once(files, bring_server);
        if (error.empty()) return;
        // What of the host's went after the look at it is not there to be mounted in the container.
        if (error == kNoContainer && starts < kMostStarts && mounts.changed()) continue;
        std::string text = "the server " + spec_.argv[0] + " was not started: " + error;
        if (spec_.isolation == Isolation::kLxc) text += last_lines(DomainPaths(spec_.state_dir).lxc_log, 5);
        throw std::runtime_error(text);
    }
}

void DomainHost::settle_times(uint64_t since_ns, uint64_t time_ns) const {
    checkpoint::settle_times(DomainPaths(spec_.state_dir).container, since_ns, time_ns);
}

void DomainHost::pack_files(const std::string& archive, const Check& check) const {
    checkpoint::pack_files(DomainPaths(spec_.state_dir).container, archive, Kept::kFiles, check);
}

void DomainHost::unpack_files(const std::string& archive) {
    remove_unpacked_images(spec_);
    lay_out(archive);
}

void DomainHost::lay_out(const std::string& archive) {
    kill_all();
    remove_leftovers(spec_);
    const std::string container = DomainPaths(spec_.state_dir).container;
    make_container_dir(container, spec_.disk_quota);
    checkpoint::unpack_files(archive, container);
}

pid_t DomainHost::init_pid() const {
    return running_ != nullptr ? running_->init : 0;
}

int DomainHost::exit_fd() const {
    return running_ != nullptr ? running_->monitor_pidfd : -1;
}

bool DomainHost::terminate() {
    return running_ != nullptr && running_->signal_init(SIGTERM);
}

bool DomainHost::kill_all(Files files) {
    if (running_ == nullptr) {
        if (files == Files::kFresh) release_files(spec_);
        return true;
    }
    const bool contained = spec_.isolation == Isolation::kLxc;
    if (contained) {
        running_->signal_init(SIGKILL);  // takes the whole pid namespace with it
        if (running_->init_pidfd < 0) running_->signal_monitor(SIGKILL);
    } else {
        ::shutdown(running_->notify_fd, SHUT_RDWR);  // crane-init alone can end them all without a race
    }
    // Nothing was started: what is below 0 is all of this host.
    bool gone = running_->monitor <= 0 || wait_for_end(running_->monitor_pidfd, kKillTimeoutMs);
    if (!gone) {
        std::vector<pid_t> pids = descendants_of(running_->monitor);
        pids.push_back(running_->monitor);
        gone = kill_processes(pids, kKillTimeoutMs);
    }
    if (gone) {
        last_exit_ = read_exit_report(DomainPaths(spec_.state_dir).exit_status);
        if (contained) remove_container_traces(spec_);
        if (contained && files == Files::kFresh) release_files(spec_);
        delete running_;
        running_ = nullptr;
    }
    return gone;
}

std::optional<ExitReport> DomainHost::poll_exit() {
    if (running_ != nullptr && wait_for_end(running_->monitor_pidfd, 0)) kill_all(Files::kKept);
    return running_ == nullptr ? last_exit_ : std::nullopt;
}

void DomainHost::trim_output() const {
    const uint64_t quota = spec_.disk_quota.bytes;
    const uint64_t most = quota == 0 ? kMostOutputBytes : std::min(kMostOutputBytes, quota / kOutputShare);
    const DomainPaths paths(spec_.state_dir);
    for (const std::string& path : {paths.stdout_file, paths.stderr_file}) trim_front(path, most);
}

}  // namespace crane::checkpoint
