#include "proxy/checkpoint_fetch.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kWindow = 4;  // chunks asked for and not written
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kAskNs = 2 * kSecondNs;      // for all to answer
constexpr uint64_t kAnswerNs = 10 * kSecondNs;  // for a chunk, from a busy disk
constexpr unsigned kMaxSilences = 2;
constexpr uint64_t kNobodyPauseNs = 2 * kSecondNs;
constexpr uint64_t kNewcomerNs = kSecondNs / 10;
constexpr uint64_t kDiskPauseNs = 5 * kSecondNs;

}  // namespace

/// What a job brings.
struct CheckpointFetch::Outcome {
    std::string error;  ///< of this replica's disk
    bool stopped = false;
    bool right = false;
    CheckpointFiles::Present present;
    std::optional<std::vector<ArrivedPart>> parts;
};

CheckpointFetch::CheckpointFetch(std::shared_ptr<CheckpointFiles> files, ShipSend send, ShipPost post,
                                 Events events, const FetchSettings& settings)
    : files_(std::move(files)),
      send_(std::move(send)),
      post_(std::move(post)),
      events_(std::move(events)),
      settings_(settings),
      limit_(settings.bytes_per_s),
      round_(settings.first_request),
      next_request_(settings.first_request) {
    CRANE_CHECK(settings_.chunk_bytes > 0 && settings_.chunk_bytes <= kShipChunkBytes);
}

CheckpointFetch::~CheckpointFetch() {
    if (stop_job_) *stop_job_ = true;
}

void CheckpointFetch::want(uint64_t min_index) {
    if (min_index == min_index_) return;
    min_index_ = min_index;
    if (min_index != 0 && chosen_.name.index >= min_index) return;
    trouble_.clear();
    damage_.clear();
    enter(min_index == 0 ? Step::kIdle : Step::kLooking);
    advance();
}

CheckpointFetch::Progress CheckpointFetch::progress() const {
    Progress out{chosen_.name.index, 0, chosen_.bytes, source_};
    for (const ArrivedPart& part : parts_) out.bytes += part.have;
    return out;
}

// --- steps

/// Whatever the step before has under way is over.
void CheckpointFetch::enter(Step step) {
    step_ = step;
    step_ns_ = now_ns_;
    ++epoch_;
    requests_.clear();
    waiting_.clear();
    silences_ = 0;
    if (stop_job_) *stop_job_ = true;
    if (step != Step::kIdle && step != Step::kLooking && step != Step::kAsking && step != Step::kPausing)
        return;
    chosen_ = {};
    source_ = 0;
    parts_.clear();
    manifest_.clear();
}

void CheckpointFetch::tick(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (step_ == Step::kAsking && (choice_.complete() || now_ns - step_ns_ >= kAskNs)) choose();
    if (step_ == Step::kPausing && now_ns >= pause_until_ns_) enter(Step::kLooking);
    if (transfers()) look_for_silence();
    advance();
}

/// Goes on as far as there is anything to do, but for one job at a time.
void CheckpointFetch::advance() {
    if (transfers()) request_more();
    if (busy_) return;
    if (step_ == Step::kLooking)
        run([files = files_](Outcome& out, const auto&) { out.present = files->present(); },
            [this](Outcome& out) {
                choice_.set_arriving(out.present.arriving);
                choice_.set_refused(std::move(out.present.refused));
                if (out.present.newest >= min_index_) return finish(out.present.newest);
                ask();
            });
    if (step_ == Step::kResuming) resume();
    if (step_ == Step::kBeginning) begin();
    if (step_ == Step::kPart && !waiting_.empty()) write();
    if (step_ == Step::kChecking) check();
    if (step_ == Step::kPublishing)
        run([files = files_](Outcome&, const auto&) { files->publish(); },
            [this](Outcome&) { finish(chosen_.name.index); });
}

void CheckpointFetch::pause(const std::string& why, uint64_t ns) {
    if (trouble_ != why) events_.tell(why);
    trouble_ = why;
    pause_until_ns_ = now_ns_ + ns;
    enter(Step::kPausing);
}

void CheckpointFetch::finish(uint64_t index) {
    enter(Step::kIdle);
    min_index_ = 0;
    trouble_.clear();
    damage_.clear();
    events_.fetched(index);
}

// --- jobs

void CheckpointFetch::run(Job job, std::function<void(Outcome&)> then) {
    CRANE_CHECK(!busy_);
    auto outcome = std::make_shared<Outcome>();
    busy_ = true;
    stop_job_ = std::make_shared<std::atomic<bool>>(false);
    post_(
        [outcome, job = std::move(job), stop = stop_job_] {
            try {
                job(*outcome, [stop] { return stop->load(); });
            } catch (const checkpoint::Stopped&) {
                outcome->stopped = true;
            } catch (const std::exception& error) {
                outcome->error = error.what();
            }
        },
        [this, outcome, then = std::move(then), epoch = epoch_] {
            busy_ = false;
            if (epoch == epoch_ && !outcome->error.empty())
                pause(files_->wanted(min_index_) + " cannot be fetched: " + outcome->error, kDiskPauseNs);
            else if (epoch == epoch_ && !outcome->stopped)
                then(*outcome);
            advance();
        });
}

void CheckpointFetch::resume() {
    run([files = files_, name = chosen_.name](Outcome& out, const auto&) { out.parts = files->resume(name); },
        [this](Outcome& out) {
            if (out.parts)
                arrived(std::move(*out.parts));
            else
                begin_transfer(Step::kManifest, chosen_.manifest_bytes, 0);
        });
}

void CheckpointFetch::begin() {
    run(
        [files = files_, name = chosen_.name, text = manifest_](Outcome& out, const auto&) {
            out.right = files->is_manifest(name, text);
            if (out.right) out.parts = files->begin(name, text);
        },
        [this](Outcome& out) {
            if (!out.right) return blame("has sent a manifest that is not the one it offered");
            choice_.set_arriving({chosen_.name});
            arrived(std::move(*out.parts));
        });
}

void CheckpointFetch::write() {
    std::string bytes = std::move(waiting_);
    waiting_.clear();
    const uint64_t end = written_ + bytes.size();
    run([files = files_, part = part_, offset = written_, bytes = std::move(bytes)](
            Outcome&, const auto&) { files->append(part, offset, bytes); },
        [this, end](Outcome&) {
            trouble_.clear();
            written_ = parts_[part_].have = end;
            if (written_ == size_) enter(Step::kChecking);
        });
}

void CheckpointFetch::check() {
    run([files = files_, part = part_](Outcome& out,
                                       const auto& stop) { out.right = files->check(part, stop); },
        [this](Outcome& out) { checked(out.right); });
}

void CheckpointFetch::checked(bool right) {
    if (right) {
        right_[part_] = true;
        return next_part();
    }
    const CheckpointName name = chosen_.name;
    damage_ = parts_[part_].name + " of " + files_->called(name.index) + " came damaged";
    const bool too_often = choice_.count_damage(name, now_ns_);
    damage_ += too_often ? " again and again: let " + files_->verifier() +
                               " look at what the replicas have, and "
                               "at their links and memory; it is tried again in some minutes"
                         : ", and is fetched again";
    events_.tell(damage_);
    if (part_is_sources_) return blame("has sent it");
    ask();
}

// --- from whom

void CheckpointFetch::on_link(uint32_t peer, bool up) {
    if (up)
        up_.insert(peer);
    else
        up_.erase(peer);
    if (step_ == Step::kAsking && up) ask_one(peer);
    if (step_ == Step::kPausing && up) pause_until_ns_ = std::min(pause_until_ns_, now_ns_ + kNewcomerNs);
    if (step_ == Step::kAsking && !up) choice_.lost(peer);
    if (transfers() && !up && peer == source_) {
        events_.tell("the link to replica " + std::to_string(peer) + " was lost while " +
                     files_->called(chosen_.name.index) + " came");
        ask();
    }
}

void CheckpointFetch::ask() {
    enter(Step::kAsking);
    ++round_;
    choice_.begin_round();
    for (const uint32_t peer : up_) ask_one(peer);
}

void CheckpointFetch::ask_one(uint32_t peer) {
    if (send_(peer, encode(AskWords{round_, min_index_}))) choice_.asked(peer);
}

void CheckpointFetch::on_offers(uint32_t from, const OffersWords& words) {
    if (step_ != Step::kAsking || words.round != round_ || up_.count(from) == 0) return;
    choice_.answered(from, words.offers);
    if (choice_.complete()) choose();
    advance();
}

void CheckpointFetch::choose() {
    const auto chosen = choice_.choose(min_index_, leader_, now_ns_);
    if (!chosen)
        return pause(choice_.why_none(min_index_, files_->wanted(min_index_), files_->verifier()),
                     kNobodyPauseNs);
    enter(Step::kResuming);
    source_ = chosen->source;
    chosen_ = chosen->offer;
    events_.tell("fetching " + files_->called(chosen_.name.index) + ", " + std::to_string(chosen_.bytes) +
                 " bytes, from replica " + std::to_string(source_));
}

void CheckpointFetch::blame(const std::string& what) {
    events_.tell("replica " + std::to_string(source_) + ", which offers " +
                 files_->called(chosen_.name.index) + ", " + what);
    choice_.blame(source_, chosen_.name, now_ns_);
    ask();
}

// --- the bytes

void CheckpointFetch::arrived(std::vector<ArrivedPart> parts) {
    parts_ = std::move(parts);
    right_.assign(parts_.size(), false);
    next_part();
}

void CheckpointFetch::next_part() {
    part_ = static_cast<size_t>(std::find(right_.begin(), right_.end(), false) - right_.begin());
    if (part_ == parts_.size()) return enter(Step::kPublishing);
    const ArrivedPart& part = parts_[part_];
    part_is_sources_ = part.have == 0;
    if (part.have == part.bytes) return enter(Step::kChecking);
    begin_transfer(Step::kPart, part.bytes, part.have);
}

void CheckpointFetch::begin_transfer(Step step, uint64_t size, uint64_t have) {
    enter(step);
    size_ = size;
    asked_ = arrived_ = written_ = have;
}

void CheckpointFetch::request_more() {
    if (up_.count(source_) == 0) return ask();
    const uint32_t file = step_ == Step::kManifest ? kManifestFile : static_cast<uint32_t>(part_ + 1);
    while (asked_ < size_ && asked_ - written_ < kWindow * settings_.chunk_bytes && limit_.allows(now_ns_)) {
        const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(settings_.chunk_bytes, size_ - asked_));
        if (!send_(source_, encode(ReadWords{next_request_, chosen_.name, file, asked_, bytes}))) return;
        requests_.push_back({next_request_++, bytes, now_ns_});
        limit_.took(bytes, now_ns_);
        asked_ += bytes;
    }
}

void CheckpointFetch::look_for_silence() {
    if (requests_.empty() || now_ns_ - requests_.front().sent_ns < kAnswerNs) return;
    if (++silences_ >= kMaxSilences) return blame("does not answer");
    asked_ = arrived_;  // perhaps it was lost with a link: once more
    requests_.clear();
}

void CheckpointFetch::on_chunk(uint32_t from, const ChunkWords& words) {
    if (!transfers() || from != source_ || requests_.empty()) return;
    if (words.request != requests_.front().number) {
        const bool ours = words.request > requests_.front().number && words.request < next_request_;
        if (!ours) return;  // of an earlier step
        asked_ = arrived_;  // something before it was lost
        requests_.clear();
        return advance();
    }
    if (words.bytes.size() != requests_.front().bytes) {
        blame("has sent other bytes than those it was asked for");
        return;
    }
    requests_.pop_front();
    silences_ = 0;
    arrived_ += words.bytes.size();
    if (step_ == Step::kPart) {
        waiting_ += words.bytes;
    } else {
        manifest_ += words.bytes;
        written_ = arrived_;
        if (written_ == size_) enter(Step::kBeginning);
    }
    advance();
}

void CheckpointFetch::on_refusal(uint32_t from, const RefusalWords& words) {
    if (!transfers() || from != source_ || requests_.empty()) return;
    if (words.request < requests_.front().number || words.request >= next_request_) return;
    blame("cannot give it any more");
}

}  // namespace crane::proxy
