#include "checkpoint/arriving_checkpoint.hpp"
#include "checkpoint/fail_point.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace crane::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = ".fetch-";
constexpr char kUnfinishedManifest[] = ".manifest.part";
constexpr mode_t kOwnerOnly = 0700;

/// The number of names is not ours: what does not look like one of ours is not touched.
std::optional<CheckpointName> parse_name(std::string_view name) {
    if (!name.starts_with(kPrefix)) return std::nullopt;
    name.remove_prefix(kPrefix.size());
    if (name.size() != kIndexDigits + 1 + kSumDigits || name[kIndexDigits] != '-') return std::nullopt;
    CheckpointName out{index_from(name.substr(0, kIndexDigits)), std::string(name.substr(kIndexDigits + 1))};
    if (out.index == 0 || !is_sum(out.id)) return std::nullopt;
    return out;
}

}  // namespace

std::string arriving_path(const CheckpointStore& store, const CheckpointName& which) {
    return store.folder() + "/" + std::string(kPrefix) + index_text(which.index) + "-" + which.id;
}

std::vector<CheckpointName> list_arriving(const CheckpointStore& store) {
    std::vector<CheckpointName> out;
    std::error_code ignored;
    for (fs::directory_iterator entry(store.folder(), ignored), end; !ignored && entry != end;
         entry.increment(ignored))
        if (const auto one = parse_name(entry->path().filename().string())) out.push_back(*one);
    return out;
}

void remove_arriving(const CheckpointStore& store, const CheckpointName* but) {
    for (const CheckpointName& one : list_arriving(store)) {
        if (but != nullptr && one == *but) continue;
        std::error_code error;
        fs::remove_all(arriving_path(store, one), error);
        if (error) throw file_error("remove", arriving_path(store, one), error.value());
    }
}

std::optional<ArrivingCheckpoint> ArrivingCheckpoint::resume(const CheckpointStore& store,
                                                             const CheckpointName& which) {
    const std::string path = arriving_path(store, which);
    const std::string manifest_path = path + "/" + kManifestName;
    std::error_code ignored;
    if (!fs::is_regular_file(fs::symlink_status(manifest_path, ignored))) return std::nullopt;
    DecodedManifest decoded = decode_manifest(File(manifest_path, O_RDONLY).read(0, kMaxManifestBytes + 1));
    if (!decoded.error.empty() || decoded.id != which.id || decoded.manifest.index != which.index)
        return std::nullopt;
    return ArrivingCheckpoint(store, path, std::move(decoded.manifest));
}

ArrivingCheckpoint ArrivingCheckpoint::begin(const CheckpointStore& store, const CheckpointName& which,
                                             std::string_view manifest_text, uint64_t reserve_bytes) {
    DecodedManifest decoded = decode_manifest(manifest_text);
    if (decoded.error.empty() && (decoded.id != which.id || decoded.manifest.index != which.index))
        decoded.error = "it is another's";
    if (!decoded.error.empty())
        throw std::runtime_error("a manifest that arrived is of no use: " + decoded.error);
    store.make();
    store.check_room(decoded.manifest.bytes(), reserve_bytes);
    const std::string path = arriving_path(store, which);
    std::error_code error;
    fs::remove_all(path, error);
    if (mkdir(path.c_str(), kOwnerOnly) != 0) throw file_error("make", path, errno);
    const std::string part = path + "/" + kUnfinishedManifest, whole = path + "/" + kManifestName;
    write_synced(part, manifest_text);
    if (rename(part.c_str(), whole.c_str()) != 0) throw file_error("rename", part, errno);
    fail_point("fetch.begin");
    return ArrivingCheckpoint(store, path, std::move(decoded.manifest));
}

uint64_t ArrivingCheckpoint::have(size_t file) const {
    const File there(file_path(file), O_RDWR | O_CREAT);
    const uint64_t bytes = there.bytes();
    if (bytes <= manifest_.files[file].bytes) return bytes;
    if (ftruncate(there.fd(), 0) != 0) throw file_error("cut", there.path(), errno);
    return 0;
}

void ArrivingCheckpoint::append(size_t file, uint64_t offset, std::string_view bytes) const {
    const File there(file_path(file), O_WRONLY | O_CREAT);
    if (there.bytes() != offset)
        throw std::runtime_error(there.path() + " has changed while it arrived: let nobody else write there");
    try {
        there.write(bytes, offset);
        fail_point("fetch.append");
    } catch (...) {
        (void)!ftruncate(there.fd(), static_cast<off_t>(offset));  // so that it goes on where it stood
        throw;
    }
    try {
        there.write_back(offset, bytes.size());
    } catch (...) {
        (void)!ftruncate(there.fd(), 0);  // it begins anew: earlier bytes may not be on the disk either
        throw;
    }
}

bool ArrivingCheckpoint::check(size_t file, const Stop& stop) const {
    const CheckpointFile& expected = manifest_.files[file];
    const File there(file_path(file), O_RDWR | O_CREAT);
    there.sync();
    if (there.bytes() == expected.bytes && sum_of_file(there, stop, sums_) == expected.xxh128) {
        fail_point("fetch.checked");
        return true;
    }
    if (ftruncate(there.fd(), 0) != 0) throw file_error("cut", there.path(), errno);
    return false;
}

void ArrivingCheckpoint::publish(CheckpointStore& store) const {
    store.publish(path_, manifest_.index);
}

}  // namespace crane::checkpoint
