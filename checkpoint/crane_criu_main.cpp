// crane-criu: runs CRIU inside a domain's container, for one dump or one restore.
//
// Usage (by craned only): crane-criu dump INIT_PID CRIU 0 [PATH ...]
//                          crane-criu restore INIT_PID CRIU LAST_PID [KEY ...]
// INIT_PID is crane-init as the host numbers it. LAST_PID is, of a restore, the last pid that the namespace
// had given when the image was taken; each PATH is, of a dump, a file that inotify watches. Descriptor 3 is a
// socket to craned, 4 the folder of the images, 5 one where CRIU keeps what it has found out about the
// kernel, and from 6 on follows what a restored process gets for each KEY. "stage NAME" is said on the socket
// while the server is frozen, and "go" awaited; then "done LAST_PID" or "error: ...".
//
// CRIU enters the namespaces, so that it dumps plain processes and no container. There it has the host's
// privileges among files that the server could write: so it is static, and is told to load no plugin, to read
// no configuration and to find no other program. A program of its own, since who enters namespaces has one
// thread.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/container_entry.hpp"
#include "checkpoint/criu_message.hpp"
#include "checkpoint/init_sandbox.hpp"

namespace crane::checkpoint {
namespace {

constexpr int kSocketFd = 3, kImagesFd = 4, kKernelFd = 5, kFirstReplacementFd = 6;
constexpr int kServerPid = 2;  // crane-init is 1 and starts nothing else
// Where CRIU's own pids begin. What the server starts while it is being dumped may get the next ones there,
// and is in the way of no restore.
constexpr long kDumperPids = 32000, kRestorerPids = 31000;
constexpr size_t kMaxAnswer = 64 * 1024;

struct Job {
    bool restore = false;
    pid_t init = 0;
    int criu_fd = -1;
    long last_pid = 0;                 // of a restore
    std::vector<std::string> keys;     // of a restore
    std::vector<std::string> watched;  // of a dump
};

void say(const std::string& text) {
    (void)!::send(kSocketFd, text.data(), text.size(), MSG_NOSIGNAL);
}

[[noreturn]] void fail(const std::string& text) {
    say("error: " + text);
    ::_exit(1);
}

std::string failed(const std::string& what) {
    return what + ": " + std::strerror(errno);
}

/// "" when the other side is gone.
std::string receive(int fd) {
    std::string text(kMaxAnswer, '\0');
    ssize_t got;
    do got = ::recv(fd, text.data(), text.size(), 0);
    while (got < 0 && errno == EINTR);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
}

/// The number of the server's last process, to be put back once: what the server starts after that counts on.
class LastPid {
  public:
    LastPid(const PidCursor& cursor, long pid) : cursor_(cursor), pid_(pid) {}
    long pid() const { return pid_; }
    bool put_back() { return done_ || (done_ = cursor_.set(pid_)); }

  private:
    const PidCursor& cursor_;
    long pid_;
    bool done_ = false;
};

/// craned has the say at the moments where the server stands still and all is there. CRIU starts nothing more
/// then, and the server's next process is to have its own number.
bool may_go_on(const std::string& stage, LastPid& last) {
    if (stage != "post-dump" && stage != "pre-resume") return true;
    last.put_back();
    say("stage " + stage);
    return receive(kSocketFd) == "go";
}

pid_t start_criu(const Job& job, std::string mode, int socket_fd) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    // What CRIU restores takes its own memory's place: where mmap looks first stays as CRIU's program began.
    if (!set_personality().empty() || !set_stack_limit().empty()) ::_exit(126);
    if (socket_fd >= 0) ::fcntl(socket_fd, F_SETFD, 0);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);  // what it has to say is in its log
    ::dup2(nowhere, 1);
    ::dup2(nowhere, 2);
    std::string number = std::to_string(socket_fd);
    char name[] = "criu", no_files[] = "--no-default-config";
    char* argv[] = {name, no_files, mode.data(), socket_fd >= 0 ? number.data() : nullptr, nullptr};
    char path[] = "PATH=/proc/self/attr", plugins[] = "CRIU_LIBS_DIR=/proc/self/attr";
    char* environment[] = {path, plugins, nullptr};
    ::execveat(job.criu_fd, "", argv, environment, AT_EMPTY_PATH);
    ::_exit(127);
}

CriuRequest request_for(const Job& job) {
    CriuRequest request;
    request.restore = job.restore;
    request.images_fd = kImagesFd;
    request.root_pid = kServerPid;
    request.log_file = job.restore ? "restore.log" : "dump.log";
    int fd = kFirstReplacementFd;
    request.watched = job.watched;
    for (const std::string& key : job.keys) request.replacements.push_back({key, fd++});
    return request;
}

/// "" when CRIU has done it.
std::string converse(const Job& job, int fd, LastPid& last) {
    const std::string request = encode(request_for(job));
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0) return failed("asking CRIU");
    for (;;) {
        const std::string bytes = receive(fd);
        if (bytes.empty()) return "CRIU ended without an answer";
        const std::optional<CriuAnswer> answer = decode_criu_answer(bytes);
        if (!answer) return "CRIU's answer is not understood";
        if (answer->stage.empty())
            return answer->success         ? std::string()
                   : answer->error.empty() ? "CRIU has refused"
                                           : answer->error;
        const std::string go_on = encode_criu_go_on(may_go_on(answer->stage, last));
        if (::send(fd, go_on.data(), go_on.size(), MSG_NOSIGNAL) < 0) return failed("answering CRIU");
    }
}

/// Once per boot, and not in the container: CRIU makes files and mounts to find out what this kernel can do.
void learn_kernel(const Job& job) {
    if (::faccessat(kKernelFd, "criu.kdat", F_OK, 0) == 0) return;
    const pid_t criu = start_criu(job, "check", -1);
    while (criu > 0 && ::waitpid(criu, nullptr, 0) < 0 && errno == EINTR) continue;
}

/// In the container.
void run_criu(const Job& job, const PidCursor& cursor) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    LastPid last(cursor, job.restore ? job.last_pid : cursor.get());
    if (last.pid() < 0 || !cursor.set(job.restore ? kRestorerPids : kDumperPids))
        fail(failed("/proc/sys/kernel/ns_last_pid"));
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) fail(failed("socketpair"));
    const pid_t criu = start_criu(job, "swrk", pair[1]);
    ::close(pair[1]);
    const std::string error = criu < 0 ? failed("fork") : converse(job, pair[0], last);
    ::close(pair[0]);
    // What it has restored becomes crane-init's child when it ends.
    int status = 0;
    while (criu > 0 && ::waitpid(criu, &status, 0) < 0 && errno == EINTR) continue;
    // Killed, it has left its own code running in the server: craned takes an end without a word for that.
    if (criu > 0 && WIFSIGNALED(status)) ::_exit(1);
    const bool numbered = last.put_back();
    if (!error.empty()) fail(error);
    if (!numbered) fail(failed("setting the next pid"));
    say("done " + std::to_string(last.pid()));
}

/// CRIU puts descriptors of its own behind the server's highest (init_sandbox.hpp).
void allow_many_files() {
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
}

int run(int argc, char** argv) {
    if (argc < 5) return 2;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::signal(SIGPIPE, SIG_IGN);
    Job job;
    job.restore = std::string(argv[1]) == "restore";
    job.init = std::atoi(argv[2]);
    job.criu_fd = ::open(argv[3], O_RDONLY | O_CLOEXEC);
    job.last_pid = std::atol(argv[4]);
    (job.restore ? job.keys : job.watched).assign(argv + 5, argv + argc);
    if (job.criu_fd < 0) fail(failed(argv[3]));
    learn_kernel(job);
    allow_many_files();
    const PidCursor cursor;
    if (job.restore) {
        join_cgroups_of(job.init);
        cpu_set_t cpus;
        if (::sched_getaffinity(job.init, sizeof cpus, &cpus) == 0)
            ::sched_setaffinity(0, sizeof cpus, &cpus);
    }
    std::string error;
    const pid_t child = fork_into_container(job.init, &error);
    if (child < 0) fail(error);
    if (child == 0) {
        run_criu(job, cursor);
        ::_exit(0);
    }
    ::close(kSocketFd);  // its end is the child's
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    return 0;
}

}  // namespace
}  // namespace crane::checkpoint

int main(int argc, char** argv) {
    return crane::checkpoint::run(argc, argv);
}
