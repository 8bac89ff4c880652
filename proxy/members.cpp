#include "proxy/members.hpp"

#include <nlohmann/json.hpp>

namespace crane::proxy {

namespace {

/// Buckets: [upper bound in microseconds, how many took longer than the one before]; null: any longer.
nlohmann::json histogram_json(const LatencyHistogram& all) {
    nlohmann::json buckets = nlohmann::json::array();
    for (size_t i = 0; i < all.counts().size(); ++i) {
        const bool last = i == LatencyHistogram::kBoundsUs.size();
        buckets.push_back(
            {last ? nlohmann::json() : nlohmann::json(LatencyHistogram::kBoundsUs[i]), all.counts()[i]});
    }
    return {{"count", all.count()}, {"sum_us", all.sum_us()}, {"buckets", buckets}};
}

}  // namespace

std::vector<uint32_t> voter_ids(const paxos::Membership& membership) {
    std::vector<uint32_t> ids;
    for (const paxos::Member& member : membership.members)
        if (member.voter) ids.push_back(member.id);
    return ids;
}

std::vector<uint32_t> server_ids(const paxos::Membership& membership, const std::set<uint32_t>& witnesses) {
    std::vector<uint32_t> ids = voter_ids(membership);
    std::erase_if(ids, [&](uint32_t id) { return witnesses.count(id) != 0; });
    return ids;
}

nlohmann::json peers_json(const Sequencer& sequencer, const std::set<uint32_t>& witnesses) {
    nlohmann::json peers = nlohmann::json::array();
    for (const auto& peer : sequencer.peers()) {
        peers.push_back({{"replica", peer.id},
                         {"voter", peer.voter},
                         {"witness", witnesses.count(peer.id) != 0},
                         {"rejoining", peer.rejoining},
                         {"needs_checkpoint", peer.needs_checkpoint},
                         {"connected", peer.connected && !peer.silent},
                         {"protocol", peer.protocol},
                         {"matched", peer.matched},
                         {"heard_ms_ago", peer.heard_ms_ago}});
    }
    return peers;
}

nlohmann::json membership_json(const Sequencer& sequencer) {
    nlohmann::json members = nlohmann::json::array();
    for (const auto& member : sequencer.membership().members) {
        members.push_back({{"replica", member.id}, {"voter", member.voter}, {"address", member.address}});
    }
    return {{"index", sequencer.membership_index()},
            {"decided", sequencer.membership_index() <= sequencer.decided_index()},
            {"highest_id", sequencer.membership().highest_id},
            {"members", members}};
}

nlohmann::json latency_json(const Sequencer& sequencer) {
    return {{"consensus", histogram_json(sequencer.latency())},
            {"sync", histogram_json(sequencer.stats().sync_latency)}};
}

}  // namespace crane::proxy
