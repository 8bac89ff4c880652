#include "proxy/output_log.hpp"

#include <spdlog/spdlog.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "proxy/worker.hpp"

namespace crane::proxy {

using timebubble::OutputKind;

namespace {

constexpr uint64_t kFiles = 4;
constexpr size_t kChunkBytes = 256 * 1024;
constexpr size_t kLeastChunkBytes = 4096;
constexpr int kMaxJobs = 64;
constexpr int kFinishMs = 2000;

OutputLogHeader identity_of(const Config& config) {
    OutputLogHeader header{};
    memcpy(header.magic, kOutputLogMagic, sizeof(header.magic));
    header.version = kOutputLogVersion;
    header.replica = config.replica_id;
    strncpy(header.cluster_id, config.cluster_id.c_str(), sizeof(header.cluster_id) - 1);
    header.content = static_cast<uint32_t>(config.log_content);
    return header;
}

}  // namespace

/// Between the loop and the thread that writes.
struct OutputLog::Shared {
    std::optional<OutputFiles> files;  ///< of the one who runs jobs
    std::atomic<bool> abandoned{false};
    std::atomic<size_t> posted_bytes{0};   ///< in jobs that have not run
    std::atomic<size_t> waiting_bytes{0};  ///< that the files could not write
    std::atomic<int> posted_jobs{0};
    std::atomic<uint64_t> jobs_done{0};
    std::atomic<bool> failing{false};
    std::mutex mutex;
    std::string error;  ///< under the mutex, as the next
    std::string spare;  ///< memory for the next chunk

    size_t outstanding() const { return posted_bytes.load() + waiting_bytes.load(); }

    void run(const Job& job, size_t bytes) {
        if (!abandoned) job(*this);
        if (files) {
            waiting_bytes = files->bytes();
            const std::lock_guard<std::mutex> guard(mutex);
            error = files->error();
            failing = !error.empty();
        }
        posted_bytes -= bytes;
        --posted_jobs;
        ++jobs_done;
    }
};

OutputLog::OutputLog(const std::string& state_dir, const Config& config, const OutputPosition& from,
                     event_base* base)
    : shared_(std::make_shared<Shared>()),
      content_(config.log_content),
      chunk_bytes_(std::clamp<size_t>(config.log_max_bytes / kFiles / 2, kLeastChunkBytes, kChunkBytes)),
      at_(from) {
    if (base) worker_ = std::make_unique<Worker>(base, "crane-outlog");
    run([path = state_dir + "/output.log", identity = identity_of(config),
         limit = config.log_max_bytes / kFiles,
         from](Shared& shared) { shared.files.emplace(path, identity, limit, from, shared.abandoned); });
}

void OutputLog::abandon() {
    shared_->abandoned = true;
}

OutputLog::~OutputLog() {
    if (shared_->abandoned) return;
    flush();
    if (!worker_) return;
    if (worker_->finish(kFinishMs)) return;
    // The file may be another's by the time that the disk goes on.
    shared_->abandoned = true;
    spdlog::error("OUTPUT LOG: the disk has not taken the last {} bytes within {} ms: they are lost",
                  shared_->outstanding(), kFinishMs);
}

void OutputLog::run(Job job, size_t bytes) {
    shared_->posted_bytes += bytes;
    ++shared_->posted_jobs;
    if (!worker_) {
        shared_->run(job, bytes);
        return;
    }
    worker_->post([shared = shared_, job = std::move(job), bytes] { shared->run(job, bytes); }, {});
}

void OutputLog::hand_over(const OutputPosition& to) {
    pending_.to = to;
    const size_t bytes = pending_.bytes.size();
    // A std::function must be able to be copied; this one never is.
    auto chunk = std::make_shared<OutputChunk>(std::exchange(pending_, {}));
    {
        const std::lock_guard<std::mutex> guard(shared_->mutex);
        pending_.bytes.swap(shared_->spare);
    }
    run(
        [chunk](Shared& shared) {
            std::string spare = shared.files->write(std::move(*chunk));
            spare.clear();
            const std::lock_guard<std::mutex> guard(shared.mutex);
            shared.spare.swap(spare);
        },
        bytes);
}

/// For a record that comes after `before`. False: it is lost.
bool OutputLog::room_for(const OutputPosition& before) {
    const size_t waits = shared_->outstanding();
    if (losing_ && waits == 0) losing_ = false;
    if (!losing_ && waits + pending_.bytes.size() > kMaxBytes) {
        if (!pending_.bytes.empty()) hand_over(before);
        losing_ = true;
        spdlog::error("OUTPUT LOG: the disk takes nothing, and memory is full: records from {} on are lost",
                      before.records);
    }
    return !losing_;
}

void OutputLog::append(const timebubble::OutputHeader& header, std::string_view payload) {
    if (header.kind == OutputKind::kConsumed || header.kind == OutputKind::kMessage ||
        header.kind == OutputKind::kProbes)
        return;
    OutputLogRecord record{header.bytes,
                           static_cast<uint16_t>(header.kind),
                           header.flags,
                           header.connection,
                           header.clock,
                           header.schedule_hash,
                           {}};
    const OutputPosition before = at_;
    const Hash128 payload_hash = hash_payload(payload);
    at_.chain = record.chain = next_chain(at_.chain, record, payload_hash);
    ++at_.records;
    bytes_ += output_bytes(record.kind, payload.size());
    if (header.kind == OutputKind::kAdmitted && payload.size() >= sizeof(timebubble::AdmittedRecord)) {
        memcpy(&at_.admitted_index, payload.data(), sizeof(at_.admitted_index));
    }
    if (!room_for(before)) return;
    std::string& bytes = pending_.bytes;
    if (bytes.empty()) pending_.from = before;
    bytes.append(reinterpret_cast<const char*>(&record), sizeof(record));
    if (content_ == LogContent::kHash && header.kind == OutputKind::kSend) {
        bytes.append(reinterpret_cast<const char*>(&payload_hash), sizeof(payload_hash));
    } else {
        bytes.append(payload);
        bytes.append(timebubble::padded(payload.size()) - payload.size(), '\0');
    }
    if (bytes.size() >= chunk_bytes_) hand_over(at_);
}

void OutputLog::flush() {
    if (shared_->posted_jobs >= kMaxJobs) return;  // the disk stands still; what is pending is bounded
    if (reopen_wanted_) reopen();
    if (losing_ && shared_->outstanding() == 0) {
        losing_ = false;
        pending_.from = at_;
        hand_over(at_);  // nothing, from here on: the gap shows even if no record comes any more
    } else if (!pending_.bytes.empty()) {
        hand_over(at_);
    } else if (shared_->waiting_bytes != 0 && shared_->posted_jobs == 0) {
        run([](Shared& shared) { shared.files->retry(); });
    }
}

void OutputLog::settle(int patience_ms) {
    if (!worker_ || stuck_at_ == shared_->jobs_done) return;
    stuck_at_.reset();
    if (!worker_->finish(patience_ms)) stuck_at_ = shared_->jobs_done;
}

void OutputLog::reopen() {
    reopen_wanted_ = shared_->posted_jobs >= kMaxJobs;  // then when the disk goes on
    if (reopen_wanted_) return;
    if (!pending_.bytes.empty()) hand_over(at_);
    run([](Shared& shared) { shared.files->reopen(); });
}

bool OutputLog::must_wait(uint64_t now_ns) {
    const uint64_t done = shared_->jobs_done;
    if (shared_->outstanding() < kHoldBytes || done != jobs_seen_) {
        moved_ns_ = now_ns;
        jobs_seen_ = done;
    }
    return shared_->outstanding() >= kHoldBytes && !losing_ && !shared_->failing &&
           now_ns - moved_ns_ < kStandsStillNs;
}

bool OutputLog::buffered() const {
    return !pending_.bytes.empty() || losing_ || reopen_wanted_ || shared_->waiting_bytes != 0;
}

std::string OutputLog::error() const {
    const std::lock_guard<std::mutex> guard(shared_->mutex);
    return shared_->error;
}

}  // namespace crane::proxy
