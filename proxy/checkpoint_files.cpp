#include "proxy/checkpoint_files.hpp"

#include <fcntl.h>

#include "base/check.hpp"
#include "checkpoint/fail_point.hpp"

namespace crane::proxy {

using checkpoint::ArrivingCheckpoint;
using checkpoint::StoredCheckpoint;

std::vector<Offer> StoredCheckpointFiles::offers(uint64_t min_index) {
    std::vector<Offer> out;
    for (const StoredCheckpoint& one : store_.list(kMaxOffers))
        if (one.index >= min_index)
            out.push_back({{one.index, one.id}, one.manifest_bytes, one.manifest.bytes()});
    return out;
}

void StoredCheckpointFiles::open(const CheckpointName& name) {
    if (open_.folder && open_.name == name) return;
    open_ = {};
    std::optional<StoredCheckpoint> found = store_.find(name.index);
    if (!found || found->id != name.id)
        throw std::runtime_error("the checkpoint of entry " + std::to_string(name.index) + " is gone");
    open_.folder = std::make_unique<checkpoint::File>(found->path, O_RDONLY | O_DIRECTORY);
    open_.manifest = std::move(found->manifest);
    open_.name = name;
}

std::string StoredCheckpointFiles::read(const ReadWords& wanted) {
    open(wanted.name);
    if (wanted.file > open_.manifest.files.size()) throw std::runtime_error("there is no such file");
    const std::string name =
        wanted.file == kManifestFile ? checkpoint::kManifestName : open_.manifest.files[wanted.file - 1].name;
    const checkpoint::File file(name, O_RDONLY, open_.folder->fd());
    std::string bytes = file.read(wanted.offset, wanted.bytes);
    checkpoint::fail_point("ship.read");
    if (bytes.size() != wanted.bytes) throw std::runtime_error(name + " ends before what was asked for");
    return bytes;
}

CheckpointFiles::Present StoredCheckpointFiles::present() {
    const auto newest = store_.newest();
    return {newest ? newest->index : 0, checkpoint::list_arriving(store_), store_.refused()};
}

std::vector<ArrivedPart> StoredCheckpointFiles::parts() const {
    std::vector<ArrivedPart> out;
    for (const checkpoint::CheckpointFile& one : arriving_->manifest().files)
        out.push_back({one.name, one.bytes, arriving_->have(out.size())});
    return out;
}

std::optional<std::vector<ArrivedPart>> StoredCheckpointFiles::resume(const CheckpointName& name) {
    arriving_ = ArrivingCheckpoint::resume(store_, name);
    if (!arriving_) return std::nullopt;
    return parts();
}

bool StoredCheckpointFiles::is_manifest(const CheckpointName& name, const std::string& manifest) const {
    const checkpoint::DecodedManifest decoded = checkpoint::decode_manifest(manifest);
    return decoded.error.empty() && decoded.id == name.id && decoded.manifest.index == name.index;
}

std::vector<ArrivedPart> StoredCheckpointFiles::begin(const CheckpointName& name,
                                                      const std::string& manifest) {
    arriving_.reset();
    checkpoint::remove_arriving(store_, &name);
    arriving_ = ArrivingCheckpoint::begin(store_, name, manifest, reserve_bytes_);
    return parts();
}

void StoredCheckpointFiles::append(size_t part, uint64_t offset, std::string_view bytes) {
    CRANE_CHECK(arriving_);
    // Others write to that disk meanwhile.
    if (room_.due(bytes.size())) {
        store_.check_room(arriving_->manifest().files[part].bytes - offset, reserve_bytes_);
        room_.found();
    }
    arriving_->append(part, offset, bytes);
}

bool StoredCheckpointFiles::check(size_t part, const checkpoint::Stop& stop) {
    CRANE_CHECK(arriving_);
    return arriving_->check(part, stop);
}

void StoredCheckpointFiles::publish() {
    CRANE_CHECK(arriving_);
    arriving_->publish(store_);
    arriving_.reset();
}

}  // namespace crane::proxy
