#include "checkpoint/run_folders.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "checkpoint/descriptor.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

std::runtime_error fail(const std::string& what, const std::string& path) {
    return std::runtime_error(what + " " + path + ": " + std::strerror(errno));
}

constexpr int kMaxRunDepth = 6;
constexpr int kMaxRunFolders = 2000;

// Folders and links of the host's /run: pid files, sockets and locks belong to the host's own daemons.
void copy_run_tree(const std::string& from, const std::string& to, int depth, int* left) {
    DIR* folder = ::opendir(from.c_str());
    if (folder == nullptr) return;
    while (const dirent* entry = ::readdir(folder)) {
        const std::string name = entry->d_name;
        const std::string source = from + "/" + name;
        struct stat info {};
        // LXC's locks tell of this machine's containers, now and earlier.
        if (name == "." || name == ".." || source == "/run/lxc") continue;
        if (::lstat(source.c_str(), &info) != 0 || --*left < 0) continue;
        if (S_ISLNK(info.st_mode) && depth == 0) {
            std::error_code ignored;
            fs::copy_symlink(source, to + "/" + name, ignored);
        }
        if (!S_ISDIR(info.st_mode)) continue;
        make_folder(to + "/" + name, info.st_mode & 07777, info.st_uid, info.st_gid);
        // Below these are sessions, units and mounts of the host.
        const bool foreign = from == "/run" && (name == "user" || name == "systemd" || name == "udev" ||
                                                name == "credentials" || name == "netns" || name == "crane");
        if (!foreign && depth < kMaxRunDepth) copy_run_tree(source, to + "/" + name, depth + 1, left);
    }
    ::closedir(folder);
}

void make_run_folder(const std::string& upper, const ServerRoot& root, const RunFolder& folder) {
    const auto user = root.user(folder.user);
    const auto owners = root.group(folder.group);
    if (!user || !owners) return;
    const std::string path = upper + folder.path;
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) return;  // the running host knows better
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    make_folder(path, folder.mode, user->uid, *owners);
}

void add_configured_run_folders(const std::string& upper, const ServerRoot& root) {
    const auto each_file = [&root](const char* folder, const char* suffix, auto&& use) {
        std::error_code ignored;
        for (const auto& entry : fs::directory_iterator(root.on_host(folder), ignored))
            if (entry.path().extension() == suffix)
                use(read_text_file(
                    root.on_host(std::string(folder) + "/" + entry.path().filename().string())));
    };
    for (const char* folder : {"/usr/lib/tmpfiles.d", "/etc/tmpfiles.d"})
        each_file(folder, ".conf", [&](const std::string& text) {
            for (const RunFolder& run : parse_tmpfiles(text)) make_run_folder(upper, root, run);
        });
    for (const char* folder : {"/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"})
        each_file(folder, ".service", [&](const std::string& text) {
            for (const RunFolder& run : parse_unit_runtime_folders(text)) make_run_folder(upper, root, run);
        });
    // Apache's and nginx' control scripts make these by hand instead of configuring them.
    for (const char* path : {"/run/apache2", "/run/lock/apache2"})
        if (root.has("/etc/apache2/envvars"))
            make_run_folder(upper, root,
                            {path, 0755, std::string(path) == "/run/apache2" ? "root" : "www-data", "root"});
}

}  // namespace

void make_folder(const std::string& path, unsigned mode, uid_t uid, gid_t gid) {
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) throw fail("mkdir", path);
    // What a server has put there instead may lead anywhere.
    const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (folder.get() < 0) throw fail("opening", path);
    if (::fchown(folder.get(), uid, gid) != 0) throw fail("chown", path);
    if (::fchmod(folder.get(), mode) != 0) throw fail("chmod", path);
}

void fill_run(const std::string& upper, const ServerRoot& root) {
    int left = kMaxRunFolders;
    if (!root.is_image()) copy_run_tree("/run", upper + "/run", 0, &left);
    make_folder(upper + "/run/lock", 01777, 0, 0);
    add_configured_run_folders(upper, root);
    make_folder(upper + "/run/crane", 0755, 0, 0);
    make_folder(upper + "/run/crane-init", 0755, 0, 0);
}

std::vector<RunFolder> parse_tmpfiles(const std::string& text) {
    std::vector<RunFolder> folders;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string kind, path, mode = "-", user = "-", group = "-";
        words >> kind >> path >> mode >> user >> group;
        if (kind.empty() || (kind[0] != 'd' && kind[0] != 'D')) continue;
        if (path.compare(0, 8, "/var/run") == 0) path.erase(0, 4);
        if (!is_below(path, "/run") || path == "/run" || path.find_first_of("%.") != std::string::npos)
            continue;
        RunFolder folder;
        folder.path = path;
        if (mode.find_first_not_of("~:01234567") == std::string::npos)
            folder.mode =
                static_cast<unsigned>(std::stoul("0" + mode.substr(mode.find_last_of("~:") + 1), nullptr, 8));
        if (user != "-" && !user.empty()) folder.user = user;
        if (group != "-" && !group.empty()) folder.group = group;
        folders.push_back(folder);
    }
    return folders;
}

std::vector<RunFolder> parse_unit_runtime_folders(const std::string& text) {
    std::vector<std::string> names;
    RunFolder folder;
    bool has_group = false;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t equals = line.find('=');
        if (equals == std::string::npos) continue;
        const std::string key = line.substr(0, equals), value = line.substr(equals + 1);
        if (key == "RuntimeDirectory") {
            std::istringstream words(value);
            for (std::string name; words >> name;)
                if (name.find_first_of("%.:") == std::string::npos) names.push_back(name);
        } else if (key == "RuntimeDirectoryMode" &&
                   value.find_first_not_of("01234567") == std::string::npos) {
            folder.mode = static_cast<unsigned>(std::stoul("0" + value, nullptr, 8));
        } else if (key == "User" && !value.empty()) {
            folder.user = value;
            if (!has_group) folder.group = value;
        } else if (key == "Group" && !value.empty()) {
            folder.group = value;
            has_group = true;
        }
    }
    std::vector<RunFolder> folders;
    for (const std::string& name : names) {
        folder.path = "/run/" + name;
        folders.push_back(folder);
    }
    return folders;
}

}  // namespace crane::checkpoint
