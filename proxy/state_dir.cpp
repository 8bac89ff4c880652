#include "proxy/state_dir.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

namespace crane::proxy {

std::string make_state_dir(const std::string& given) {
    namespace fs = std::filesystem;
    std::error_code error;
    // With a slash at its end it would be its own parent, which others may look into.
    const fs::path normal = fs::path(given).lexically_normal();
    const std::string path = normal.has_filename() ? normal : normal.parent_path();
    const fs::path parent = fs::path(path).parent_path();
    if (!parent.empty()) fs::create_directories(parent, error);
    if (mkdir(path.c_str(), 0700) == 0) return "";
    struct stat found {};
    const bool exists = errno == EEXIST && stat(path.c_str(), &found) == 0;
    if (!exists) throw std::runtime_error("cannot make " + path + ": " + strerror(errno));
    if (!S_ISDIR(found.st_mode)) throw std::runtime_error("state_dir " + path + " is no directory");
    if (found.st_uid != geteuid() && found.st_uid != 0)
        return "the state directory " + path + " belongs to user " + std::to_string(found.st_uid) +
               ", who may change all that this replica knows; chown -R " + std::to_string(geteuid()) + " it";
    if ((found.st_mode & 0077) == 0) return "";
    return "others may look into the state directory " + path +
           ", where the server's output and the log are; chmod 700 it";
}

StateDirLock::StateDirLock(const std::string& state_dir) {
    const std::string path = state_dir + "/craned.lock";
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd_ < 0) throw std::runtime_error("cannot open " + path + ": " + strerror(errno));
    if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    close(fd_);
    throw std::runtime_error("another craned, or a restore, works on " + state_dir +
                             "; stop it first (crane stop)");
}

StateDirLock::~StateDirLock() {
    close(fd_);
}

}  // namespace crane::proxy
