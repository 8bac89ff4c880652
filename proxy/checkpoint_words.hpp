// What replicas say to each other about checkpoints. Message: version u8, kind u8, fields (numbers little
// endian, the id of a checkpoint as its 32 digits). A decoder takes nothing that is not whole and exact, so
// that a peer of another version is not understood rather than misunderstood.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "checkpoint/manifest.hpp"

namespace crane::proxy {

using checkpoint::CheckpointName;

/// Small beside what a link holds back for urgent messages: these wait for one such frame at most.
constexpr uint32_t kShipChunkBytes = 256 * 1024;
constexpr size_t kMaxOffers = 4;
constexpr uint32_t kManifestFile = 0;  ///< file k of the manifest is k + 1

/// Which checkpoints of entry `min_index` or later do you have?
struct AskWords {
    uint64_t round = 0;
    uint64_t min_index = 0;
};
struct Offer {
    CheckpointName name;
    uint64_t manifest_bytes = 0;
    uint64_t bytes = 0;  ///< of all files
};
struct OffersWords {
    uint64_t round = 0;
    std::vector<Offer> offers;
};
/// These bytes, please.
struct ReadWords {
    uint64_t request = 0;
    CheckpointName name;
    uint32_t file = kManifestFile;
    uint64_t offset = 0;
    uint32_t bytes = 0;
};
struct ChunkWords {
    uint64_t request = 0;
    std::string bytes;
};
/// They cannot be had here: the checkpoint is gone, or cannot be read.
struct RefusalWords {
    uint64_t request = 0;
};

using CheckpointWords = std::variant<AskWords, OffersWords, ReadWords, ChunkWords, RefusalWords>;

std::string encode(const CheckpointWords& words);
/// Nothing when it is not well formed.
std::optional<CheckpointWords> decode_checkpoint_words(std::string_view message);

}  // namespace crane::proxy
