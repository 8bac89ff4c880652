#include "checkpoint/domain_launch.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "checkpoint/base_image.hpp"
#include "checkpoint/container_config.hpp"
#include "checkpoint/domain_file.hpp"
#include "checkpoint/domain_files.hpp"
#include "checkpoint/fresh_root.hpp"
#include "checkpoint/hidden_paths.hpp"
#include "checkpoint/identity.hpp"
#include "checkpoint/mounts.hpp"
#include "checkpoint/own_files.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/program_check.hpp"
#include "checkpoint/server_files.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr long kOverlayMagic = 0x794c7630, kNfsMagic = 0x6969, kFuseMagic = 0x65735546;
constexpr off_t kLongestOutput = 1LL << 40;  // ext4 ends who writes beyond 16 TiB
constexpr char kPlainPathCharacters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-@";

void ensure_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) throw std::runtime_error("creating " + path + ": " + std::strerror(errno));
    ::close(fd);
}

// By unlinking: ext4 waits for the disk when a file is truncated or renamed over, half a second on a busy
// one.
void make_empty_file(const std::string& path) {
    ::unlink(path.c_str());
    ensure_file(path);
}

// Where the files are fresh the server says all of it again: so it is as long on every replica. What was
// there is kept beside it, for whoever looks why that one was lost.
void begin_output(const std::string& path, Files files) {
    struct stat info {};
    const bool there = ::stat(path.c_str(), &info) == 0 && info.st_size > 0;
    if (there && (files == Files::kFresh || (files == Files::kKept && info.st_size > kLongestOutput))) {
        const std::string before = path + ".1";
        ::unlink(before.c_str());
        if (::rename(path.c_str(), before.c_str()) != 0)
            throw std::runtime_error("renaming " + path + " to " + before + ": " + std::strerror(errno));
    }
    ensure_file(path);
}

bool starts_empty(const std::string& path) {
    return is_below(path, "/tmp") || is_below(path, "/run");
}

// A working directory in /tmp or /run is shown in the domain like the rest of the host's files.
bool needs_own_layer(const DomainSpec& spec) {
    return spec.image.empty() && starts_empty(spec.cwd) && spec.cwd != "/tmp" && spec.cwd != "/run";
}

void check_visible(const DomainSpec& spec, const std::string& program) {
    const auto visible = [&](const std::string& path) {
        return !starts_empty(path) || (needs_own_layer(spec) && is_below(path, spec.cwd));
    };
    if (!visible(program))
        throw std::runtime_error(
            "the program is " + program +
            ", but /tmp and /run start empty in the container (but for the working directory): "
            "put it elsewhere, or use --isolation none");
    for (const std::string& word : spec.argv) {
        const size_t path = word.find("/tmp/");
        if (path != std::string::npos && fs::exists(root_of(spec).on_host(word.substr(path))) &&
            !visible(word.substr(path)))
            spdlog::warn("the server's argument {} names a file in /tmp, which starts empty in the container",
                         word);
    }
}

void check_container_host(const DomainSpec& spec) {
    if (::geteuid() != 0)
        throw std::runtime_error("a container needs root: run as root, or with --isolation none");
    if (::access("/usr/bin/lxc-start", X_OK) != 0)
        throw std::runtime_error(
            "lxc-start is not installed: run scripts/install_deps.sh (apt-get install lxc)");
    if (spec.state_dir.find_first_not_of(kPlainPathCharacters) != std::string::npos)
        throw std::runtime_error("the state directory " + spec.state_dir +
                                 " may hold only letters, digits and /._+-@ in its path");
    struct statfs info {};
    if (::statfs(spec.state_dir.c_str(), &info) == 0 &&
        (info.f_type == kOverlayMagic || info.f_type == kNfsMagic || info.f_type == kFuseMagic))
        throw std::runtime_error(
            "the state directory " + spec.state_dir +
            " is on overlayfs, NFS or FUSE, which cannot hold a container's changes: give one "
            "on ext4, xfs, btrfs or tmpfs with --state-dir");
}

std::vector<std::string> environment_for(const DomainSpec& spec, const std::string& shared) {
    std::vector<std::string> environment;
    std::string preload = shared + "/libcrane.so";
    for (const std::string& entry : spec.environment) {
        if (spec.schedule && entry.compare(0, 11, "LD_PRELOAD=") == 0)
            preload += ":" + entry.substr(11);
        else
            environment.push_back(entry);
    }
    if (spec.schedule) environment.push_back("LD_PRELOAD=" + preload);
    environment.push_back("CRANE_TRANSPORT=" + shared);
    add_user_variables(spec, &environment);
    return environment;
}

DomainFile domain_file_for(const DomainSpec& spec, const DomainPaths& paths, Files files) {
    const bool contained = spec.isolation == Isolation::kLxc;
    const std::string init_dir = kInitInside;
    DomainFile domain;
    domain.argv = spec.argv;
    domain.environment = environment_for(spec, contained ? kSharedInside : paths.shared);
    domain.cwd = spec.cwd;
    domain.stdout_path = contained ? init_dir + "/stdout" : paths.stdout_file;
    domain.stderr_path = contained ? init_dir + "/stderr" : paths.stderr_file;
    domain.exit_status_path = contained ? init_dir + "/exit-status" : paths.exit_status;
    for (const DomainSpec::Inherited& one : spec.inherited) domain.inherited.push_back(one.as);
    domain.contained = contained;
    domain.restored = files == Files::kImaged;
    domain.identity = identity_of(spec);
    domain.confinement = spec.confinement;
    domain.loopback_up = contained && !spec.host_network;
    domain.own_addresses = spec.own_addresses;
    if (spec.first_cpu) domain.cpu = *spec.first_cpu;
    if (contained && spec.schedule) domain.machine = spec.machine;
    return domain;
}

bool apparmor_enabled() {
    const std::string text = read_text_file("/sys/module/apparmor/parameters/enabled");
    return !text.empty() && text[0] == 'Y';
}

// "" where no controller of devices is mounted.
std::string devices_controller() {
    bool unified = false;
    for (const Mount& mount : read_mounts()) {
        if (mount.type == "cgroup" && mount.point.ends_with("/devices")) return "cgroup";
        unified = unified || (mount.type == "cgroup2" && mount.point == "/sys/fs/cgroup");
    }
    return unified ? "cgroup2" : "";
}

ContainerPlan::Device device_at(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || !(S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)))
        throw std::runtime_error(path + ", which the server is to have, is not a device of this host");
    return {path, S_ISCHR(info.st_mode) ? 'c' : 'b', major(info.st_rdev), minor(info.st_rdev)};
}

std::vector<std::string> prepare_container(const DomainSpec& spec, const DomainPaths& paths, Files files) {
    ContainerPlan plan;
    plan.hostname = spec.hostname;
    const std::string shown = needs_own_layer(spec) ? spec.cwd : std::string();
    const bool fresh = files == Files::kFresh;
    const uint64_t began_ns = file_clock_ns();
    const ServerRoot root = root_of(spec);
    plan.layers = fresh ? make_fresh_layers(paths.container, hidden_paths(spec), shown, spec.disk_quota, root)
                  : files == Files::kKept ? renew_layers(paths.container, shown, root)
                                          : imaged_layers(paths.container, shown, root);
    if (fresh && !spec.host_network) name_own_host(plan.layers.front(), spec.hostname, root);
    if (fresh) lock_accounts(plan.layers.front(), root);
    plan.host_network = spec.host_network;
    plan.apparmor = apparmor_enabled();
    const std::string init_dir = kInitInside;
    plan.devices_controller = devices_controller();
    for (const std::string& path : spec.confinement.devices) plan.devices.push_back(device_at(path));
    // A trace of the schedule is written beside the shim; else nothing is, since this is the host's memory.
    const bool traced = std::ranges::any_of(
        spec.environment, [](const std::string& entry) { return entry.starts_with("CRANE_TRACE="); });
    plan.binds = {{paths.shared, kSharedInside, traced},
                  {paths.stdout_file, init_dir + "/stdout"},
                  {paths.stderr_file, init_dir + "/stderr"},
                  {paths.exit_status, init_dir + "/exit-status"}};
    lay_out_init(plan.layers.front().upper, spec.init_path, encode(domain_file_for(spec, paths, files)));
    if (files != Files::kImaged) give_fixed_times(plan.layers.front());
    // Also elsewhere: a host's name in /etc, folders that had to be copied, files that are hidden.
    if (fresh) settle_times(paths.container, began_ns, kFreshTimeS * 1'000'000'000ULL);
    fs::create_directories(paths.lxc_dir);
    write_file(paths.lxc_config, container_config(plan));
    return {
        "/usr/bin/lxc-start", "-F", "-n",          spec.name, "-P",   paths.lxc_dir, "-f",
        paths.lxc_config,     "-o", paths.lxc_log, "-l",      "WARN", "--",          init_dir + "/crane-init",
        init_dir + "/domain"};
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) throw std::runtime_error("writing " + path + ": " + std::strerror(errno));
}

DomainPaths::DomainPaths(const std::string& state_dir)
    : shared(state_dir + "/shared"),
      container(state_dir + "/container"),
      stdout_file(state_dir + "/stdout"),
      stderr_file(state_dir + "/stderr"),
      exit_status(state_dir + "/exit-status"),
      lxc_dir(container + "/lxc"),
      lxc_config(container + "/config"),
      lxc_log(container + "/lxc.log"),
      domain_file(container + "/domain"),
      base(state_dir + "/base"),
      taken_image(state_dir + "/image"),
      restored_image(state_dir + "/restored") {}

void check_spec(const DomainSpec& spec) {
    if (spec.argv.empty()) throw std::runtime_error("no server command was given");
    if (spec.state_dir.empty() || spec.state_dir[0] != '/')
        throw std::runtime_error("the state directory must be an absolute path: " + spec.state_dir);
    if (spec.name.empty() || spec.name.find_first_not_of(kPlainPathCharacters + 0) != std::string::npos ||
        spec.name.find('/') != std::string::npos)
        throw std::runtime_error("not a usable container name: " + spec.name);
    if (::access(spec.init_path.c_str(), X_OK) != 0)
        throw std::runtime_error("crane-init is not at " + spec.init_path + ": run make, or reinstall Crane");
    if (spec.schedule && ::access(spec.shim_path.c_str(), R_OK) != 0)
        throw std::runtime_error("libcrane.so is not at " + spec.shim_path +
                                 ": run make, or reinstall Crane");
    const ServerRoot root = root_of(spec);
    if (!fs::is_directory(root.on_host(spec.cwd)))
        throw std::runtime_error("the working directory " + spec.cwd + " does not exist" +
                                 (root.is_image() ? " in the base image" : ""));
    const ProgramCheck check = check_program(spec.argv[0], spec.cwd, spec.environment, root);
    if (!check.ok && (spec.schedule || check.path.empty())) throw std::runtime_error(check.message);
    check_identity(spec);
    if (spec.isolation == Isolation::kLxc) {
        check_visible(spec, check.path);
        check_container_host(spec);
    }
}

std::vector<std::string> lost_confinement(const DomainSpec& spec) {
    std::vector<std::string> lost;
    if (spec.isolation == Isolation::kNone) {
        lost.emplace_back(
            "without a container the server is not confined: it can do on this host what its user can");
        return lost;
    }
    if (devices_controller().empty())
        lost.emplace_back("this host has no devices cgroup: devices are kept away by mount options alone");
    if (spec.host_network) lost.emplace_back("the server shares the host's network");
    std::ranges::move(missing_exceptions(spec.confinement), std::back_inserter(lost));
    return lost;
}

void check_own_files(const DomainSpec& spec) {
    check_own_files(present_layers(DomainPaths(spec.state_dir).container, "").front().upper);
}

std::vector<LayerPlace> layer_places(const DomainSpec& spec) {
    std::vector<LayerPlace> places;
    const std::string shown = needs_own_layer(spec) ? spec.cwd : std::string();
    for (const Layer& layer : present_layers(DomainPaths(spec.state_dir).container, shown))
        places.push_back({layer.upper, layer.point == "/" ? "" : layer.point});
    return places;
}

std::vector<std::string> prepare_launch(const DomainSpec& spec, Files files) {
    const DomainPaths paths(spec.state_dir);
    fs::create_directories(paths.shared);
    begin_output(paths.stdout_file, files);
    begin_output(paths.stderr_file, files);
    make_empty_file(paths.exit_status);
    give_to_server(spec, {paths.stdout_file, paths.stderr_file});
    // Under a new inode: a process that still maps the old file keeps it.
    if (spec.schedule) Folder(paths.shared).copy(spec.shim_path, "libcrane.so", kProgramMode);
    if (spec.isolation == Isolation::kLxc) return prepare_container(spec, paths, files);
    spdlog::warn(
        "isolation none: the server shares the host's files, network, pids and /tmp. What one replica writes "
        "the others see, pids differ between replicas, and killing crane-init by hand may leave processes "
        "behind; checkpoints are not possible");
    fs::create_directories(paths.container);
    write_file(paths.domain_file, encode(domain_file_for(spec, paths, files)));
    return {spec.init_path, paths.domain_file};
}

}  // namespace crane::checkpoint
