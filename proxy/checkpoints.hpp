// The checkpoints of this replica, as craned uses them: which one it starts from, when one is due, and the
// keeping of a new one beside the event loop.
// Files: checkpoints.cpp, checkpoints_choose.cpp (at the start).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.hpp"
#include "checkpoint/domain_host.hpp"
#include "proxy/checkpoint_state.hpp"
#include "proxy/config.hpp"
#include "proxy/domain_runner.hpp"
#include "proxy/worker.hpp"

struct event_base;

namespace crane::proxy {

bool takes_checkpoints(const Config& config);

class Checkpoints {
  public:
    /// `sums`: what this process has summed is not summed again. `busy` is called again and again while one
    /// is being summed here. Throws where there are checkpoints of another cluster, before anything is
    /// touched.
    Checkpoints(event_base* base, const Config& config, std::shared_ptr<checkpoint::KnownSums> sums = nullptr,
                const std::function<void()>& busy = nullptr);
    /// One that is being packed is left unfinished.
    ~Checkpoints();
    Checkpoints(const Checkpoints&) = delete;
    Checkpoints& operator=(const Checkpoints&) = delete;

    /// Those that no server could be restored from may be of use again. Once for each craned, before there is
    /// any of these.
    static void try_refused_again(const Config& config);

    /// Of those on disk the one to start from, if there is any that is whole and of this cluster.
    const std::optional<CheckpointState>& from() const { return from_; }
    /// Its files.
    const std::string& archive() const { return archive_; }

    /// Of a server that runs (from()->live): what it is restored from.
    DomainRunner::Image image(const DomainWords& words) const;
    /// Images of running servers can be taken and used here.
    bool takes_images() const { return takes_images_; }
    /// Makes place for one of the server below `init` and says where; called in a worker, and throws what is
    /// wrong.
    std::function<DomainRunner::ImagePlace()> image_place(uint64_t index, pid_t init);
    /// Packs the one that was taken with that place, and keeps it: see packed().
    void pack(const CheckpointState& state, DomainRunner::Pack pack, std::set<uint64_t> in_use,
              std::function<void(bool kept)> done);
    void image_failed(const std::string& why);
    /// What was begun from is of no use after all.
    void refuse(const std::string& why);
    /// Those of that entry or later are of no use, since what they were taken of differs from the others'.
    void distrust(uint64_t index);
    /// One came from another replica, to be kept.
    void adopt(uint64_t index, std::set<uint64_t> in_use);

    /// So much was decided.
    void logged(uint64_t bytes) { log_bytes_ += bytes; }
    /// The log behind the newest has grown enough for another.
    bool due() const;
    /// A start that asks for a checkpoint is decided, with what the log says at its place.
    void decided(uint64_t generation, CheckpointState state);
    /// What was decided for that server's beginning, once; nothing is known any more of those before.
    std::optional<CheckpointState> take_point(uint64_t generation);
    /// Packs the server's files; called in a worker, and throws what is wrong.
    std::function<void(const checkpoint::DomainHost&)> packer(uint64_t index);
    /// One of a running server that is being packed is not wanted any more.
    void leave_unfinished();
    /// They are packed, or the error says why not. `done`: it is durable, or cannot be.
    /// `in_use`: checkpoints that must not go, however old.
    void packed(const CheckpointState& state, const std::string& error, std::set<uint64_t> in_use,
                std::function<void(bool kept)> done);

    /// One is about to be kept, or not.
    bool keeping() const { return keeper_.busy(); }
    /// Decided since the newest.
    uint64_t log_bytes() const { return log_bytes_; }
    uint64_t held_index() const { return held_index_; }
    /// Why the last one could not be kept or used; empty when it could.
    const std::string& error() const { return error_; }
    /// `majority_index`: a majority holds one there or behind. `being_taken`: by some replica, where this is
    /// the primary, else by this one.
    nlohmann::json json(uint64_t majority_index, bool being_taken) const;

  private:
    struct Fault {
        std::string what;      ///< empty: there is none
        bool damaged = false;  ///< else it may be whole
    };
    void choose(const std::function<void()>& busy);
    void tidy();
    std::vector<checkpoint::StoredCheckpoint> all_of_this_cluster() const;
    Fault fault_of(const checkpoint::StoredCheckpoint& one, CheckpointState& state,
                   const std::function<void()>& busy) const;
    void set_aside(uint64_t index, bool damaged = true);
    void holds(const checkpoint::StoredCheckpoint& one);
    void failed(uint64_t index, const std::string& why);

    static constexpr char kFiles[] = "files.tar.zst";
    const Config& config_;
    std::shared_ptr<checkpoint::CheckpointStore> store_;  ///< used by the worker, too
    std::optional<CheckpointState> from_;
    std::string archive_;
    bool takes_images_;
    std::map<uint64_t, CheckpointState> points_;  ///< by generation: of starts that are still to come here
    uint64_t held_index_ = 0;
    uint64_t held_bytes_ = 0;   ///< of its files
    int64_t held_since_s_ = 0;  ///< when it came to be here; 0: there is none
    uint64_t log_bytes_ = 0;
    std::string error_;
    /// One that is being taken, or was last.
    struct Taking {
        using Flag = std::shared_ptr<std::atomic<bool>>;
        uint64_t index = 0;
        Flag unwanted = std::make_shared<std::atomic<bool>>(false);
        Flag distrusted = std::make_shared<std::atomic<bool>>(false);  ///< and so of no use when it is kept
    };
    Taking image_, files_;  ///< of a server that runs; and of the files between two
    Worker keeper_;
};

}  // namespace crane::proxy
