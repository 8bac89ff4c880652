// Images of a domain's server: what CRIU does not know of a container of ours, around what it does
// (criu.hpp).
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file_key.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/domain_files.hpp"
#include "checkpoint/domain_host.hpp"
#include "checkpoint/domain_launch.hpp"
#include "checkpoint/event_counts.hpp"
#include "checkpoint/fail_point.hpp"
#include "checkpoint/file_identities.hpp"
#include "checkpoint/kept_times.hpp"
#include "checkpoint/own_files.hpp"
#include "checkpoint/processes.hpp"
#include "checkpoint/server_files.hpp"
#include "checkpoint/stopwatch.hpp"

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kAboutFile[] = "/crane.json";
constexpr char kShimFile[] = "libcrane.so";
constexpr char kIdentitiesFile[] = "/identities";
constexpr char kSharedMemoryFile[] = "/dev-shm.tar.zst";
constexpr char kSharedMemoryUnsettledFile[] = "/dev-shm.unsettled";
constexpr size_t kMaxAbout = 16 * 1024 * 1024;
constexpr size_t kMaxNames = 16 * 1024 * 1024;
constexpr size_t kMaxIdentities = 256 * 1024 * 1024;
constexpr int kServerPid = 2;

/// Earlier versions' reserved descriptors began there, and what is noted are numbers.
constexpr int kBegunAt = 1000;

/// Beside CRIU's files: what a restore must know before it.
struct About {
    long last_pid = 0;
    uintmax_t stdout_bytes = 0, stderr_bytes = 0;  ///< open files must have their size again
    struct Inherited {
        int place;  ///< among the reserved descriptors
        std::string key;
    };
    std::vector<Inherited> inherited;
    nlohmann::json unlinked = nlohmann::json::array();  ///< unlinked_times()
    nlohmann::json traces = nlohmann::json::object();   ///< size by name, of what it has open in /run/crane
};

void write_about(const std::string& folder, const About& about) {
    nlohmann::json inherited = nlohmann::json::array();
    for (const About::Inherited& one : about.inherited)
        inherited.push_back({{"number", kBegunAt + one.place}, {"key", one.key}});
    std::ofstream file(folder + kAboutFile, std::ios::trunc);
    file << nlohmann::json{{"last_pid", about.last_pid},
                           {"stdout_bytes", about.stdout_bytes},
                           {"stderr_bytes", about.stderr_bytes},
                           {"unlinked", about.unlinked},
                           {"traces", about.traces},
                           {"inherited", inherited}};
    file.close();
    if (!file) throw CriuError("writing " + folder + kAboutFile + ": " + std::strerror(errno), false);
}

About read_about(const std::string& folder) {
    About about;
    try {
        const auto json = nlohmann::json::parse(read_text_file(folder + kAboutFile, kMaxAbout));
        about.last_pid = json.at("last_pid");
        about.stdout_bytes = json.at("stdout_bytes");
        about.stderr_bytes = json.at("stderr_bytes");
        about.unlinked = json.at("unlinked");
        about.traces = json.value("traces", nlohmann::json::object());
        for (const auto& one : json.at("inherited"))
            about.inherited.push_back({one.at("number").get<int>() % kBegunAt, one.at("key")});
    } catch (const nlohmann::json::exception&) {
        throw CriuError(folder + " holds no image of a server: it is incomplete or something else", false);
    }
    return about;
}

/// All but the logs, which say what went wrong.
void discard_image(const std::string& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() != ".log") fs::remove_all(entry.path(), ignored);
}

void make_folder(const std::string& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!error) fs::permissions(folder, fs::perms::owner_all, error);  // it holds the server's memory
    if (error) throw CriuError("making " + folder + ": " + error.message(), false);
    if (!fs::is_empty(folder)) throw CriuError(folder + " is not empty: give another folder", false);
}

void give_size(const std::string& path, uintmax_t bytes) {
    std::error_code error;
    fs::resize_file(path, bytes, error);
    if (error) throw CriuError("giving " + path + " its size again: " + error.message(), false);
}

/// A trace (docs/debugging.md) stays on its host: what is written to it after a restore follows a hole.
nlohmann::json sizes_of_traces(const std::string& shared) {
    nlohmann::json sizes = nlohmann::json::object();
    for (const auto& entry : fs::directory_iterator(shared))
        if (entry.symlink_status().type() == fs::file_type::regular && entry.path().filename() != kShimFile &&
            entry.path().filename() != fs::path(kFilesAgain).filename())
            sizes[entry.path().filename()] = entry.file_size();
    return sizes;
}

/// As the server's first process had made it: CRIU compares.
constexpr mode_t kTraceMode = 0644;

void make_traces(const Folder& shared, const nlohmann::json& sizes) {
    for (const auto& [name, bytes] : sizes.items()) {
        const auto trace = shared.make(fs::path(name).filename(), kTraceMode);
        if (::ftruncate(trace->fd(), bytes.get<off_t>()) != 0)
            throw CriuError(
                "giving " + shared.path() + "/" + name + " its size again: " + std::strerror(errno), false);
    }
}

std::string root_of(pid_t init) {
    return "/proc/" + std::to_string(init) + "/root";
}

/// The container's own /dev/shm: a tmpfs, which no layer holds.
std::string shared_memory_of(pid_t init) {
    return root_of(init) + "/dev/shm";
}

std::string proc_of(pid_t init) {
    return root_of(init) + "/proc";
}

void keep_shared_memory(pid_t init, const std::string& folder) {
    write_file(folder + kSharedMemoryUnsettledFile, unsettled_in_folder(shared_memory_of(init)));
    pack_folder(shared_memory_of(init), folder + kSharedMemoryFile, Pace::kWaitedFor);
}

void bring_shared_memory(const std::string& folder, pid_t init) {
    unpack_folder(folder + kSharedMemoryFile, shared_memory_of(init));
    unsettle(shared_memory_of(init), read_text_file(folder + kSharedMemoryUnsettledFile, kMaxNames));
}

/// CRIU leaves out what inotify has told the server and it has not read, and only warns of it.
void check_watches(const std::string& folder) {
    constexpr size_t kMostLog = 16 * 1024 * 1024;
    if (read_text_file(folder + "/dump.log", kMostLog).find("inotify events will be dropped") !=
        std::string::npos)
        throw std::runtime_error(
            "the server has not read yet what inotify has told it, which no image keeps");
}

std::string helper_beside(const std::string& init_path) {
    return fs::path(init_path).replace_filename("crane-criu");
}

}  // namespace

ImageReport DomainHost::take_image(const std::string& folder, const std::function<void()>& while_frozen,
                                   const std::vector<std::string>& watched) {
    if (spec_.isolation != Isolation::kLxc)
        throw CriuError("images are taken of containers alone: start the server without --isolation none",
                        false);
    if (init_pid() == 0) throw CriuError("no image can be taken: the server does not run", false);
    make_folder(folder);
    const DomainPaths paths(spec_.state_dir);
    About about;
    for (const DomainSpec::Inherited& one : spec_.inherited)
        if (const std::string key = criu_key(one.fd); !key.empty()) about.inherited.push_back({one.as, key});
    CriuJob job;
    job.watched = watched;
    job.init = init_pid();
    job.helper = helper_beside(spec_.init_path);
    job.folder = folder;
    ImageReport report;
    job.while_frozen = [&] {
        const Stopwatch files;
        about.stdout_bytes = fs::file_size(paths.stdout_file);
        about.stderr_bytes = fs::file_size(paths.stderr_file);
        check_own_files(spec_);
        check_event_counts(proc_of(init_pid()));
        check_watches(folder);
        about.unlinked = unlinked_times(proc_of(init_pid()));
        about.traces = sizes_of_traces(paths.shared);
        keep_shared_memory(init_pid(), folder);
        write_file(folder + kIdentitiesFile, file_identities(root_of(init_pid()), layer_places(spec_)));
        // A server that is traced may write where the shim lies.
        if (spec_.schedule)
            Folder(folder).copy(*Folder(paths.shared).open(kShimFile), kShimFile, kProgramMode);
        if (while_frozen) while_frozen();
        report.files_us = files.us();
    };
    try {
        const CriuOutcome outcome = run_criu(job);
        about.last_pid = outcome.last_pid;
        write_about(folder, about);
        report.wall_us = outcome.wall_us;
        report.frozen_us = outcome.frozen_us;
        return report;
    } catch (const CriuError&) {
        discard_image(folder);
        throw;
    }
}

ImageReport DomainHost::restore(const std::string& folder, const std::function<void()>& while_frozen) {
    if (spec_.isolation != Isolation::kLxc)
        throw CriuError("a server is restored in a container alone, not with --isolation none", false);
    const About about = read_about(folder);
    try {
        check_own_files(spec_);
    } catch (const std::runtime_error& error) {
        throw CriuError(error.what(), false);
    }
    CriuJob job;
    job.restore = true;
    job.helper = helper_beside(spec_.init_path);
    job.folder = folder;
    job.last_pid = about.last_pid;
    for (const About::Inherited& had : about.inherited)
        for (const DomainSpec::Inherited& now : spec_.inherited)
            if (had.place == now.as) job.replacements.push_back({had.key, now.fd});
    const DomainPaths paths(spec_.state_dir);
    ImageReport report;
    bool refused = false;
    const auto bring = [&](pid_t init) {
        give_size(paths.stdout_file, about.stdout_bytes);
        give_size(paths.stderr_file, about.stderr_bytes);
        const Folder shared(paths.shared);
        make_traces(shared, about.traces);
        bring_shared_memory(folder, init);
        // Which the processes have mapped: it may be of an earlier version.
        if (const std::string shim = folder + "/" + kShimFile; fs::exists(shim))
            shared.copy(shim, kShimFile, kProgramMode);
        const FolderTimes folders(paths.container);
        job.while_frozen = [&] {
            folders.set_again();
            set_unlinked_times(proc_of(init), about.unlinked);
            tell_identities(root_of(init), read_text_file(folder + kIdentitiesFile, kMaxIdentities), shared,
                            fs::path(kFilesAgain).filename());
            if (while_frozen) while_frozen();
            fail_point("restore.frozen");
        };
        job.init = init;
        try {
            report.wall_us = run_criu(job).wall_us;
        } catch (const CriuError&) {
            refused = true;
            throw;
        }
        return kServerPid;
    };
    try {
        launch(Files::kImaged, bring);
    } catch (const std::runtime_error& error) {
        if (refused) throw CriuError(error.what(), false);
        throw;
    }
    return report;
}

}  // namespace crane::checkpoint
