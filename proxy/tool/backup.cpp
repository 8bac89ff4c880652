// crane backup: a checkpoint of a cluster, by default the newest, as one file, from which crane restore makes
// a new cluster.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "checkpoint/checkpoint_store.hpp"
#include "checkpoint/command.hpp"
#include "proxy/checkpoint_state.hpp"
#include "proxy/tool/backup_record.hpp"
#include "proxy/tool/progress.hpp"
#include "proxy/tool/time_words.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using checkpoint::CheckpointStore;
using checkpoint::StoredCheckpoint;
using nlohmann::json;

namespace {

constexpr char kTar[] = "/usr/bin/tar";
constexpr int kChanged = 1;  ///< tar's status when a file lost a name meanwhile

std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return in ? text.str() : std::string();
}

/// One checkpoint of one replica. A replica that runs may drop it at any time: open files stay what they are.
struct Chosen {
    ReplicaDir replica;
    StoredCheckpoint checkpoint;
    std::vector<std::pair<std::string, std::unique_ptr<checkpoint::File>>> files;  ///< by name
};

/// Empty: as the manifest says.
std::string damage(const Chosen& chosen) {
    if (checkpoint::decode_manifest(chosen.files[0].second->read(0, checkpoint::kMaxManifestBytes)).id !=
        chosen.checkpoint.id)
        return "another has taken its place";
    Progress progress("checking the checkpoint", chosen.checkpoint.manifest.bytes());
    const checkpoint::Stop counting = progress.counting();
    for (size_t i = 0; i < chosen.checkpoint.manifest.files.size(); ++i) {
        const checkpoint::CheckpointFile& told = chosen.checkpoint.manifest.files[i];
        const checkpoint::File& data = *chosen.files[i + 1].second;
        if (data.bytes() != told.bytes || checkpoint::sum_of_file(data, counting) != told.xxh128)
            return data.path() + " is not as its manifest says";
    }
    return "";
}

/// Its files, open.
std::vector<std::pair<std::string, std::unique_ptr<checkpoint::File>>> open_files(
    const StoredCheckpoint& one) {
    std::vector<std::string> names{checkpoint::kManifestName};
    for (const checkpoint::CheckpointFile& file : one.manifest.files) names.push_back(file.name);
    std::vector<std::pair<std::string, std::unique_ptr<checkpoint::File>>> out;
    out.reserve(names.size());
    for (const std::string& name : names)
        out.emplace_back(name, std::make_unique<checkpoint::File>(one.path + "/" + name, O_RDONLY));
    return out;
}

/// Replicas here whose checkpoints count: where one was made a cluster of its own, that one alone.
std::vector<ReplicaDir> sources(const std::string& state_dir) {
    std::vector<ReplicaDir> all = find_replicas(state_dir), recovered;
    for (const ReplicaDir& one : all)
        if (fs::exists(one.path + "/recovered")) recovered.push_back(one);
    return recovered.empty() ? all : recovered;
}

/// The newest that is whole, or that of `entry`, of all replicas here. `passed_over`: why others were not
/// taken.
std::optional<Chosen> choose(const std::string& state_dir, uint64_t entry,
                             std::vector<std::string>& passed_over) {
    std::vector<std::pair<ReplicaDir, StoredCheckpoint>> all;
    for (const ReplicaDir& replica : sources(state_dir))
        for (StoredCheckpoint& one : CheckpointStore(replica.path + "/checkpoints").survey())
            if (entry == 0 || one.index == entry) all.emplace_back(replica, std::move(one));
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second.index > b.second.index; });
    for (auto& [replica, one] : all) {
        std::string wrong = one.error;
        try {
            if (wrong.empty()) {
                Chosen chosen{replica, one, open_files(one)};
                wrong = damage(chosen);
                if (wrong.empty()) return chosen;
            }
        } catch (const std::exception& error) {
            wrong = error.what();
        }
        passed_over.push_back("the checkpoint of entry " + std::to_string(one.index) + " of replica " +
                              std::to_string(replica.id) + " is passed over: " + wrong);
    }
    return std::nullopt;
}

/// How crane-run started the server, where it did: what is needed to start it so again.
json launched(const std::string& replica_dir) {
    const json run = json::parse(text_of(fs::path(replica_dir).parent_path() / "run.json"), nullptr, false);
    if (!run.is_object() || !run.contains("identity")) return nullptr;
    json out;
    for (const char* key : {"identity", "environment", "env", "port_map"})
        if (run.contains(key)) out[key] = run[key];
    return out;
}

BackupRecord describe(const Chosen& chosen, const std::string& config) {
    CheckpointState state;
    if (const std::string wrong = from_json(chosen.checkpoint.manifest.state, state); !wrong.empty())
        throw std::runtime_error(chosen.checkpoint.path + ": " + wrong);
    BackupRecord record;
    record.crane = CRANE_VERSION;
    record.cluster = state.cluster;
    record.index = chosen.checkpoint.index;
    record.id = chosen.checkpoint.id;
    record.bytes = chosen.checkpoint.manifest.bytes();
    record.taken_s = static_cast<uint64_t>(chosen.checkpoint.since);
    record.launched = launched(chosen.replica.path);
    record.config = text_of(config);
    record.settings = backup_settings(load_config(config));
    return record;
}

std::runtime_error cannot_write(const std::string& file, int reason) {
    return std::runtime_error("cannot write " + file + ": " + strerror(reason) +
                              ": give a place that can be written, with room for all that the server has "
                              "written");
}

/// A file of its own beside FILE, until it is whole and on the disk; then FILE, which must not be there.
class Unfinished {
  public:
    explicit Unfinished(const std::string& file) : file_(file), path_(file + ".part-XXXXXX") {
        const int fd = mkstemp(path_.data());  // its owner's alone: all that the server keeps is in it
        if (fd < 0) throw cannot_write(file, errno);
        close(fd);
    }
    ~Unfinished() { unlink(path_.c_str()); }
    Unfinished(const Unfinished&) = delete;
    Unfinished& operator=(const Unfinished&) = delete;
    const std::string& path() const { return path_; }

    void publish() {
        const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) != 0) throw cannot_write(file_, errno);
        close(fd);
        // Not every file system can rename without replacing, or give a second name.
        if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, file_.c_str(), RENAME_NOREPLACE) != 0) {
            if (errno == EEXIST || fs::exists(fs::symlink_status(file_))) throw cannot_write(file_, EEXIST);
            if (rename(path_.c_str(), file_.c_str()) != 0) throw cannot_write(file_, errno);
        }
        checkpoint::sync_folder(fs::absolute(file_).parent_path());
    }

  private:
    std::string file_, path_;
};

/// Of open files, under the names that they had: tar is shown the descriptors.
void write_archive(const Chosen& chosen, const BackupRecord& record, const std::string& file) {
    const std::string text = to_json(record).dump() + "\n";
    const int memory = memfd_create(kRecordName, MFD_CLOEXEC);
    if (memory < 0 || write(memory, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw std::runtime_error(std::string("no memory for the backup's record: ") + strerror(errno));
    Unfinished unfinished(file);
    std::vector<std::string> words{kTar,
                                   "--create",
                                   "--file=" + unfinished.path(),
                                   "--force-local",
                                   "--format=posix",
                                   "--owner=0",
                                   "--group=0",
                                   "--numeric-owner",
                                   "--mode=600",
                                   "--dereference",
                                   "--absolute-names"};
    const std::string own = "/proc/" + std::to_string(getpid()) + "/fd/";
    std::vector<std::string> paths;
    const auto add = [&](int fd, const std::string& name) {
        paths.push_back(own + std::to_string(fd));
        words.push_back("--transform=s|^" + paths.back() + "$|" + name + "|");
    };
    add(memory, kRecordName);
    for (const auto& [name, open] : chosen.files) add(open->fd(), name);
    words.emplace_back("--");
    words.insert(words.end(), paths.begin(), paths.end());
    // A checkpoint that its replica drops meanwhile has lost a name and nothing else: what is in it was
    // summed.
    {
        Progress progress("writing " + file, record.bytes);
        checkpoint::run_command(words, "writing " + file, kChanged, progress.watching([&unfinished] {
            std::error_code ignored;
            return fs::file_size(unfinished.path(), ignored);
        }));
    }
    close(memory);
    unfinished.publish();
}

/// Whether any replica here runs, be it that it does not answer.
bool runs(const std::string& state_dir) {
    const json rows = ask_all(state_dir);
    return std::any_of(rows.begin(), rows.end(), [](const json& row) {
        return row.value("alive", false) || row.value("error", "") != "not running";
    });
}

/// The configuration of a replica here, before anything is done that it would have been needed for.
std::string config_of(const std::string& state_dir, const BackupRequest& request) {
    const std::string own = sources(state_dir).front().path;
    std::string path = request.config.empty() ? config_file(own) : request.config;
    if (path.empty())
        throw std::runtime_error("neither " + own + "/craned.toml nor " + packaged_config(own) +
                                 " is there: name the configuration of the craned of this directory "
                                 "with --config");
    const Config config = load_config(path);
    if (config.witness && config.server.empty())
        throw std::runtime_error(path +
                                 " is a witness', and does not say how the server runs, which a backup "
                                 "records: make it on a host that has a server, or name a copy of "
                                 "that one's configuration with --config");
    return path;
}

}  // namespace

int tool_backup(const std::string& state_dir, const BackupRequest& request, bool as_json) {
    if (fs::exists(fs::symlink_status(request.file)))
        throw std::runtime_error(request.file + " is there already: give another name");
    if (access(fs::absolute(request.file).parent_path().c_str(), W_OK) != 0)
        throw cannot_write(request.file, errno);
    const std::string config = config_of(state_dir, request);
    uint64_t wanted = 0;
    if (!request.newest && request.entry == 0 && runs(state_dir)) {
        if (const std::string why = have_checkpoint_taken(state_dir, wanted); !why.empty())
            throw std::runtime_error("no checkpoint of the server as it is now could be had: " + why +
                                     " (--newest: of what there is)");
    }
    std::vector<std::string> passed_over;
    const std::optional<Chosen> chosen = choose(state_dir, request.entry, passed_over);
    if (!as_json)
        for (const std::string& one : passed_over) std::cerr << "crane: " << one << "\n";
    if (!chosen)
        throw std::runtime_error(state_dir + " holds no checkpoint" +
                                 (request.entry == 0 ? "" : " of entry " + std::to_string(request.entry)) +
                                 " of which a backup could be made: see crane checkpoint list");
    if (chosen->checkpoint.index < wanted)
        throw std::runtime_error("the newest checkpoint here is of entry " +
                                 std::to_string(chosen->checkpoint.index) + ", and there is one of entry " +
                                 std::to_string(wanted) +
                                 " or later on another host: do this there, or take what is here (--newest)");
    const BackupRecord record = describe(*chosen, config);
    write_archive(*chosen, record, request.file);
    if (as_json) {
        std::cout << json{{"file", request.file},      {"index", record.index}, {"id", record.id},
                          {"taken_s", record.taken_s}, {"bytes", record.bytes}, {"cluster", record.cluster},
                          {"passed_over", passed_over}}
                         .dump()
                  << "\n";
    } else {
        std::cout << request.file << ": the server and its files at log entry " << record.index << ", of "
                  << utc_text(static_cast<time_t>(record.taken_s)) << ", " << record.bytes << " bytes\n";
    }
    return kExitOk;
}

}  // namespace crane::proxy
