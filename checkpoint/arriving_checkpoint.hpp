// A checkpoint on its way from another replica. It lies in .fetch-<index>-<id>/ of the store: the manifest
// first, then each file as far as it has come. A crash costs nothing but what was not yet written: who goes
// on asks for the rest. What is there counts only when its sum is the manifest's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_store.hpp"

namespace crane::checkpoint {

std::string arriving_path(const CheckpointStore& store, const CheckpointName& which);
/// Those of which something is there.
std::vector<CheckpointName> list_arriving(const CheckpointStore& store);
/// All but `but`; none is worth its space beside the one that is fetched.
void remove_arriving(const CheckpointStore& store, const CheckpointName* but = nullptr);

class ArrivingCheckpoint {
  public:
    /// What an earlier attempt has left; nothing when there is no usable manifest.
    static std::optional<ArrivingCheckpoint> resume(const CheckpointStore& store,
                                                    const CheckpointName& which);
    /// Begins with its manifest. Throws std::runtime_error when this is not the manifest, or when the disk
    /// would have less than `reserve_bytes` left.
    static ArrivingCheckpoint begin(const CheckpointStore& store, const CheckpointName& which,
                                    std::string_view manifest_text, uint64_t reserve_bytes);

    const Manifest& manifest() const { return manifest_; }
    /// How much of a file is there; a file that is longer than it can be is thrown away.
    uint64_t have(size_t file) const;
    /// Appends at `offset`, which is where the file ends; else throws.
    void append(size_t file, uint64_t offset, std::string_view bytes) const;
    /// Whether the file is what the manifest says; one that is not is thrown away. Throws Stopped.
    bool check(size_t file, const Stop& stop) const;
    /// Makes it a checkpoint like any other. All files have been checked.
    void publish(CheckpointStore& store) const;

  private:
    ArrivingCheckpoint(const CheckpointStore& store, std::string path, Manifest manifest)
        : path_(std::move(path)), manifest_(std::move(manifest)), sums_(store.sums()) {}
    std::string file_path(size_t file) const { return path_ + "/" + manifest_.files[file].name; }

    std::string path_;
    Manifest manifest_;
    std::shared_ptr<KnownSums> sums_;
};

}  // namespace crane::checkpoint
