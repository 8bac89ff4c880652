#include "profile.hpp"

namespace crane::sim {
namespace {

void choose_network(Random& random, NetworkFaults& network) {
    network.ordered = random.chance(0.75);
    if (random.chance(0.6)) network.loss = static_cast<double>(random.skewed(300)) / 1000;
    if (random.chance(0.4)) network.duplication = static_cast<double>(random.skewed(300)) / 1000;
    network.min_delay_us = random.skewed(500);
    network.max_delay_us = network.min_delay_us + random.skewed(20'000);
}

void choose_sizes(Random& random, paxos::DatabaseSizes& sizes) {
    sizes.page_bytes = random.chance(0.5) ? 512 : 4096;
    sizes.cache_bytes = 512u << 10;
    sizes.log_buffer_bytes = random.chance(0.5) ? 8u << 10 : 32u << 10;
    sizes.log_file_bytes = 4 * sizes.log_buffer_bytes << random.below(2);
    sizes.checkpoint_kbytes = static_cast<uint32_t>(random.below(32));
}

void choose_core(Random& random, paxos::CoreConfig& core) {
    core.heartbeat_us = 10'000;
    core.election_timeout_us = 60'000;
    core.max_election_timeout_us = 240'000;
    core.max_inflight_entries = random.between(4, 64);
    core.max_inflight_bytes = random.between(500, 8'000);
    core.max_batch_bytes = random.chance(0.5) ? random.between(1, 300) : 4'000;
    core.max_memory_entries = random.between(2, 64);
    core.max_memory_bytes = random.between(100, 4'000);
    core.max_delivery_entries = random.between(1, 16);
}

}  // namespace

Profile Profile::of(Random& random) {
    constexpr std::array<unsigned, 8> kSizes = {1, 3, 3, 3, 3, 5, 5, 7};
    Profile profile;
    profile.replicas = kSizes[random.below(kSizes.size())];
    choose_network(random, profile.network);
    choose_sizes(random, profile.sizes);
    choose_core(random, profile.core);
    profile.fault_interval_us = random.between(5'000, 60'000);
    profile.operation_interval_us = random.between(5'000, 60'000);
    profile.proposal_interval_us = random.between(1'000, 8'000);
    profile.large_values = random.chance(0.2);
    profile.membership_changes = random.chance(0.6);
    profile.truncations = random.chance(0.6);
    if (random.chance(0.2)) profile.sync_max_us = 20'000;
    for (uint32_t& weight : profile.weights)
        weight = random.chance(0.3) ? 0 : static_cast<uint32_t>(random.skewed(100));
    profile.weights[static_cast<size_t>(FaultKind::kReconnect)] += 20;
    profile.weights[static_cast<size_t>(FaultKind::kWriteBack)] += 20;
    return profile;
}

AddedFaults AddedFaults::of(Random& random) {
    AddedFaults added;
    if (random.chance(0.3)) return added;
    added.peer_gone = random.chance(0.6);
    added.pause_delivery = random.chance(0.5);
    if (added.peer_gone || added.pause_delivery) added.interval_us = random.between(10'000, 200'000);
    if (random.chance(0.5)) added.rot = static_cast<double>(random.between(10, 500)) / 1000;
    if (random.chance(0.3)) added.verification = static_cast<double>(random.skewed(400)) / 1000;
    added.bar = random.chance(0.4);
    added.no_room = random.chance(0.3);
    if ((added.bar || added.no_room) && added.interval_us == 0)
        added.interval_us = random.between(10'000, 200'000);
    if (random.chance(0.5)) added.old_disk = static_cast<double>(random.between(50, 700)) / 1000;
    return added;
}

FaultKind Profile::pick(Random& random) const {
    uint64_t total = 0;
    for (const uint32_t weight : weights) total += weight;
    uint64_t place = random.below(total);
    size_t kind = 0;
    while (place >= weights[kind]) place -= weights[kind++];
    return static_cast<FaultKind>(kind);
}

std::string Profile::text() const {
    return std::to_string(replicas) + " replicas, " + (network.ordered ? "ordered" : "unordered") +
           " links, loss " + std::to_string(static_cast<int>(network.loss * 100)) + " %, duplication " +
           std::to_string(static_cast<int>(network.duplication * 100)) + " %, delay " +
           std::to_string(network.min_delay_us) + " to " + std::to_string(network.max_delay_us) +
           " us, a fault every " + std::to_string(fault_interval_us) + " us, pages of " +
           std::to_string(sizes.page_bytes) + " bytes" + (membership_changes ? ", membership changes" : "") +
           (truncations ? ", truncations" : "");
}

}  // namespace crane::sim
