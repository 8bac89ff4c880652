#include "checkpoint/fresh_root.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "checkpoint/disk_quota.hpp"
#include "checkpoint/folder_walk.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/run_folders.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

// In the container's folder: the mounts that have layers, since the host's may change while the server runs.
constexpr char kLayerList[] = "/layers";
// Of files and folders that every domain begins with: long before any server's own.

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

void make_opaque(const std::string& path) {
    if (::setxattr(path.c_str(), "trusted.overlay.opaque", "y", 1, 0) != 0)
        fail("marking " + path + " opaque (the state directory must be on ext4, xfs, btrfs or tmpfs)");
}

// The folders above `path` in the upper layer, each like the host's, so that a merged folder looks unchanged.
void copy_up_parents(const Layer& layer, const std::string& path) {
    std::string host = layer.lower == "/" ? "" : layer.lower;
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

void hide(const std::vector<Layer>& layers, const std::string& folder, const ServerRoot& root) {
    const Layer* holder = &layers.front();
    for (const Layer& layer : layers)
        if (is_below(folder, layer.point) && layer.point.size() > holder->point.size()) holder = &layer;
    struct stat info {};
    if (::stat(root.on_host(folder).c_str(), &info) != 0) return;
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
std::vector<std::string> real_paths(const std::vector<std::string>& paths, const ServerRoot& root) {
    std::vector<std::string> real;
    for (const std::string& path : paths) {
        const std::optional<std::string> one = root.resolve(path);
        if (one && *one != "/") real.push_back(*one);
    }
    // What is above first: a folder that is hidden is not walked into again.
    std::ranges::sort(real);
    std::vector<std::string> outermost;
    for (const std::string& path : real)
        if (outermost.empty() || !is_below(path, outermost.back())) outermost.push_back(path);
    return outermost;
}

void fill_root(const Layer& layer, const ServerRoot& root) {
    make_folder(layer.upper + "/tmp", 01777, 0, 0);
    make_opaque(layer.upper + "/tmp");
    make_folder(layer.upper + "/run", 0755, 0, 0);
    make_opaque(layer.upper + "/run");
    fill_run(layer.upper, root);
    // An image may have been made without what is mounted on.
    for (const char* point : {"/proc", "/sys", "/dev"})
        if (!root.has(point)) make_folder(layer.upper + point, 0755, 0, 0);
}

Layer make_layer(const std::string& folder, const std::string& point, const ServerRoot& root) {
    Layer layer{point, folder + "/upper", folder + "/work", point == "/" ? root.folder() : point};
    struct stat info {};
    if (::stat(layer.lower.c_str(), &info) != 0) fail(layer.lower);
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
        // A disk that is mounted where something is hidden is not mounted in the domain; nor are the files of
        // others like it, which come and go.
        if (is_disk_quota(mount)) continue;
        if (std::ranges::none_of(hidden,
                                 [&](const std::string& path) { return is_below(mount.point, path); }))
            points.push_back(mount.point);
    }
    return points;
}

/// A mount of the host that is no longer there, and in which the server has changed nothing.
bool is_gone_unused(const std::string& point, const std::string& folder) {
    std::error_code unknown;
    if (fs::exists(point, unknown) || unknown) return false;
    if (fs::is_empty(folder + "/upper", unknown) || unknown) return true;
    throw std::runtime_error(point +
                             ", which was mounted when the server was started, and where it has changed "
                             "files, is no longer there: mount it again");
}

std::vector<Layer> make_layers(const std::string& container_dir, const std::vector<std::string>& points,
                               const ServerRoot& root) {
    std::vector<Layer> layers{make_layer(container_dir, "/", root)};
    for (size_t i = 0; i < points.size(); ++i) {
        const std::string folder = container_dir + "/mounts/" + std::to_string(i);
        if (is_gone_unused(points[i], folder)) {
            spdlog::warn(
                "{}, which was mounted when the server was started, is no longer there; the server has "
                "changed nothing there, and goes on without it",
                points[i]);
            continue;
        }
        layers.push_back(make_layer(folder, points[i], root));
    }
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
    layers->push_back(make_layer(container_dir + "/mounts/shown", shown, {}));
}

}  // namespace

std::vector<Layer> imaged_layers(const std::string& container_dir, const std::string& shown,
                                 const ServerRoot& root) {
    std::vector<Layer> layers = make_layers(container_dir, listed_points(container_dir), root);
    if (!shown.empty()) layers.push_back(make_layer(container_dir + "/mounts/shown", shown, {}));
    return layers;
}

std::vector<Layer> present_layers(const std::string& container_dir, const std::string& shown) {
    std::vector<Layer> layers;
    const auto add = [&](const std::string& folder, const std::string& point) {
        layers.push_back({point, folder + "/upper", folder + "/work", point});
    };
    add(container_dir, "/");
    size_t number = 0;
    for (const std::string& point : listed_points(container_dir))
        add(container_dir + "/mounts/" + std::to_string(number++), point);
    if (!shown.empty()) add(container_dir + "/mounts/shown", shown);
    return layers;
}

void make_container_dir(const std::string& container_dir, const DiskQuota& quota) {
    remove_tree(container_dir);
    std::error_code error;
    fs::create_directories(container_dir, error);
    if (error) throw std::runtime_error("making " + container_dir + ": " + error.message());
    if (quota) mount_limited(container_dir + kQuotaImage, container_dir, quota);
    ::chmod(container_dir.c_str(), 0700);
}

std::vector<Layer> make_fresh_layers(const std::string& container_dir,
                                     const std::vector<std::string>& hidden_as_named,
                                     const std::string& shown, const DiskQuota& quota,
                                     const ServerRoot& root) {
    const std::vector<std::string> hidden = real_paths(hidden_as_named, root);
    make_container_dir(container_dir, quota);
    std::vector<std::string> points;
    if (!root.is_image()) points = layered_mounts(hidden);
    std::ofstream list(container_dir + kLayerList);
    for (const std::string& point : points) list << point << "\n";
    list.close();
    if (!list) fail("writing " + container_dir + kLayerList);
    std::vector<Layer> layers = make_layers(container_dir, points, root);
    fill_root(layers.front(), root);
    show(container_dir, shown, &layers);
    for (const std::string& folder : hidden) {
        const bool gone = is_below(folder, "/tmp") || is_below(folder, "/run");
        if (!gone || (!shown.empty() && is_below(folder, shown))) hide(layers, folder, root);
    }
    return layers;
}

std::vector<Layer> renew_layers(const std::string& container_dir, const std::string& shown,
                                const ServerRoot& root) {
    std::vector<Layer> layers = make_layers(container_dir, listed_points(container_dir), root);
    for (const char* folder : {"/tmp", "/run"}) remove_tree(layers.front().upper + folder);
    fill_root(layers.front(), root);
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

void name_own_host(const Layer& layer, const std::string& hostname, const ServerRoot& root) {
    if (!root.has("/etc"))
        make_folder(layer.upper + "/etc", 0755, 0, 0);
    else
        copy_up_parents(layer, "/etc");
    std::string text = read_text_file(root.on_host("/etc/hosts"));
    if (text.empty() && root.is_image()) text = "127.0.0.1 localhost\n::1 localhost\n";
    std::ofstream hosts(layer.upper + "/etc/hosts", std::ios::binary | std::ios::trunc);
    hosts << text << "127.0.1.1 " << hostname << "\n";
}

void lock_accounts(const Layer& layer, const ServerRoot& root) {
    const std::optional<std::string> path = root.resolve("/etc/passwd"), kept = root.resolve("/etc/shadow");
    if (!path || (kept && !fs::exists(layer.upper + *kept))) return;
    struct stat info {};
    const std::string on_host = root.on_host(*path), inside = layer.upper + *path;
    if (::stat(on_host.c_str(), &info) != 0) fail(on_host);
    copy_up_parents(layer, fs::path(*path).parent_path().string());
    make_empty_file(inside, info);
    std::ifstream accounts(on_host, std::ios::binary);
    if (!accounts) fail(on_host);
    std::ofstream locked(inside, std::ios::binary | std::ios::app);
    for (std::string line; std::getline(accounts, line);) {
        const size_t name = line.find(':');
        if (name != std::string::npos && line.compare(name, 3, ":x:") == 0) line[name + 1] = '*';
        locked << line << (accounts.eof() ? "" : "\n");
    }
    locked.close();
    if (!locked) fail("writing " + inside);
}

}  // namespace crane::checkpoint
