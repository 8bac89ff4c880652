// Removing what a domain left, found by what identifies it and by nothing else.
#include <spdlog/spdlog.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "checkpoint/domain_launch.hpp"
#include "checkpoint/folder_walk.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/processes.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr int kKillTimeoutMs = 3000;

// LXC keeps a lock file per container in /run, below the path of the container's folder. The folders above
// stay, empty: another replica's lxc-start, which makes them one by one, would fail if they went meanwhile.
void remove_lxc_lock(const std::string& lxc_dir) {
    std::error_code ignored;
    fs::remove_all("/run/lxc/lock" + lxc_dir, ignored);
}

void remove_cgroup(const std::string& folder) {
    std::vector<pid_t> pids;
    std::ifstream procs(folder + "/cgroup.procs");
    for (pid_t pid = 0; procs >> pid;)
        if (pid != ::getpid()) pids.push_back(pid);
    kill_processes(pids, kKillTimeoutMs);
    // The kernel counts a process out of its cgroup a moment after its end.
    for (int attempt = 0; attempt < 50 && ::rmdir(folder.c_str()) != 0 && errno == EBUSY; ++attempt)
        ::usleep(10000);
}

// LXC adds -1, -2, ... when the cgroup of a killed predecessor was still there.
bool is_cgroup_of(const std::string& folder_name, const std::string& name) {
    for (const std::string& own : {"lxc.payload." + name, "lxc.monitor." + name}) {
        if (folder_name == own) return true;
        if (folder_name.compare(0, own.size() + 1, own + "-") == 0 && folder_name.size() > own.size() + 1 &&
            folder_name.find_first_not_of("0123456789", own.size() + 1) == std::string::npos)
            return true;
    }
    return false;
}

/// Folders of the container below `folder`, wherever the starter's own cgroup put them; children come first.
/// A cgroup may vanish while it is looked into, and what is left is gone through all the same.
void find_cgroups(const fs::path& folder, const std::string& name, bool inside, int depth,
                  std::vector<std::string>& found) {
    constexpr int kMaxDepth = 16;
    std::error_code ignored;
    std::vector<fs::path> below;
    for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
         entry.increment(ignored))
        if (std::error_code gone; entry->symlink_status(gone).type() == fs::file_type::directory)
            below.push_back(entry->path());
    for (const fs::path& one : below) {
        const bool own = inside || is_cgroup_of(one.filename().string(), name);
        if (depth < kMaxDepth) find_cgroups(one, name, own, depth + 1, found);
        if (own) found.push_back(one.string());
    }
}

void remove_cgroups(const std::string& name) {
    std::vector<std::string> found;
    for (const Mount& mount : read_mounts())
        if (mount.type == "cgroup" || mount.type == "cgroup2")
            find_cgroups(mount.point, name, false, 0, found);
    for (const std::string& folder : found) remove_cgroup(folder);
}

// The state directory itself, or what is kept in it, may be on disks of their own: those are the operator's.
void unmount_container(const DomainSpec& spec) {
    const DomainPaths paths(spec.state_dir);
    for (const Mount& mount : read_mounts())
        if (is_below(mount.point, paths.container) || mount.point == paths.base)
            ::umount2(mount.point.c_str(), MNT_DETACH);
}

}  // namespace

void remove_container_traces(const DomainSpec& spec) {
    remove_cgroups(spec.name);
    remove_lxc_lock(DomainPaths(spec.state_dir).lxc_dir);
}

void remove_unpacked_images(const DomainSpec& spec) {
    const DomainPaths paths(spec.state_dir);
    for (const std::string& path : {paths.taken_image, paths.restored_image}) {
        try {
            remove_tree(path);
        } catch (const std::runtime_error& error) {
            spdlog::warn("what an earlier craned has left takes up room: {}", error.what());
        }
    }
}

void release_files(const DomainSpec& spec) {
    if (spec.disk_quota) unmount_container(spec);
}

void remove_leftovers(const DomainSpec& spec) {
    const DomainPaths paths(spec.state_dir);
    const std::string marker = "CRANE_TRANSPORT=" + paths.shared + std::string(1, '\0');
    const auto is_monitor = [&](const std::vector<std::string>& words) {
        return words.size() > 5 && words[0].ends_with("lxc-start") && words[3] == spec.name &&
               words[5] == paths.lxc_dir;
    };
    const auto is_init = [&](const std::vector<std::string>& words) {
        return words.size() == 3 && words[0].ends_with("crane-init") && words[1] == paths.domain_file;
    };
    std::vector<pid_t> pids = find_processes([&](pid_t pid) {
        const std::vector<std::string> words = command_line(pid);
        if (is_monitor(words) || is_init(words)) return true;
        const std::string environment = read_text_file("/proc/" + std::to_string(pid) + "/environ");
        return environment.find(marker) != std::string::npos;
    });
    std::vector<pid_t> all;
    for (const pid_t pid : pids)
        if (is_monitor(command_line(pid)) || is_init(command_line(pid)))
            for (const pid_t below : descendants_of(pid)) all.push_back(below);
    all.insert(all.end(), pids.begin(), pids.end());
    kill_processes(all, kKillTimeoutMs);
    remove_container_traces(spec);
    unmount_container(spec);
}

}  // namespace crane::checkpoint
