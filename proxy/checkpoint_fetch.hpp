// Fetches a checkpoint from whoever has one: asks all, chooses one, takes its manifest and then its files,
// piece by piece. A pure protocol: files are written by jobs elsewhere, time is handed in.
//
// Rules kept here:
//   - what has arrived stays, through lost links, the end of a source (any other with the same manifest will
//     do) and the end of this process; it goes only when it is found wrong, or when another is begun;
//   - nothing counts that was not checked against the manifest's sums, and the manifest against the offer;
//   - a source that does not answer, or whose bytes are wrong, is left alone for a while, longer each time; a
//     checkpoint of which a file came wrong three times, for some minutes, and that is told;
//   - a few requests are under way, at most as many bytes in a second as the operator allows, and one job.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "proxy/checkpoint_choice.hpp"
#include "proxy/checkpoint_files.hpp"
#include "proxy/checkpoint_source.hpp"
#include "proxy/rate_limit.hpp"

namespace crane::proxy {

struct FetchSettings {
    uint64_t bytes_per_s = 100'000'000;
    uint32_t chunk_bytes = kShipChunkBytes;
    /// Requests are numbered from here on: different in each life, so that no late answer fits.
    uint64_t first_request = 1;
};

class CheckpointFetch {
  public:
    struct Events {
        /// There is a complete checkpoint of this entry in the store, as was wanted. More may be wanted from
        /// within, and this object not destroyed.
        std::function<void(uint64_t index)> fetched;
        std::function<void(const std::string&)> tell;  ///< for the log
    };
    struct Progress {
        uint64_t index = 0;  ///< 0: none is chosen
        uint64_t bytes = 0;
        uint64_t total = 0;
        uint32_t source = 0;
    };

    CheckpointFetch(std::shared_ptr<CheckpointFiles> files, ShipSend send, ShipPost post, Events events,
                    const FetchSettings& settings);
    ~CheckpointFetch();
    CheckpointFetch(const CheckpointFetch&) = delete;
    CheckpointFetch& operator=(const CheckpointFetch&) = delete;

    /// The newest of entry `min_index` or later is to come; 0: none any more. What has arrived stays.
    void want(uint64_t min_index);
    uint64_t wanted() const { return min_index_; }
    /// A backup is preferred to the leader.
    void set_leader(uint32_t leader) { leader_ = leader; }
    void on_link(uint32_t peer, bool up);
    void on_offers(uint32_t from, const OffersWords& words);
    void on_chunk(uint32_t from, const ChunkWords& words);
    void on_refusal(uint32_t from, const RefusalWords& words);
    void tick(uint64_t now_ns);

    bool idle() const { return step_ == Step::kIdle && !busy_; }
    /// What is offered has been tried here, and is of no use: somebody has to take a new one.
    bool wants_new_one() const { return step_ == Step::kPausing && choice_.only_refused(min_index_); }
    /// Those who could be asked have none that is wanted, or none that is of use.
    bool finds_none() const { return step_ == Step::kPausing; }
    Progress progress() const;
    /// What is in the way, and what to do; empty: nothing.
    const std::string& error() const { return damage_.empty() ? trouble_ : damage_; }

  private:
    enum class Step {
        kIdle,
        kLooking,  ///< what is here already?
        kAsking,
        kResuming,
        kManifest,
        kBeginning,
        kPart,
        kChecking,
        kPublishing,
        kPausing
    };
    struct Request {
        uint64_t number;
        uint32_t bytes;
        uint64_t sent_ns;
    };
    struct Outcome;
    using Job = std::function<void(Outcome&, const checkpoint::Stop&)>;

    void enter(Step step);
    void advance();
    void run(Job job, std::function<void(Outcome&)> then);
    void resume();
    void begin();
    void write();
    void check();
    void ask();
    void ask_one(uint32_t peer);
    void choose();
    void arrived(std::vector<ArrivedPart> parts);
    void next_part();
    void begin_transfer(Step step, uint64_t size, uint64_t have);
    void request_more();
    void look_for_silence();
    void checked(bool right);
    void blame(const std::string& what);
    void pause(const std::string& why, uint64_t ns);
    void finish(uint64_t index);
    bool transfers() const { return step_ == Step::kManifest || step_ == Step::kPart; }

    std::shared_ptr<CheckpointFiles> files_;
    ShipSend send_;
    ShipPost post_;
    Events events_;
    FetchSettings settings_;
    RateLimit limit_;

    uint64_t min_index_ = 0;
    uint32_t leader_ = 0;
    uint64_t now_ns_ = 0;
    Step step_ = Step::kIdle;
    uint64_t step_ns_ = 0;  ///< since when
    uint64_t pause_until_ns_ = 0;
    bool busy_ = false;   ///< a job runs
    uint64_t epoch_ = 0;  ///< of the step; what a job of an earlier one brings is dropped
    std::shared_ptr<std::atomic<bool>> stop_job_;
    std::string trouble_;  ///< until bytes come again
    std::string damage_;   ///< until it is complete

    std::set<uint32_t> up_;
    uint64_t round_;
    CheckpointChoice choice_;

    // --- the one that was chosen
    uint32_t source_ = 0;
    Offer chosen_;
    std::string manifest_;
    std::vector<ArrivedPart> parts_;
    std::vector<bool> right_;  ///< of each part: it was checked
    size_t part_ = 0;
    bool part_is_sources_ = false;  ///< all bytes of this part came from this source

    // --- what is being transferred, the manifest or one part: written <= arrived <= asked <= size
    uint64_t size_ = 0;
    uint64_t asked_ = 0;
    uint64_t arrived_ = 0;
    uint64_t written_ = 0;
    std::string waiting_;  ///< arrived, and no job writes it yet
    uint64_t next_request_;
    std::deque<Request> requests_;
    unsigned silences_ = 0;  ///< since bytes came
};

}  // namespace crane::proxy
