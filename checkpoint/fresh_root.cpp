#include "checkpoint/fresh_root.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "checkpoint/disk_quota.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr int kMaxRunDepth = 6;
constexpr int kMaxRunFolders = 2000;
// In the container's folder: the mounts that have layers, since the host's may change while the server runs.
constexpr char kLayerList[] = "/layers";
// Of files and folders that every domain begins with: long before any server's own.

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

void make_folder(const std::string& path, unsigned mode, uid_t uid, gid_t gid) {
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) fail("mkdir " + path);
    if (::chown(path.c_str(), uid, gid) != 0) fail("chown " + path);
    if (::chmod(path.c_str(), mode) != 0) fail("chmod " + path);
}

void make_opaque(const std::string& path) {
    if (::setxattr(path.c_str(), "trusted.overlay.opaque", "y", 1, 0) != 0)
        fail("marking " + path + " opaque (the state directory must be on ext4, xfs, btrfs or tmpfs)");
}

// The folders above `path` in the upper layer, each like the host's, so that a merged folder looks unchanged.
void copy_up_parents(const Layer& layer, const std::string& path) {
    std::string host = layer.point == "/" ? "" : layer.point;
    std::string upper = layer.upper;
    const fs::path inside = fs::path(path).lexically_relative(layer.point);
    for (const fs::path& part : inside) {
        host += "/" + part.string();
        upper += "/" + part.string();
        struct stat info {};
        if (::stat(host.c_str(), &info) != 0) fail(host);
        make_folder(upper, info.st_mode & 07777, info.st_uid, info.st_gid);
        const timespec times[2] = {info.st_atim, info.st_mtim};
        ::utimensat(AT_FDCWD, upper.c_str(), times, 0);
    }
}

void make_empty_file(const std::string& path, const struct stat& like) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) fail("making " + path);
    const bool done = ::fchown(fd, like.st_uid, like.st_gid) == 0 && ::fchmod(fd, like.st_mode & 07777) == 0;
    ::close(fd);
    if (!done) fail("making " + path);
}

void hide(const std::vector<Layer>& layers, const std::string& folder) {
    const Layer* holder = &layers.front();
    for (const Layer& layer : layers)
        if (is_below(folder, layer.point) && layer.point.size() > holder->point.size()) holder = &layer;
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) return;
    const std::string inside =
        holder->upper + "/" + fs::path(folder).lexically_relative(holder->point).string();
    if (S_ISDIR(info.st_mode)) {
        copy_up_parents(*holder, folder);
        make_opaque(inside);
        return;
    }
    copy_up_parents(*holder, fs::path(folder).parent_path().string());
    make_empty_file(inside, info);
}

// Without links on the way, as the layers are looked through; nothing when it is not there.
std::vector<std::string> real_paths(const std::vector<std::string>& paths) {
    std::vector<std::string> real;
    for (const std::string& path : paths) {
        std::error_code error;
        const fs::path one = fs::canonical(path, error);
        if (!error && one != "/") real.push_back(one.string());
    }
    // What is above first: a folder that is hidden is not walked into again.
    std::ranges::sort(real);
    std::vector<std::string> outermost;
    for (const std::string& path : real)
        if (outermost.empty() || !is_below(path, outermost.back())) outermost.push_back(path);
    return outermost;
}

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

void make_run_folder(const std::string& upper, const RunFolder& folder) {
    const passwd* user = ::getpwnam(folder.user.c_str());
    const group* owners = ::getgrnam(folder.group.c_str());
    if (user == nullptr || owners == nullptr) return;
    const std::string path = upper + folder.path;
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) return;  // the running host knows better
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    make_folder(path, folder.mode, user->pw_uid, owners->gr_gid);
}

void add_configured_run_folders(const std::string& upper) {
    const auto each_file = [](const char* folder, const char* suffix, auto&& use) {
        std::error_code ignored;
        for (const auto& entry : fs::directory_iterator(folder, ignored))
            if (entry.path().extension() == suffix) use(read_text_file(entry.path().string()));
    };
    for (const char* folder : {"/usr/lib/tmpfiles.d", "/etc/tmpfiles.d"})
        each_file(folder, ".conf", [&](const std::string& text) {
            for (const RunFolder& run : parse_tmpfiles(text)) make_run_folder(upper, run);
        });
    for (const char* folder : {"/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system"})
        each_file(folder, ".service", [&](const std::string& text) {
            for (const RunFolder& run : parse_unit_runtime_folders(text)) make_run_folder(upper, run);
        });
    // Apache's and nginx' control scripts make these by hand instead of configuring them.
    for (const char* path : {"/run/apache2", "/run/lock/apache2"})
        if (fs::exists("/etc/apache2/envvars"))
            make_run_folder(upper,
                            {path, 0755, std::string(path) == "/run/apache2" ? "root" : "www-data", "root"});
}

void fill_root(const Layer& root) {
    make_folder(root.upper + "/tmp", 01777, 0, 0);
    make_opaque(root.upper + "/tmp");
    make_folder(root.upper + "/run", 0755, 0, 0);
    make_opaque(root.upper + "/run");
    int left = kMaxRunFolders;
    copy_run_tree("/run", root.upper + "/run", 0, &left);
    make_folder(root.upper + "/run/lock", 01777, 0, 0);
    add_configured_run_folders(root.upper);
    make_folder(root.upper + "/run/crane", 0755, 0, 0);
    make_folder(root.upper + "/run/crane-init", 0755, 0, 0);
}

Layer make_layer(const std::string& folder, const std::string& point) {
    Layer layer{point, folder + "/upper", folder + "/work"};
    struct stat info {};
    if (::stat(point.c_str(), &info) != 0) fail(point);
    std::error_code error;
    fs::create_directories(layer.work, error);
    fs::create_directories(layer.upper, error);
    if (error) throw std::runtime_error("making " + folder + ": " + error.message());
    make_folder(layer.upper, info.st_mode & 07777, info.st_uid, info.st_gid);
    return layer;
}

/// Where the layers go besides /: every other disk-backed mount.
std::vector<std::string> layered_mounts(const std::vector<std::string>& hidden) {
    std::vector<std::string> points;
    for (const Mount& mount : disk_mounts_below_root(read_mounts())) {
        // A disk that is mounted where something is hidden is not mounted in the domain.
        if (std::ranges::none_of(hidden,
                                 [&](const std::string& path) { return is_below(mount.point, path); }))
            points.push_back(mount.point);
    }
    return points;
}

std::vector<Layer> make_layers(const std::string& container_dir, const std::vector<std::string>& points) {
    std::vector<Layer> layers{make_layer(container_dir, "/")};
    for (size_t i = 0; i < points.size(); ++i)
        layers.push_back(make_layer(container_dir + "/mounts/" + std::to_string(i), points[i]));
    return layers;
}

std::vector<std::string> listed_points(const std::string& container_dir) {
    std::ifstream list(container_dir + kLayerList);
    if (!list) throw std::runtime_error("the files that the server has left are gone: " + container_dir);
    std::vector<std::string> points;
    for (std::string point; std::getline(list, point);) points.push_back(point);
    return points;
}

void show(const std::string& container_dir, const std::string& shown, std::vector<Layer>* layers) {
    if (shown.empty()) return;
    copy_up_parents(layers->front(), shown);
    layers->push_back(make_layer(container_dir + "/mounts/shown", shown));
}

}  // namespace

std::vector<Layer> imaged_layers(const std::string& container_dir, const std::string& shown) {
    std::vector<Layer> layers = make_layers(container_dir, listed_points(container_dir));
    if (!shown.empty()) layers.push_back(make_layer(container_dir + "/mounts/shown", shown));
    return layers;
}

std::vector<Layer> present_layers(const std::string& container_dir, const std::string& shown) {
    std::vector<Layer> layers;
    const auto add = [&](const std::string& folder, const std::string& point) {
        layers.push_back({point, folder + "/upper", folder + "/work"});
    };
    add(container_dir, "/");
    size_t number = 0;
    for (const std::string& point : listed_points(container_dir))
        add(container_dir + "/mounts/" + std::to_string(number++), point);
    if (!shown.empty()) add(container_dir + "/mounts/shown", shown);
    return layers;
}

void make_container_dir(const std::string& container_dir, uint64_t quota_bytes) {
    std::error_code error;
    fs::remove_all(container_dir, error);
    if (error) throw std::runtime_error("removing the old " + container_dir + ": " + error.message());
    fs::create_directories(container_dir, error);
    if (error) throw std::runtime_error("making " + container_dir + ": " + error.message());
    if (quota_bytes != 0) mount_limited(container_dir + ".image", container_dir, quota_bytes);
    ::chmod(container_dir.c_str(), 0700);
}

std::vector<Layer> make_fresh_layers(const std::string& container_dir,
                                     const std::vector<std::string>& hidden_as_named,
                                     const std::string& shown, uint64_t quota_bytes) {
    const std::vector<std::string> hidden = real_paths(hidden_as_named);
    make_container_dir(container_dir, quota_bytes);
    const std::vector<std::string> points = layered_mounts(hidden);
    std::ofstream list(container_dir + kLayerList);
    for (const std::string& point : points) list << point << "\n";
    list.close();
    if (!list) fail("writing " + container_dir + kLayerList);
    std::vector<Layer> layers = make_layers(container_dir, points);
    fill_root(layers.front());
    show(container_dir, shown, &layers);
    for (const std::string& folder : hidden) {
        const bool gone = is_below(folder, "/tmp") || is_below(folder, "/run");
        if (!gone || (!shown.empty() && is_below(folder, shown))) hide(layers, folder);
    }
    return layers;
}

std::vector<Layer> renew_layers(const std::string& container_dir, const std::string& shown) {
    std::vector<Layer> layers = make_layers(container_dir, listed_points(container_dir));
    for (const char* folder : {"/tmp", "/run"}) {
        std::error_code error;
        fs::remove_all(layers.front().upper + folder, error);
        if (error) throw std::runtime_error(std::string("emptying ") + folder + ": " + error.message());
    }
    fill_root(layers.front());
    show(container_dir, shown, &layers);
    return layers;
}

void give_fixed_times(const Layer& root) {
    constexpr timespec kTimes[2] = {{kFreshTimeS, 0}, {kFreshTimeS, 0}};
    const auto settle = [&](const std::string& path) {
        ::utimensat(AT_FDCWD, path.c_str(), kTimes, AT_SYMLINK_NOFOLLOW);
    };
    settle(root.upper);
    for (const char* folder : {"/tmp", "/run"}) {
        settle(root.upper + folder);
        std::error_code ignored;
        for (const auto& entry : fs::recursive_directory_iterator(root.upper + folder, ignored))
            settle(entry.path().string());
    }
}

void name_own_host(const Layer& root, const std::string& hostname) {
    copy_up_parents(root, "/etc");
    std::ofstream hosts(root.upper + "/etc/hosts", std::ios::binary | std::ios::trunc);
    hosts << read_text_file("/etc/hosts") << "127.0.1.1 " << hostname << "\n";
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
