#include "checkpoint/criu.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>

#include "checkpoint/criu_message.hpp"
#include "checkpoint/criu_program.hpp"
#include "checkpoint/descriptor.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/stopwatch.hpp"

namespace crane::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFirstFd = 3;        // in crane-criu: the socket, the folder, then the replacements
constexpr int kOutOfTheWay = 100;  // duplicates keep clear of the numbers that they are to take
constexpr size_t kMaxMessage = 64 * 1024, kMaxLog = 1 << 20, kMaxErrors = 3;
constexpr char kKernelFolder[] = "/dev/shm/crane-criu";
constexpr char kAdvice[] = "`crane check` says whether CRIU works on this host";

std::string failed(const std::string& what) {
    return what + ": " + std::strerror(errno);
}

/// That a limit of CRIU's own could not be raised harms nothing, and is no reason for what failed after it.
bool is_harmless(const std::string& line) {
    return line.find("RLIMIT_NOFILE for self") != std::string::npos;
}

/// What CRIU itself says of a failure.
std::string errors_in(const std::string& log) {
    std::istringstream lines(read_text_file(log, kMaxLog));
    std::string errors;
    size_t count = 0;
    for (std::string line; count < kMaxErrors && std::getline(lines, line);) {
        const size_t at = line.find("Error (");
        if (at == std::string::npos || is_harmless(line)) continue;
        errors += "\n  " + line.substr(at);
        ++count;
    }
    return errors;
}

/// Where CRIU keeps what it has found out about the kernel, which takes it longer than a small image: on
/// tmpfs, and so gone with the boot. Nobody else may have made it. Without it all works, too.
Descriptor kernel_folder() {
    ::mkdir(kKernelFolder, 0700);
    Descriptor folder(::open(kKernelFolder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    const bool own = ::fstat(folder.get(), &info) == 0 && info.st_uid == 0 && (info.st_mode & 022) == 0;
    if (!own) folder.reset();
    return folder;
}

/// crane-criu as a child of this process, and the socket to it.
class Helper {
  public:
    Helper(const CriuJob& job, const std::string& criu);
    ~Helper() {
        socket_.reset();
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);  // takes its children with it
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
    }
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

    /// Its next word; "" when it has ended, nothing when it says none in time.
    std::optional<std::string> next(Clock::time_point deadline) const {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd wait{socket_.get(), POLLIN, 0};
        const int ready = left <= 0 ? 0 : ::poll(&wait, 1, static_cast<int>(left));
        if (ready < 0 && errno == EINTR) return next(deadline);
        if (ready <= 0) return std::nullopt;
        std::string text(kMaxMessage, '\0');
        const ssize_t got = ::recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
        text.resize(got > 0 ? static_cast<size_t>(got) : 0);
        return text;
    }
    void tell(const std::string& text) const {
        (void)!::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }

  private:
    pid_t pid_ = -1;
    Descriptor socket_;
};

Helper::Helper(const CriuJob& job, const std::string& criu) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        throw CriuError(failed("socketpair"), false);
    socket_.reset(pair[0]);
    const Descriptor theirs(pair[1]);
    const Descriptor folder(::open(job.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) throw CriuError(failed("the folder of the images, " + job.folder), false);
    const Descriptor known = kernel_folder();
    std::vector<int> given = {theirs.get(), folder.get(), known.get() >= 0 ? known.get() : theirs.get()};
    std::vector<std::string> words = {"crane-criu", job.restore ? "restore" : "dump",
                                      std::to_string(job.init), criu, std::to_string(job.last_pid)};
    for (const CriuJob::Replacement& one : job.replacements) {
        given.push_back(one.fd);
        words.push_back(one.key);
    }
    words.insert(words.end(), job.watched.begin(), job.watched.end());
    std::vector<Descriptor> copies;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (size_t i = 0; i < given.size(); ++i) {
        copies.emplace_back(::fcntl(given[i], F_DUPFD_CLOEXEC, kOutOfTheWay));
        ::posix_spawn_file_actions_adddup2(&actions, copies.back().get(), kFirstFd + static_cast<int>(i));
    }
    ::posix_spawn_file_actions_addclosefrom_np(&actions, kFirstFd + static_cast<int>(given.size()));
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, job.helper.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error == 0) return;
    pid_ = -1;
    throw CriuError(job.helper + ": " + std::strerror(error) + ": run make, or reinstall Crane", false);
}

/// Follows the helper to its end, which has to come by then, not counting what while_frozen takes. Throws
/// CriuError.
long follow(const CriuJob& job, const Helper& helper, Clock::time_point deadline) {
    const std::string log = job.folder + (job.restore ? "/restore.log" : "/dump.log");
    const std::string what = job.restore ? "the server was not restored from " + job.folder
                                         : std::string("no image of the server was taken");
    std::string refused;
    for (;;) {
        const std::optional<std::string> word = helper.next(deadline);
        if (!word)
            throw CriuError(what + " within " + std::to_string(job.timeout_ms / 1000) + " s" + errors_in(log),
                            true);
        if (word->empty())
            throw CriuError(what + ": CRIU was killed, or the container has ended" + errors_in(log), true);
        if (word->starts_with("done ")) return std::stol(word->substr(5));
        if (word->starts_with("error: ")) {
            const std::string said = is_harmless(*word) ? "CRIU has refused" : word->substr(7);
            const std::string why = refused.empty() ? said + errors_in(log) : refused;
            throw CriuError(what + ": " + why + (refused.empty() ? "\n" + std::string(kAdvice) : ""), false);
        }
        if (!word->starts_with("stage ")) continue;
        const Clock::time_point begun = Clock::now();
        try {
            if (job.while_frozen) job.while_frozen();
            helper.tell("go");
        } catch (const std::exception& error) {
            refused = error.what();
            helper.tell("stop");
        }
        deadline += Clock::now() - begun;  // the time is CRIU's: files of any size are copied meanwhile
    }
}

}  // namespace

CriuOutcome run_criu(const CriuJob& job) {
    const std::string criu = find_criu();
    if (criu.empty())
        throw CriuError("CRIU is not installed: run scripts/install_criu.sh, or make deps", false);
    const Stopwatch whole;
    CriuOutcome outcome;
    const Helper helper(job, criu);
    outcome.last_pid = follow(job, helper, Clock::now() + std::chrono::milliseconds(job.timeout_ms));
    outcome.wall_us = whole.us();
    if (!job.restore)
        outcome.frozen_us = frozen_us(read_text_file(job.folder + "/stats-dump", kMaxMessage)).value_or(0);
    return outcome;
}

std::string criu_key(int fd) {
    char target[256];
    const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
    if (length <= 0 || length == sizeof target) return {};
    std::string name(target, static_cast<size_t>(length));
    if (name.starts_with("pipe:[")) return name;
    if (!name.starts_with("/memfd:")) return {};
    const size_t deleted = name.rfind(" (deleted)");
    return name.substr(0, deleted);
}

}  // namespace crane::checkpoint
