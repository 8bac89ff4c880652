#include "proxy/checkpoints.hpp"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

namespace crane::proxy {

namespace {

constexpr size_t kKept = 2;
constexpr char kFiles[] = "files.tar.zst";

bool takes_checkpoints(const Config& config) {
    return config.mode == Mode::kFull && config.container;
}

}  // namespace

Checkpoints::Checkpoints(event_base* base, const Config& config)
    : config_(config),
      store_(std::make_shared<checkpoint::CheckpointStore>(config.state_dir + "/checkpoints")),
      keeper_(base, "crane-keep") {
    choose();
}

/// The newest that is whole. One that is damaged is passed over, and said.
void Checkpoints::choose() {
    if (!takes_checkpoints(config_)) return;
    try {
        store_->remove_unfinished();
    } catch (const std::exception& error) {
        error_ = error.what();
        spdlog::error("{}", error_);
    }
    for (const checkpoint::StoredCheckpoint& one : store_->survey()) {
        CheckpointState state;
        std::string wrong = one.error;
        if (wrong.empty()) wrong = from_json(one.manifest.state, state);
        if (wrong.empty() && state.cluster != config_.cluster_id)
            wrong = "it is of another cluster, " + state.cluster;
        if (wrong.empty() && state.position.index != one.index) wrong = "it names another entry";
        if (wrong.empty()) wrong = store_->verify(one.index);
        if (wrong.empty()) {
            spdlog::info("starting from the checkpoint at log index {}, server number {}", one.index,
                         state.generation);
            held_index_ = one.index;
            archive_ = one.path + "/" + kFiles;
            from_ = std::move(state);
            return;
        }
        error_ = "the checkpoint at log index " + std::to_string(one.index) + " is of no use: " + wrong;
        spdlog::error("{}", error_);
        set_aside(one.index);
    }
}

/// Else it would be taken for the one that is wanted, should another have to be fetched.
void Checkpoints::set_aside(uint64_t index) {
    try {
        store_->set_aside(index);
    } catch (const std::exception& error) {
        spdlog::error("{}", error.what());
    }
}

void Checkpoints::decided(uint64_t generation, CheckpointState state) {
    if (!takes_checkpoints(config_) || state.position.index <= held_index_) return;
    points_[generation] = std::move(state);
}

bool Checkpoints::due() const {
    return takes_checkpoints(config_) && log_bytes_ >= config_.checkpoint_log_bytes;
}

std::optional<CheckpointState> Checkpoints::take_point(uint64_t generation) {
    const auto found = points_.find(generation);
    if (found == points_.end()) return std::nullopt;
    std::optional<CheckpointState> point = std::move(found->second);
    points_.erase(points_.begin(), std::next(found));
    return point;
}

void Checkpoints::failed(uint64_t index, const std::string& why) {
    error_ = "the checkpoint at log index " + std::to_string(index) + " could not be kept: " + why;
    spdlog::error("{}", error_);
}

std::function<void(const checkpoint::DomainHost&)> Checkpoints::packer(uint64_t index) const {
    return [store = store_, index](const checkpoint::DomainHost& host) {
        host.pack_files(store->begin(index) + "/" + kFiles);
    };
}

void Checkpoints::packed(const CheckpointState& state, const std::string& error, std::set<uint64_t> in_use,
                         std::function<void(uint64_t)> held) {
    const uint64_t index = state.position.index;
    if (!error.empty()) {
        failed(index, error);
        const auto job = [store = store_, index] {
            try {
                store->abandon(index);
            } catch (const std::exception& what) {
                spdlog::error("{}", what.what());  // removed at the next start
            }
        };
        keeper_.post(job, nullptr);
        return;
    }
    auto problem = std::make_shared<std::string>();
    const auto job = [store = store_, state, index, problem, in_use = std::move(in_use)] {
        try {
            store->complete(index, to_json(state));
            store->prune(kKept, in_use);
        } catch (const std::exception& what) {
            *problem = what.what();
        }
    };
    keeper_.post(job, [this, index, problem, held = std::move(held)] {
        if (!problem->empty()) {
            failed(index, *problem);
            return;
        }
        spdlog::info("a checkpoint is kept at log index {}", index);
        error_.clear();
        held_index_ = index;
        log_bytes_ = 0;
        held(index);
    });
}

nlohmann::json Checkpoints::json() const {
    return {{"index", held_index_}, {"log_bytes_since", log_bytes_}, {"error", error_}};
}

}  // namespace crane::proxy
