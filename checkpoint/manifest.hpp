// What a checkpoint consists of: the log entry that it stands for, the files with their sums, and a state
// that belongs to whoever took it and means nothing here.
//
// A manifest is one line of JSON, {"manifest":BODY,"xxh128":SUM}, in exactly this form: SUM is over BODY's
// bytes. It finds a damaged manifest, and is the checkpoint's id: equal ids, equal contents, on whatever
// replica. Manifests come from disks and from other replicas: nothing in one is believed unchecked.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace crane::checkpoint {

constexpr unsigned kManifestVersion = 1;
constexpr size_t kMaxManifestBytes = 4 << 20;
constexpr size_t kMaxCheckpointFiles = 64;
constexpr uint64_t kMaxCheckpointBytes = 1ULL << 50;
constexpr char kManifestName[] = "manifest.json";

/// Of a checkpoint, on whatever replica: the log entry, and the id of the contents.
struct CheckpointName {
    uint64_t index = 0;
    std::string id;
    auto operator<=>(const CheckpointName&) const = default;
};

struct CheckpointFile {
    std::string name;
    uint64_t bytes = 0;
    std::string xxh128;
    bool operator==(const CheckpointFile&) const = default;
};

struct Manifest {
    uint64_t index = 0;  ///< the last log entry that is in it
    std::vector<CheckpointFile> files;
    nlohmann::json state;
    unsigned version = kManifestVersion;

    uint64_t bytes() const;  ///< of all files
};

/// Letters, digits, '.', '_', '-'; at most 64, no dot in front, and not the manifest's own name.
bool is_file_name(std::string_view name);

/// Throws std::runtime_error when something in it is beyond its bounds.
std::string encode_manifest(const Manifest& manifest);

struct DecodedManifest {
    Manifest manifest;
    std::string id;
    std::string error;     ///< what is wrong with it; empty: nothing
    bool damaged = false;  ///< it is not what was written; else this program does not understand it
};
DecodedManifest decode_manifest(std::string_view text);

}  // namespace crane::checkpoint
