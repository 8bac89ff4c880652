#include "checkpoint/command.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "base/session_priority.hpp"
#include "checkpoint/processes.hpp"

namespace crane::checkpoint {
namespace {

constexpr size_t kQuotedBytes = 2000;
constexpr size_t kMostOutputBytes = 1 << 20;
constexpr int kCheckMs = 20;
/// Behind servers, and before what runs on idle processors only.
constexpr int kBackgroundNice = 10;

std::string first_bytes(FILE* file, size_t most) {
    std::string text(most, '\0');
    ::rewind(file);
    text.resize(::fread(text.data(), 1, text.size(), file));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

int wait_status(pid_t pid) {
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) throw std::runtime_error(std::string("waiting for it: ") + std::strerror(errno));
    return status;
}

/// `killed`: as of kill(2); in the background what it has started goes, too.
void work_under(pid_t pid, pid_t killed, const Check& check) {
    const int pidfd = check ? open_pidfd(pid) : -1;
    try {
        while (pidfd >= 0 && !wait_for_end(pidfd, kCheckMs)) check();
    } catch (...) {
        ::kill(killed, SIGKILL);
        wait_status(pid);
        ::close(pidfd);
        throw;
    }
    if (pidfd >= 0) ::close(pidfd);
}

/// Returns the first `most` bytes of what it said.
std::string run(const std::vector<std::string>& words, const std::string& doing, int most_status,
                const Check& check, size_t most, Pace pace = Pace::kWaitedFor) {
    // One that outlived a killed craned would write where the next one works.
    std::vector<std::string> all{"/usr/bin/setpriv", "--pdeathsig", "KILL", "--"};
    if (pace == Pace::kInBackground)
        all.insert(all.end(), {"/usr/bin/nice", "-n", std::to_string(kBackgroundNice), "--"});
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    argv.reserve(all.size() + 1);
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::unique_ptr<FILE, int (*)(FILE*)> said(::tmpfile(), ::fclose);
    if (!said) throw std::runtime_error(doing + ": no temporary file: " + std::strerror(errno));
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, ::fileno(said.get()), 1);
    ::posix_spawn_file_actions_adddup2(&actions, ::fileno(said.get()), 2);
    pid_t pid = 0;
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    if (pace == Pace::kInBackground) ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) throw std::runtime_error(doing + ": " + all[0] + ": " + std::strerror(error));
    if (pace == Pace::kInBackground) set_session_nice(pid, kBackgroundNice);
    work_under(pid, pace == Pace::kInBackground ? -pid : pid, check);
    const int status = wait_status(pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > most_status)
        throw std::runtime_error(doing + ": " + words[0] +
                                 " failed: " + first_bytes(said.get(), kQuotedBytes));
    return first_bytes(said.get(), most);
}

}  // namespace

void run_command(const std::vector<std::string>& words, const std::string& doing, int most_status,
                 const Check& check, Pace pace) {
    if (check) check();
    run(words, doing, most_status, check, 0, pace);
}

std::string output_of(const std::vector<std::string>& words, const std::string& doing) {
    return run(words, doing, 0, {}, kMostOutputBytes);
}

}  // namespace crane::checkpoint
