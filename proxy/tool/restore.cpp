// crane restore: what a replica of a new cluster begins with, from a backup of another one.
//
// Each replica of the new cluster is given the same checkpoint and an empty log that begins behind it, as if
// all of them had always been its members. Nothing of the old cluster is touched, and the new one does not
// know it: clients that were connected then find their connections closed.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "checkpoint/checkpoint_store.hpp"
#include "checkpoint/command.hpp"
#include "checkpoint/criu_program.hpp"
#include "paxos/store/store.hpp"
#include "proxy/checkpoint_state.hpp"
#include "proxy/state_dir.hpp"
#include "proxy/tool/backup_record.hpp"
#include "proxy/tool/progress.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

namespace fs = std::filesystem;
using checkpoint::CheckpointStore;
using nlohmann::json;

namespace {

constexpr char kTar[] = "/usr/bin/tar";

uint64_t bytes_of(const std::string& folder, const std::vector<std::string>& names) {
    uint64_t bytes = 0;
    for (const std::string& name : names) {
        std::error_code missing;
        const uint64_t one = fs::file_size(folder + "/" + name, missing);
        bytes += missing ? 0 : one;
    }
    return bytes;
}

/// These members of the archive, `bytes` in all, as plain files in `folder`.
void extract(const std::string& archive, const std::string& folder, const std::vector<std::string>& names,
             uint64_t bytes = 0) {
    std::vector<std::string> words{kTar,
                                   "--extract",
                                   "--file=" + archive,
                                   "--force-local",
                                   "--directory=" + folder,
                                   "--no-same-owner",
                                   "--no-same-permissions",
                                   "--no-overwrite-dir",
                                   "--"};
    words.insert(words.end(), names.begin(), names.end());
    Progress progress("reading " + archive, bytes);
    checkpoint::run_command(words, "reading " + archive, 0,
                            progress.watching([&] { return bytes_of(folder, names); }));
}

std::string read_text(const std::string& path, size_t most) {
    const checkpoint::File file(path, O_RDONLY);  // never through a link that an archive has planted
    std::string text = file.read(0, most + 1);
    if (text.size() > most) throw std::runtime_error(path + " is too large");
    return text;
}

paxos::Membership members_of(const Config& config) {
    paxos::Membership members;
    for (const ReplicaAddress& one : config.replicas)
        members.add({one.id, true, one.peer_host + ":" + std::to_string(one.peer_port)});
    return members;
}

/// Refuses what cannot be a replica of a new cluster, before anything is written.
void check_target(const Config& config) {
    if (config.mode != Mode::kFull || !config.container)
        throw std::runtime_error("only a replica in mode full with a container begins from a backup");
    if (config.join)
        throw std::runtime_error(
            "this replica is to join others (join), which will send it what they have: a backup is for all "
            "replicas of a new cluster");
    for (const char* name : {"/db", "/checkpoints"}) {
        const std::string path = config.state_dir + name;
        std::error_code error;
        if (fs::exists(path, error) && !fs::is_empty(path, error))
            throw std::runtime_error(path +
                                     " is there: a replica that has a log is not overwritten; give an empty "
                                     "state_dir, or remove what is there");
    }
}

/// The state of the checkpoint as that of the new cluster.
CheckpointState adopted(const checkpoint::Manifest& manifest, const Config& config) {
    CheckpointState state;
    if (const std::string wrong = from_json(manifest.state, state); !wrong.empty())
        throw std::runtime_error("its checkpoint is of no use: " + wrong);
    const bool begins = state.live && !config.witness;
    if (begins && state.live->words.transport_version != timebubble::kTransportVersion)
        throw std::runtime_error(
            "its server ran under a shim of another version, which this Crane does not "
            "understand: restore it with the version that made the backup");
    if (begins && checkpoint::find_criu().empty())
        throw std::runtime_error(
            "it holds an image of a running server, and this host has no CRIU to restore that: see "
            "crane check");
    if (state.position.index != manifest.index)
        throw std::runtime_error("its checkpoint names another entry");
    state.cluster = config.cluster_id;
    state.membership = {0, members_of(config)};
    state.starts = {};
    return state;
}

void begin_log(const Config& config, const CheckpointState& state) {
    paxos::StoreOptions options;
    options.directory = config.state_dir + "/db";
    options.cluster_id = config.cluster_id;
    options.replica = config.replica_id;
    paxos::BdbStore store(options);
    store.restart_at(state.position, state.membership, state.starts);
    store.close(state.position.index);
}

/// What a restore that failed has written goes: the next one begins with nothing.
struct Undo {
    std::string state_dir;
    bool done = false;
    ~Undo() {
        std::error_code ignored;
        for (const char* name : {"/db", "/checkpoints"})
            if (!done) fs::remove_all(state_dir + name, ignored);
    }
};

checkpoint::Manifest unpack(const std::string& file, const BackupRecord& record, const std::string& folder) {
    extract(file, folder, {checkpoint::kManifestName});
    const std::string path = folder + "/" + checkpoint::kManifestName;
    checkpoint::DecodedManifest decoded =
        checkpoint::decode_manifest(read_text(path, checkpoint::kMaxManifestBytes));
    if (!decoded.error.empty()) throw std::runtime_error(file + ": its manifest: " + decoded.error);
    if (decoded.id != record.id || decoded.manifest.index != record.index)
        throw std::runtime_error(file + " holds another checkpoint than it says");
    std::vector<std::string> names;
    for (const checkpoint::CheckpointFile& one : decoded.manifest.files) names.push_back(one.name);
    extract(file, folder, names, decoded.manifest.bytes());
    Progress progress("checking what was read", decoded.manifest.bytes());
    const checkpoint::Stop counting = progress.counting();
    for (const checkpoint::CheckpointFile& one : decoded.manifest.files) {
        const checkpoint::File data(folder + "/" + one.name, O_RDONLY);
        if (data.bytes() != one.bytes || checkpoint::sum_of_file(data, counting) != one.xxh128)
            throw std::runtime_error(file + ": " + one.name + " is not as it was when the backup was made");
    }
    fs::remove(path);
    return decoded.manifest;
}

/// Before anything is opened: reading a fifo would wait for whoever writes to it, and the file is read more
/// than once. In words; "": it may be one.
std::string why_no_archive(const std::string& file) {
    const std::string end = ": give the file that crane backup wrote";
    struct stat info {};
    if (stat(file.c_str(), &info) != 0) return "cannot look at " + file + ": " + strerror(errno);
    if (S_ISDIR(info.st_mode)) return file + " is a directory" + end;
    if (S_ISFIFO(info.st_mode)) return file + " is a fifo, which can be read only once" + end;
    if (S_ISBLK(info.st_mode) || S_ISCHR(info.st_mode)) return file + " is a device" + end;
    if (!S_ISREG(info.st_mode)) return file + " is no file" + end;
    if (info.st_size == 0)
        return file + " is empty: the backup was cut short, or its file was lost; make or fetch it again";
    return "";
}

BackupRecord read_record(const std::string& file, const std::string& folder) {
    extract(file, folder, {kRecordName});
    const std::string path = folder + "/" + kRecordName;
    BackupRecord record = backup_record_from(read_text(path, kMaxRecordBytes), file);
    fs::remove(path);
    return record;
}

/// A new cluster, with the server as it ran. A witness runs none.
void check_record(const RestoreRequest& request, const BackupRecord& record, const Config& config) {
    if (record.cluster == config.cluster_id)
        throw std::runtime_error(request.config +
                                 " has the cluster_id of the cluster that was backed up, whose "
                                 "replicas would take this one for one of theirs: choose another");
    if (!config.witness && record.settings != backup_settings(config))
        throw std::runtime_error(request.config +
                                 " would run the server otherwise than it ran in the backup: server, cwd, "
                                 "environment, [schedule], "
                                 "[bubble] enabled, [machine] and [confinement] must be as there (tar -xOf " +
                                 request.file + " " + kRecordName + " shows them under craned.toml)");
}

}  // namespace

int tool_restore(const RestoreRequest& request, bool as_json) {
    std::error_code missing;
    const std::string file = fs::canonical(request.file, missing);
    if (missing || access(file.c_str(), R_OK) != 0)
        throw std::runtime_error("cannot read " + request.file + ": " +
                                 (missing ? missing.message() : strerror(errno)) +
                                 ": give what crane backup wrote");
    if (const std::string wrong = why_no_archive(file); !wrong.empty()) throw std::runtime_error(wrong);
    const Config config = load_config(request.config);
    const std::string exposed = make_state_dir(config.state_dir);
    if (!exposed.empty()) std::cerr << "crane: " << exposed << "\n";
    const StateDirLock lock(config.state_dir);
    check_target(config);
    Undo undo{config.state_dir};
    CheckpointStore store(config.state_dir + "/checkpoints");
    const std::string folder = store.begin(UINT64_MAX);  // which entry it is, the record tells
    const BackupRecord record = read_record(file, folder);
    check_record(request, record, config);
    const checkpoint::Manifest manifest = unpack(file, record, folder);
    const CheckpointState state = adopted(manifest, config);
    fs::rename(folder, store.begin(record.index));
    store.complete(record.index, to_json(state));
    begin_log(config, state);
    undo.done = true;
    if (as_json) {
        std::cout << json{{"replica", config.replica_id},
                          {"index", record.index},
                          {"cluster", config.cluster_id},
                          {"from_cluster", record.cluster},
                          {"running", state.live.has_value()}}
                         .dump()
                  << "\n";
    } else {
        std::cout << "replica " << config.replica_id << " begins at log entry " << record.index
                  << (config.witness ? ", as a witness"
                      : state.live   ? ", with the server as it ran there"
                                     : ", with the server's files")
                  << ". When all replicas have been given this backup, start their craneds\n";
    }
    return kExitOk;
}

}  // namespace crane::proxy
