// The checkpoints that a replica has on its disk, in STATE/rN/checkpoints (the owner's alone):
//
//   <index, 20 digits>/     manifest.json (manifest.hpp), and the files that it names
//   .new-<index>/           being taken
//   .old-<index>/           being removed
//   .damaged-<index>/       of no use, for whoever wants to look at it; gone when a new one is kept
//   .refused-<index>/       no server could be restored from it here; likewise, but for one newer than that.
//                           The newest two are whole, and tried again by the next craned
//   .unread-<index>/        cannot be read, or not by this program; the next start looks at it again
//   .fetch-<index>-<id>/    arriving from another replica (arriving_checkpoint.hpp)
//
// Rules kept here:
//   - only complete checkpoints exist: the manifest is written when all files are on the disk, and the folder
//     gets its name when the manifest is; what a crash leaves is in a folder with a dot, and so is nothing;
//   - a folder that is not as its manifest says is never handed out, and told apart with what is wrong;
//   - files and folders of others are left alone;
//   - only what is not as it was written counts as damaged: what cannot be read may be whole, and is kept;
//   - failures are std::runtime_error, say what to do, and leave nothing behind that takes up the disk.
// Files: checkpoint_store.cpp, checkpoint_aside.cpp (those that are of no use).
// Calls may take long (hashing, syncing): nothing here is for an event loop. An object holds no state but the
// path, so a second one may look on while the first works.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/file_sum.hpp"
#include "checkpoint/known_sums.hpp"
#include "checkpoint/manifest.hpp"

namespace crane::checkpoint {

struct StoredCheckpoint {
    uint64_t index = 0;
    std::string path;
    std::string id;  ///< see manifest.hpp
    Manifest manifest;
    uint64_t manifest_bytes = 0;
    time_t since = 0;      ///< when it came to be on this disk
    std::string error;     ///< why it is of no use; empty: it is complete
    bool damaged = false;  ///< `error` tells of a size or a sum; else it may be whole
};

/// One that was found to be of no use, and is kept for a while.
struct SetAside {
    uint64_t index = 0;
    bool damaged = false;
    bool unread = false;  ///< with neither CRIU could not restore a server from it
    std::string path;
};

class CheckpointStore {
  public:
    /// Touches nothing; the folder is made when something is written to it.
    /// `sums`: files whose sum is known there are not read for it; null: all are.
    explicit CheckpointStore(std::string folder, std::shared_ptr<KnownSums> sums = nullptr)
        : folder_(std::move(folder)), sums_(std::move(sums)) {}
    const std::string& folder() const { return folder_; }
    const std::shared_ptr<KnownSums>& sums() const { return sums_; }

    /// An empty folder for the files of a checkpoint; what was begun under this index before is dropped.
    std::string begin(uint64_t index);
    /// Sums and syncs what is in that folder, writes the manifest, publishes. One that was there under this
    /// index gives way in the same moment. Where it fails, or is to stop, nothing is left of the new one.
    StoredCheckpoint complete(uint64_t index, const nlohmann::json& state, const Stop& stop = never);
    void abandon(uint64_t index);

    /// All that look like checkpoints, damaged ones, too, the newest first. Sizes are looked at, contents
    /// not.
    std::vector<StoredCheckpoint> survey() const;
    /// Those of them that are complete, `most` at most.
    std::vector<StoredCheckpoint> list(size_t most = SIZE_MAX) const;
    std::optional<StoredCheckpoint> newest() const;
    std::optional<StoredCheckpoint> find(uint64_t index) const;
    /// Sizes and sums of all files. Empty: as the manifest says; else what is wrong. Throws Stopped.
    std::string verify(uint64_t index, const Stop& stop = never) const { return checked(index, stop).error; }
    /// The same of one, with whether it is damaged.
    StoredCheckpoint checked(uint64_t index, const Stop& stop = never) const;

    /// Gone in one moment, whatever happens to the machine meanwhile.
    void remove(uint64_t index);
    /// It is of no use, and is no checkpoint any more: another of this entry may come.
    void set_aside(uint64_t index);
    /// Likewise; and the same one, should another replica offer it, is not wanted again, before
    /// put_back_refused().
    void set_aside_refused(uint64_t index);
    /// Likewise, until put_back_unread().
    void set_aside_unread(uint64_t index);
    /// Those that could not be read are checkpoints again, but where another has taken their place.
    void put_back_unread();
    /// The same of those that no server could be restored from and that are whole. Once for each process:
    /// what has changed on its host since a server could be restored is not changed back while it runs.
    void put_back_refused();
    /// Those of that entry or later are of no use to any later process either.
    void give_up_refused(uint64_t from);
    std::set<std::string> refused() const;  ///< their ids
    std::vector<SetAside> set_aside() const;
    /// Leaves the newest `keep`, those of `held`, those that could not be read, and those that no server
    /// could be restored from when they are newer than all; damaged ones go when they are older than what is
    /// left.
    void prune(size_t keep, const std::set<uint64_t>& held = {});
    /// What a crash left half made or half removed. For the start, when nobody takes or fetches.
    void remove_unfinished();

    /// Gives the folder at `path`, complete and synced but for its name, its place. For those who make one.
    void publish(const std::string& path, uint64_t index);
    /// Makes the folder itself, if it is not there.
    void make() const;
    /// Throws where so much more would leave less than `reserve_bytes` on its disk.
    void check_room(uint64_t wanted_bytes, uint64_t reserve_bytes) const;
    /// Throws where less than `reserve_bytes` is left, or than a twentieth of a small disk, here or in the
    /// folder `beside`, where what goes into a checkpoint lies until then.
    void check_reserve(uint64_t reserve_bytes, const std::string& beside) const;

  private:
    std::string path_of(uint64_t index) const;
    std::string unfinished(const char* prefix, uint64_t index) const;
    StoredCheckpoint look(uint64_t index) const;
    StoredCheckpoint look_at(const std::string& path, uint64_t index) const;
    void rename_aside(uint64_t index, const char* prefix);
    void put_back(const std::string& path, uint64_t index);
    std::vector<uint64_t> indexes() const;
    std::vector<std::string> folders_named(const std::vector<std::string>& prefixes) const;

    static void remove_tree(const std::string& path);

    static constexpr char kDamaged[] = ".damaged-", kRefused[] = ".refused-", kUnread[] = ".unread-";
    static constexpr size_t kWholeRefused = 2;
    std::string folder_;
    std::shared_ptr<KnownSums> sums_;
};

constexpr size_t kIndexDigits = 20;
std::string index_text(uint64_t index);
/// 0: it is none.
uint64_t index_from(std::string_view digits);

}  // namespace crane::checkpoint
