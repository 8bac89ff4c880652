// The files of checkpoints as those see them who ship and fetch them. Every call may take long and is made in
// a thread beside the loop, one after the other; what fails is std::runtime_error with what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/arriving_checkpoint.hpp"
#include "proxy/checkpoint_words.hpp"

namespace crane::proxy {

/// What there is of a checkpoint that arrives.
struct ArrivedPart {
    std::string name;
    uint64_t bytes = 0;  ///< in the end
    uint64_t have = 0;
};

/// When room is to be looked for again, while something arrives in small pieces.
class RoomLook {
  public:
    static constexpr uint64_t kEveryBytes = 1 << 20;
    /// So many bytes are to be written now.
    bool due(uint64_t bytes) { return (unlooked_bytes_ += bytes) >= kEveryBytes; }
    void found() { unlooked_bytes_ = 0; }

  private:
    uint64_t unlooked_bytes_ = kEveryBytes;
};

class CheckpointFiles {
  public:
    struct Present {
        uint64_t newest = 0;  ///< the entry of the newest complete one; 0: there is none
        std::vector<CheckpointName> arriving;
        std::set<std::string> refused;  ///< ids of those that no server could be restored from here
    };

    virtual ~CheckpointFiles() = default;

    // --- for messages, in the loop
    virtual std::string called(uint64_t index) const {
        return "the checkpoint of entry " + std::to_string(index);
    }
    virtual std::string wanted(uint64_t index) const {
        return "a checkpoint of log entry " + std::to_string(index) + " or later";
    }
    virtual std::string verifier() const { return "crane checkpoint verify"; }

    // --- for who ships
    /// The newest, kMaxOffers at most.
    virtual std::vector<Offer> offers(uint64_t min_index) = 0;
    /// Exactly these bytes.
    virtual std::string read(const ReadWords& wanted) = 0;

    // --- for who fetches
    virtual Present present() = 0;
    /// Goes on with what an earlier attempt has left. Nothing: there is no manifest here.
    virtual std::optional<std::vector<ArrivedPart>> resume(const CheckpointName& name) = 0;
    /// Is this text what was offered by that name?
    virtual bool is_manifest(const CheckpointName& name, const std::string& manifest) const = 0;
    /// Begins, with a manifest that is right; what is there of others is removed.
    virtual std::vector<ArrivedPart> begin(const CheckpointName& name, const std::string& manifest) = 0;
    // Of the one that was resumed or begun last; see checkpoint/arriving_checkpoint.hpp.
    virtual void append(size_t part, uint64_t offset, std::string_view bytes) = 0;
    virtual bool check(size_t part, const checkpoint::Stop& stop) = 0;
    virtual void publish() = 0;
};

/// Those of a store.
class StoredCheckpointFiles : public CheckpointFiles {
  public:
    /// What arrives leaves `reserve_bytes` of the disk free.
    StoredCheckpointFiles(const std::string& folder, uint64_t reserve_bytes,
                          std::shared_ptr<checkpoint::KnownSums> sums = nullptr)
        : store_(folder, std::move(sums)), reserve_bytes_(reserve_bytes) {}

    std::vector<Offer> offers(uint64_t min_index) override;
    std::string read(const ReadWords& wanted) override;
    Present present() override;
    std::optional<std::vector<ArrivedPart>> resume(const CheckpointName& name) override;
    bool is_manifest(const CheckpointName& name, const std::string& manifest) const override;
    std::vector<ArrivedPart> begin(const CheckpointName& name, const std::string& manifest) override;
    void append(size_t part, uint64_t offset, std::string_view bytes) override;
    bool check(size_t part, const checkpoint::Stop& stop) override;
    void publish() override;

  private:
    /// The one that was read last, by its folder's descriptor: whatever takes its place is another.
    struct Open {
        CheckpointName name;
        checkpoint::Manifest manifest;
        std::unique_ptr<checkpoint::File> folder;
    };
    void open(const CheckpointName& name);
    std::vector<ArrivedPart> parts() const;

    checkpoint::CheckpointStore store_;
    uint64_t reserve_bytes_;
    RoomLook room_;
    Open open_;
    std::optional<checkpoint::ArrivingCheckpoint> arriving_;
};

}  // namespace crane::proxy
