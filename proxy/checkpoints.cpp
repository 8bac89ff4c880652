#include "proxy/checkpoints.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/criu_program.hpp"
#include "proxy/process_tree.hpp"

namespace crane::proxy {

namespace {

constexpr size_t kKept = 2;
/// In the loop: whoever can wait longer for `keeping()` to be over does so before.
constexpr int kEndPatienceMs = 1000;
constexpr char kImage[] = "image.tar.zst";
constexpr char kUnwanted[] = "it is not wanted any more";

}  // namespace

Checkpoints::Checkpoints(event_base* base, const Config& config, std::shared_ptr<checkpoint::KnownSums> sums,
                         const std::function<void()>& busy)
    : config_(config),
      store_(
          std::make_shared<checkpoint::CheckpointStore>(config.state_dir + "/checkpoints", std::move(sums))),
      takes_images_(takes_checkpoints(config) && !checkpoint::find_criu().empty()),
      keeper_(base, "crane-keep") {
    if (takes_checkpoints(config_)) choose(busy);
}

void Checkpoints::try_refused_again(const Config& config) {
    if (!takes_checkpoints(config)) return;
    try {
        checkpoint::CheckpointStore(config.state_dir + "/checkpoints").put_back_refused();
    } catch (const std::exception& error) {
        spdlog::error("checkpoints that no server could be restored from stay set aside: {}", error.what());
    }
}

Checkpoints::~Checkpoints() {
    leave_unfinished();
    if (!keeper_.finish(kEndPatienceMs))
        spdlog::error("a checkpoint is still being written; look for uninterruptible I/O");
}

DomainRunner::Image Checkpoints::image(const DomainWords& words) const {
    // Other marks than this one's are of earlier images, which stood behind earlier entries.
    const auto mark = static_cast<uint32_t>(held_index_);
    return {archive_, std::filesystem::path(archive_).replace_filename(kImage), words, mark != 0 ? mark : 1,
            ""};
}

std::function<DomainRunner::ImagePlace()> Checkpoints::image_place(uint64_t index, pid_t init) {
    image_ = {index};
    return [store = store_, index, init, reserve_bytes = config_.disk_reserve_bytes,
            state_dir = config_.state_dir, unwanted = image_.unwanted] {
        store->make();
        // Pages lie on the disk as they are before they are packed. What else there is, the last one tells.
        uint64_t wanted_bytes = tree_memory_bytes(init);
        if (const auto last = store->newest()) wanted_bytes += last->manifest.bytes();
        store->check_room(wanted_bytes, reserve_bytes);
        const std::string folder = store->begin(index);
        return DomainRunner::ImagePlace{folder + "/" + kFiles, folder + "/" + kImage,
                                        [store, reserve_bytes, state_dir, unwanted] {
                                            if (*unwanted) throw std::runtime_error(kUnwanted);
                                            store->check_reserve(reserve_bytes, state_dir);
                                        }};
    };
}

void Checkpoints::leave_unfinished() {
    *image_.unwanted = true;
}

void Checkpoints::pack(const CheckpointState& state, DomainRunner::Pack pack, std::set<uint64_t> in_use,
                       std::function<void(bool kept)> done) {
    auto problem = std::make_shared<std::string>();
    const auto job = [pack = std::move(pack), problem]() mutable {
        try {
            pack();
        } catch (const std::exception& what) {
            *problem = what.what();
        }
        pack = nullptr;  // and the image with it
    };
    keeper_.post(job, [this, state, problem, in_use = std::move(in_use), done = std::move(done)] {
        packed(state, *problem, in_use, done);
    });
}

void Checkpoints::image_failed(const std::string& why) {
    error_ = "no checkpoint of the running server could be taken: " + why;
    spdlog::error("{}", error_);
}

void Checkpoints::refuse(const std::string& why) {
    error_ = "the checkpoint at log index " + std::to_string(held_index_) + " is of no use: " + why +
             "; it is kept for now, and tried again when craned is started again";
    spdlog::error("{}", error_);
    try {
        store_->set_aside_refused(held_index_);
    } catch (const std::exception& error) {
        spdlog::error("{}", error.what());
    }
}

void Checkpoints::distrust(uint64_t index) {
    for (const Taking& one : {image_, files_})
        if (one.index >= index) *one.unwanted = *one.distrusted = true;
    try {
        store_->put_back_unread();  // those, too
        store_->give_up_refused(index);
        for (const checkpoint::StoredCheckpoint& one : store_->survey()) {
            if (one.index < index) continue;
            spdlog::warn("the checkpoint at log index {} may hold what differs, and is set aside", one.index);
            set_aside(one.index);
        }
    } catch (const std::exception& error) {  // then it begins from one of them, and is found to differ
        spdlog::error("{}", error.what());
    }
}

void Checkpoints::adopt(uint64_t index, std::set<uint64_t> in_use) {
    if (index <= held_index_) return;
    held_index_ = index;
    log_bytes_ = 0;
    auto found = std::make_shared<std::optional<checkpoint::StoredCheckpoint>>();
    const auto job = [store = store_, index, found, in_use = std::move(in_use)] {
        try {
            *found = store->find(index);
            store->prune(kKept, in_use);
        } catch (const std::exception& what) {
            spdlog::error("{}", what.what());
        }
    };
    keeper_.post(job, [this, index, found] {
        if (*found && held_index_ == index) holds(**found);
    });
}

void Checkpoints::holds(const checkpoint::StoredCheckpoint& one) {
    held_index_ = one.index;
    held_bytes_ = one.manifest.bytes();
    held_since_s_ = one.since;
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

std::function<void(const checkpoint::DomainHost&)> Checkpoints::packer(uint64_t index) {
    files_ = {index};
    return [store = store_, index, reserve_bytes = config_.disk_reserve_bytes, state_dir = config_.state_dir,
            unwanted = files_.unwanted](const checkpoint::DomainHost& host) {
        host.pack_files(store->begin(index) + "/" + kFiles, [store, reserve_bytes, state_dir, unwanted] {
            if (*unwanted) throw std::runtime_error(kUnwanted);
            store->check_reserve(reserve_bytes, state_dir);
        });
    };
}

void Checkpoints::packed(const CheckpointState& state, const std::string& error, std::set<uint64_t> in_use,
                         std::function<void(bool kept)> done) {
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
        done(false);
        return;
    }
    auto problem = std::make_shared<std::string>();
    auto kept = std::make_shared<checkpoint::StoredCheckpoint>();
    std::vector<Taking> taking;
    for (const Taking& one : {image_, files_})
        if (one.index == index) taking.push_back(one);
    const auto is_set = [taking](Taking::Flag Taking::*flag) {
        return std::ranges::any_of(taking, [flag](const Taking& one) { return (one.*flag)->load(); });
    };
    const auto job = [store = store_, state, index, problem, kept, is_set, in_use = std::move(in_use)] {
        try {
            *kept = store->complete(index, to_json(state), [&] { return is_set(&Taking::unwanted); });
            store->prune(kKept, in_use);
        } catch (const checkpoint::Stopped&) {
            *problem = kUnwanted;
        } catch (const std::exception& what) {
            *problem = what.what();
        }
    };
    keeper_.post(job, [this, index, problem, kept, is_set, done = std::move(done)] {
        // It was published in the moment in which it came to be so.
        if (problem->empty() && is_set(&Taking::distrusted)) {
            *problem = kUnwanted;
            set_aside(index);
        }
        if (!problem->empty()) {
            failed(index, *problem);
            done(false);
            return;
        }
        spdlog::info("a checkpoint is kept at log index {}", index);
        error_.clear();
        holds(*kept);
        log_bytes_ = 0;
        done(true);
    });
}

nlohmann::json Checkpoints::json(uint64_t majority_index, bool being_taken) const {
    return {{"index", held_index_},          {"majority_index", majority_index},
            {"images", takes_images_},       {"bytes", held_bytes_},
            {"since_s", held_since_s_},      {"being_taken", being_taken},
            {"log_bytes_since", log_bytes_}, {"error", error_}};
}

}  // namespace crane::proxy
