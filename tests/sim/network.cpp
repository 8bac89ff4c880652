#include "network.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace crane::sim {
namespace {

constexpr size_t kMaxPackets = 20'000;  // more are lost, as by full queues
constexpr uint64_t kMaxLateUs = 200'000;

}  // namespace

void Network::push(Packet packet) {
    packet.sequence = ++sequence_;
    packets_.push_back(std::move(packet));
    std::push_heap(packets_.begin(), packets_.end());
}

void Network::send(uint64_t now_us, const paxos::Message& message) {
    Link& link = links_[{message.from, message.to}];
    if (cut_.count({message.from, message.to}) > 0 || now_us < link.down_until_us ||
        packets_.size() >= kMaxPackets || (faults.loss > 0 && random_.chance(faults.loss))) {
        counts_.add(Count::kMessagesLost);
        return;
    }
    const bool again = faults.duplication > 0 && random_.chance(faults.duplication);
    if (again) counts_.add(Count::kMessagesDuplicated);
    for (int copy = 0; copy < (again ? 2 : 1); ++copy) {
        Packet packet;
        packet.at_us = std::max(now_us, link.clogged_until_us) +
                       random_.between(faults.min_delay_us, faults.max_delay_us);
        if (faults.ordered)
            packet.at_us = std::max(packet.at_us, link.last_at_us);
        else if (random_.chance(0.01))
            packet.at_us += random_.below(kMaxLateUs);
        link.last_at_us = packet.at_us;
        packet.connection = link.connection;
        packet.message = message;
        push(std::move(packet));
    }
    counts_.add(Count::kMessages);
}

bool Network::pop(Packet& packet) {
    CRANE_CHECK(!packets_.empty());
    std::pop_heap(packets_.begin(), packets_.end());
    packet = std::move(packets_.back());
    packets_.pop_back();
    const std::pair<Id, Id> way{packet.message.from, packet.message.to};
    if (packet.link_up) return true;
    return cut_.count(way) == 0 && links_[way].connection == packet.connection;
}

void Network::unclog(uint64_t now_us) {
    for (auto& [way, link] : links_) link.clogged_until_us = std::min(link.clogged_until_us, now_us);
}

void Network::break_connection(Id from, Id to, uint64_t now_us) {
    Link& link = links_[{from, to}];
    ++link.connection;
    link.down_until_us = now_us + random_.skewed(50'000);
    link.last_at_us = 0;
    Packet up;
    up.link_up = true;
    up.at_us = link.down_until_us;
    up.message.from = to;
    up.message.to = from;
    push(std::move(up));
}

}  // namespace crane::sim
