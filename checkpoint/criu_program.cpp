#include "checkpoint/criu_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kInstalled[] = "/opt/crane/criu/criu";

}  // namespace

std::string find_criu() {
    const char* named = std::getenv("CRANE_CRIU");
    if (named != nullptr && *named != '\0') return named;
    return ::access(kInstalled, X_OK) == 0 ? kInstalled : std::string();
}

std::string find_criu_script() {
    std::error_code error;
    const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
    for (const char* folder : {"..", "../../scripts", "../../../scripts"}) {
        const fs::path script = here / folder / "install_criu.sh";
        if (::access(script.c_str(), X_OK) == 0) return script.lexically_normal();
    }
    return {};
}

CriuTrial try_criu(const std::string& criu, const std::string& script) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return {false, "no pipe for its trial"};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    std::string words[] = {script, "--try", criu};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    pid_t child = -1;
    const int failed = ::posix_spawn(&child, script.c_str(), &actions, nullptr, argv, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    std::string said;
    char bytes[1024];
    for (ssize_t got = 0; failed == 0 && (got = ::read(ends[0], bytes, sizeof bytes)) > 0;)
        said.append(bytes, static_cast<size_t>(got));
    ::close(ends[0]);
    int status = -1;
    if (failed != 0 || ::waitpid(child, &status, 0) != child) return {false, script + " cannot be run"};
    return {status == 0, said.substr(0, said.find('\n'))};
}

}  // namespace crane::checkpoint
