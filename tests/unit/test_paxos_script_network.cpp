// What a text script does to messages and time.
#include <algorithm>
#include <stdexcept>

#include "paxos/core/describe.hpp"
#include "paxos/core/message.hpp"
#include "test_paxos_script_world.hpp"

namespace crane::paxos::script {
namespace {

constexpr int kEndless = 10'000;  // deliveries: the replicas never come to rest

}  // namespace

bool Selector::fits(const Message& message) const {
    const auto end_fits = [](ReplicaId wanted, ReplicaId is) { return wanted == kNoReplica || wanted == is; };
    const bool there = end_fits(from, message.from) && end_fits(to, message.to);
    const bool back = both_ways && end_fits(from, message.to) && end_fits(to, message.from);
    return (there || back) && (type.empty() || type == message_name(message.type));
}

std::vector<size_t> World::chosen(const Selector& selector) const {
    std::vector<size_t> places;
    for (size_t i = 0; i < network_.size(); ++i)
        if (selector.fits(network_[i].message)) places.push_back(i);
    if (selector.first && places.size() > 1) places.resize(1);
    if (selector.last && places.size() > 1) places.erase(places.begin(), places.end() - 1);
    if (places.empty()) throw std::runtime_error("no such message is under way");
    return places;
}

std::vector<World::Packet> World::take(const Selector& selector) {
    const std::vector<size_t> places = chosen(selector);
    std::vector<Packet> taken;
    for (size_t place : places) taken.push_back(network_[place]);
    for (auto place = places.rbegin(); place != places.rend(); ++place)
        network_.erase(network_.begin() + static_cast<std::ptrdiff_t>(*place));
    return taken;
}

void World::send(const std::vector<Message>& messages) {
    for (const Message& sent : messages) {
        std::string bytes;
        encode(sent, bytes);
        Message message;
        if (!decode(bytes, message)) violation_ = "a message does not decode: " + describe(sent);
        const bool lost = cut_.count({message.from, message.to}) > 0;
        const bool held = std::any_of(holds_.begin(), holds_.end(),
                                      [&](const Selector& each) { return each.fits(message); });
        say("  " + describe(message) + (lost ? " (lost)" : held ? " (held)" : ""));
        if (!lost) network_.push_back({message, held});
    }
}

void World::arrive(const Message& message) {
    const Replica& target = replica(message.to);
    if (target.core == nullptr) {
        say("> " + describe(message) + " (" + std::to_string(message.to) + " is down)");
        return;
    }
    Replica& receiver = running(message.to);
    say("> " + describe(message));
    receiver.core->step(message);
    report_role(message.to);
}

void World::deliver(const Selector& selector, bool together) {
    std::set<ReplicaId> touched;
    for (const size_t place : chosen(selector))
        if (replica(network_[place].message.to).waiting)
            throw std::runtime_error(std::to_string(network_[place].message.to) + " waits for its disk");
    for (const Packet& packet : take(selector)) {
        arrive(packet.message);
        if (replica(packet.message.to).core == nullptr) continue;
        if (together)
            touched.insert(packet.message.to);
        else
            turn(packet.message.to);
    }
    for (ReplicaId id : touched) turn(id);
}

void World::drop(const Selector& selector) {
    for (const Packet& packet : take(selector)) say("lost: " + describe(packet.message));
}

void World::duplicate(const Selector& selector) {
    for (const size_t place : chosen(selector)) {
        say("again: " + describe(network_[place].message));
        network_.push_back(network_[place]);
    }
}

void World::hold(const Selector& selector) {
    holds_.push_back(selector);
    for (Packet& packet : network_)
        if (selector.fits(packet.message)) packet.held = true;
}

void World::release() {
    holds_.clear();
    for (Packet& packet : network_) packet.held = false;
}

void World::settle() {
    for (int delivered = 0; delivered < kEndless; ++delivered) {
        const auto next = std::find_if(network_.begin(), network_.end(), [&](const Packet& packet) {
            return !packet.held && !replica(packet.message.to).waiting;
        });
        if (next == network_.end()) return;
        const Message message = next->message;
        network_.erase(next);
        arrive(message);
        if (replica(message.to).core != nullptr) turn(message.to);
    }
    violation_ = "the replicas talk without end";
}

void World::cut(const Selector& selector) {
    for (ReplicaId from : ids())
        for (ReplicaId to : ids()) {
            Message message;
            message.from = from;
            message.to = to;
            if (from != to && selector.fits(message)) cut_.insert({from, to});
        }
    std::vector<Packet> left;
    for (const Packet& packet : network_)
        if (cut_.count({packet.message.from, packet.message.to}) > 0)
            say("lost: " + describe(packet.message));
        else
            left.push_back(packet);
    network_ = std::move(left);
}

void World::show_network() {
    for (const Packet& packet : network_)
        say("under way: " + describe(packet.message) + (packet.held ? " (held)" : ""));
}

void World::wait(uint64_t us, bool delivering) {
    const uint64_t end_us = now_us_ + us;
    while (true) {
        uint64_t next_us = UINT64_MAX;
        for (const auto& [id, each] : replicas_)
            if (each.core != nullptr && !each.waiting)
                next_us = std::min(next_us, each.core->next_deadline_us());
        if (next_us > end_us) break;
        now_us_ = std::max(now_us_, next_us);
        for (auto& [id, each] : replicas_) {
            if (each.core == nullptr || each.waiting || each.core->next_deadline_us() > now_us_) continue;
            timeout(id);
            if (each.core != nullptr && each.core->next_deadline_us() <= now_us_) {
                violation_ = std::to_string(id) + " asks to be called without end";
                return;
            }
        }
        if (delivering) settle();
    }
    now_us_ = end_us;
}

void World::timeout(ReplicaId id) {
    Replica& which = running(id);
    now_us_ = std::max(now_us_, which.core->next_deadline_us());
    const uint64_t tenths = (now_us_ - kScriptStartUs) / 100;
    say("at " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms " +
        std::to_string(id) + ":");
    which.core->tick(now_us_);
    turn(id);
}

}  // namespace crane::paxos::script
