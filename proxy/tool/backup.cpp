// crane backup: the newest checkpoint of a cluster as one file, from which crane restore makes a new cluster.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "checkpoint/checkpoint_store.hpp"
#include "checkpoint/command.hpp"
#include "proxy/checkpoint_state.hpp"
#include "proxy/settings_hash.hpp"
#include "proxy/tool/backup_record.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using checkpoint::CheckpointStore;
using checkpoint::StoredCheckpoint;
using nlohmann::json;

namespace {

constexpr char kTar[] = "/usr/bin/tar";
constexpr char kScratch[] = "/.backup-XXXXXX";

std::string text_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return in ? text.str() : std::string();
}

/// A folder that goes with its owner.
class Scratch {
  public:
    explicit Scratch(const std::string& folder) : path_(folder + kScratch) {
        if (!mkdtemp(path_.data())) throw checkpoint::file_error("make a folder in", folder, errno);
    }
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// One checkpoint of one replica. A running replica may drop it at any time: what counts has a second name in
/// `links`.
struct Chosen {
    ReplicaDir replica;
    StoredCheckpoint checkpoint;
    std::unique_ptr<Scratch> links;
};

std::vector<std::string> names_in(const StoredCheckpoint& one) {
    std::vector<std::string> names{checkpoint::kManifestName};
    for (const checkpoint::CheckpointFile& file : one.manifest.files) names.push_back(file.name);
    return names;
}

/// Empty: as the manifest says.
std::string damage(const Scratch& links, const StoredCheckpoint& one) {
    for (const checkpoint::CheckpointFile& file : one.manifest.files) {
        const checkpoint::File data(links.path() + "/" + file.name, O_RDONLY);
        if (checkpoint::sum_of_file(data, checkpoint::never) != file.xxh128)
            return one.path + "/" + file.name + " is not as its manifest says";
    }
    return "";
}

/// The newest that is whole, of all replicas here. `passed_over`: why newer ones were not taken.
std::optional<Chosen> choose(const std::string& state_dir, std::vector<std::string>& passed_over) {
    std::vector<std::pair<ReplicaDir, StoredCheckpoint>> all;
    for (const ReplicaDir& replica : find_replicas(state_dir))
        for (StoredCheckpoint& one : CheckpointStore(replica.path + "/checkpoints").survey())
            all.emplace_back(replica, std::move(one));
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.second.index > b.second.index; });
    for (auto& [replica, one] : all) {
        std::string wrong = one.error;
        try {
            Chosen chosen{replica, one, std::make_unique<Scratch>(replica.path)};
            for (const std::string& name : wrong.empty() ? names_in(one) : std::vector<std::string>())
                fs::create_hard_link(one.path + "/" + name, chosen.links->path() + "/" + name);
            if (wrong.empty()) wrong = damage(*chosen.links, one);
            if (wrong.empty()) return chosen;
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

BackupRecord describe(const Chosen& chosen) {
    CheckpointState state;
    if (const std::string wrong = from_json(chosen.checkpoint.manifest.state, state); !wrong.empty())
        throw std::runtime_error(chosen.checkpoint.path + ": " + wrong);
    const std::string config = chosen.replica.path + "/craned.toml";
    BackupRecord record;
    record.crane = CRANE_VERSION;
    record.cluster = state.cluster;
    record.index = chosen.checkpoint.index;
    record.id = chosen.checkpoint.id;
    record.bytes = chosen.checkpoint.manifest.bytes();
    record.taken_s = static_cast<uint64_t>(chosen.checkpoint.since);
    record.launched = launched(chosen.replica.path);
    record.config = text_of(config);
    record.settings = settings_hash(load_config(config));
    return record;
}

/// By another name until it is whole and on the disk.
void write_archive(const Chosen& chosen, const BackupRecord& record, const std::string& file) {
    const std::string unfinished = file + ".part";
    checkpoint::write_synced(chosen.links->path() + "/" + kRecordName, to_json(record).dump() + "\n");
    std::vector<std::string> words{kTar,
                                   "--create",
                                   "--file=" + unfinished,
                                   "--force-local",
                                   "--format=posix",
                                   "--owner=0",
                                   "--group=0",
                                   "--numeric-owner",
                                   "--directory=" + chosen.links->path(),
                                   kRecordName};
    for (const std::string& name : names_in(chosen.checkpoint)) words.push_back(name);
    umask(0077);  // what clients sent and the server keeps is in it
    try {
        checkpoint::run_command(words, "writing " + unfinished);
        checkpoint::File(unfinished, O_RDONLY).sync();
        if (renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, file.c_str(), RENAME_NOREPLACE) != 0)
            throw checkpoint::file_error("rename to", file, errno);
        checkpoint::sync_folder(fs::absolute(file).parent_path());
    } catch (...) {
        unlink(unfinished.c_str());
        throw;
    }
}

}  // namespace

int tool_backup(const std::string& state_dir, const BackupRequest& request, bool as_json) {
    if (fs::exists(fs::symlink_status(request.file)))
        throw std::runtime_error(request.file + " is there already: give another name");
    if (access(fs::absolute(request.file).parent_path().c_str(), W_OK) != 0)
        throw checkpoint::file_error("write", request.file, errno);
    uint64_t wanted = 0;
    if (!request.newest && find_contact(state_dir)) {
        if (const std::string why = have_checkpoint_taken(state_dir, wanted); !why.empty())
            throw std::runtime_error("no checkpoint of the server as it is now could be had: " + why +
                                     " (--newest: of what there is)");
    }
    std::vector<std::string> passed_over;
    const std::optional<Chosen> chosen = choose(state_dir, passed_over);
    if (!as_json)
        for (const std::string& one : passed_over) std::cerr << "crane: " << one << "\n";
    if (!chosen)
        throw std::runtime_error(state_dir +
                                 " holds no checkpoint of which a backup could be made: see crane checkpoint "
                                 "list");
    if (chosen->checkpoint.index < wanted)
        throw std::runtime_error("the newest checkpoint here is of entry " +
                                 std::to_string(chosen->checkpoint.index) + ", and there is one of entry " +
                                 std::to_string(wanted) +
                                 " or later on another host: do this there, or take what is here (--newest)");
    const BackupRecord record = describe(*chosen);
    write_archive(*chosen, record, request.file);
    if (as_json) {
        std::cout << json{{"file", request.file},  {"index", record.index},     {"id", record.id},
                          {"bytes", record.bytes}, {"cluster", record.cluster}, {"passed_over", passed_over}}
                         .dump()
                  << "\n";
    } else {
        std::cout << request.file << ": the server and its files at log entry " << record.index << ", "
                  << record.bytes << " bytes\n";
    }
    return kExitOk;
}

}  // namespace crane::proxy
