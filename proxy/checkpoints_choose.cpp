// Which of its checkpoints a replica starts from, and what becomes of those that it cannot use.
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "proxy/checkpoints.hpp"

namespace crane::proxy {

namespace {

/// Whose state it is, as far as it can be read; empty: it does not say.
std::string cluster_in(const nlohmann::json& state) {
    const auto found = state.is_object() ? state.find("cluster") : state.end();
    return found != state.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

bool takes_checkpoints(const Config& config) {
    return config.mode == Mode::kFull && config.container;
}

/// As the log's database is refused: with the settings put right, all is there.
std::vector<checkpoint::StoredCheckpoint> Checkpoints::all_of_this_cluster() const {
    std::vector<checkpoint::StoredCheckpoint> all = store_->survey();
    for (const checkpoint::StoredCheckpoint& one : all) {
        const std::string cluster = cluster_in(one.manifest.state);
        if (!cluster.empty() && cluster != config_.cluster_id)
            throw std::runtime_error("checkpoint " + one.path + " belongs to cluster " + cluster +
                                     ", not to " + config_.cluster_id +
                                     ": check cluster_id and state_dir, or use an empty directory");
    }
    return all;
}

void Checkpoints::tidy() {
    try {
        store_->remove_unfinished();
        store_->put_back_unread();
    } catch (const std::exception& error) {
        error_ = error.what();
        spdlog::error("{}", error_);
    }
}

/// The newest that is whole. One that is damaged is passed over, and said.
void Checkpoints::choose(const std::function<void()>& busy) {
    all_of_this_cluster();
    tidy();
    for (const checkpoint::StoredCheckpoint& one : all_of_this_cluster()) {
        CheckpointState state;
        const Fault fault = fault_of(one, state, busy);
        if (fault.what.empty() && state.live && !takes_images_ && !config_.witness) {
            error_ =
                "the checkpoint at log index " + std::to_string(one.index) +
                " holds an image of a running server, and this host has no CRIU to restore it: see crane "
                "check";
            spdlog::error("{}", error_);
            continue;
        }
        if (fault.what.empty()) {
            spdlog::info("starting from the checkpoint at log index {}, server number {}{}", one.index,
                         state.generation, state.live ? ", as it ran there" : "");
            holds(one);
            archive_ = one.path + "/" + kFiles;
            from_ = std::move(state);
            return;
        }
        error_ = "the checkpoint at log index " + std::to_string(one.index) + " is of no use: " + fault.what;
        if (!fault.damaged) error_ += "; it is kept, and looked at again at the next start";
        spdlog::error("{}", error_);
        set_aside(one.index, fault.damaged);
    }
}

Checkpoints::Fault Checkpoints::fault_of(const checkpoint::StoredCheckpoint& one, CheckpointState& state,
                                         const std::function<void()>& busy) const {
    if (!one.error.empty()) return {one.error, one.damaged};
    if (std::string wrong = from_json(one.manifest.state, state); !wrong.empty()) return {wrong};
    if (state.position.index != one.index) return {"it names another entry"};
    const bool begins = state.live && !config_.witness;
    if (begins && state.live->words.transport_version != timebubble::kTransportVersion)
        return {
            "its server runs under a shim of another version, which this craned does not understand; start "
            "the version of Crane that took it"};
    const checkpoint::StoredCheckpoint now = store_->checked(one.index, [&busy] {
        if (busy) busy();
        return false;
    });
    return {now.error, now.damaged};
}

/// Else it would be taken for the one that is wanted, should another have to be fetched.
void Checkpoints::set_aside(uint64_t index, bool damaged) {
    try {
        if (damaged) {
            store_->set_aside(index);
        } else {
            store_->set_aside_unread(index);
        }
    } catch (const std::exception& error) {
        spdlog::error("{}", error.what());
    }
}

}  // namespace crane::proxy
