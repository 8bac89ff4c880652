#include "proxy/checkpoint_choice.hpp"

#include <algorithm>
#include <tuple>

namespace crane::proxy {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kFirstPauseNs = 5 * kSecondNs;
constexpr uint64_t kLongestPauseNs = 60 * kSecondNs;
constexpr unsigned kMaxDamaged = 3;
constexpr uint64_t kRefusedNs = 300 * kSecondNs;
constexpr size_t kMaxRemembered = 256;

}  // namespace

void CheckpointChoice::answered(uint32_t peer, const std::vector<Offer>& offers) {
    unanswered_.erase(peer);
    offers_[peer] = offers;
}

void CheckpointChoice::lost(uint32_t peer) {
    unanswered_.erase(peer);
    offers_.erase(peer);
}

bool CheckpointChoice::usable(uint32_t source, const CheckpointName& name, uint64_t now_ns) const {
    if (refused_.count(name.id) != 0) return false;
    const auto damage = damaged_.find(name);
    if (damage != damaged_.end() && now_ns < damage->second.until_ns) return false;
    const auto mark = marks_.find({source, name});
    return mark == marks_.end() || now_ns >= mark->second.until_ns;
}

std::optional<CheckpointChoice::Chosen> CheckpointChoice::choose(uint64_t min_index, uint32_t leader,
                                                                 uint64_t now_ns) const {
    std::optional<Chosen> best;
    const auto rank = [&](uint32_t source, const Offer& offer) {
        return std::tuple(arriving_.count(offer.name), source != leader, offer.name.index);
    };
    for (const auto& [source, offers] : offers_)
        for (const Offer& one : offers) {
            if (one.name.index < min_index || !usable(source, one.name, now_ns)) continue;
            if (!best || rank(source, one) > rank(best->source, best->offer)) best = {source, one};
        }
    return best;
}

bool CheckpointChoice::only_refused(uint64_t min_index) const {
    size_t refused = 0, others = 0;
    for (const auto& [source, offers] : offers_)
        for (const Offer& one : offers)
            if (one.name.index >= min_index) ++(refused_.count(one.name.id) != 0 ? refused : others);
    return refused != 0 && others == 0;
}

std::string CheckpointChoice::why_none(uint64_t min_index, const std::string& wanted,
                                       const std::string& verifier) const {
    if (only_refused(min_index))
        return "no server could be restored here from any that is offered, and the primary is asked to "
               "have a new one taken. If this is said again and again, let crane restart end the "
               "server: its files are kept then, and every replica begins at them";
    if (offers_.empty())
        return "no other replica answers who could have " + wanted +
               ": start the others, look at their links";
    for (const auto& [source, offers] : offers_)
        for (const Offer& one : offers)
            if (one.name.index >= min_index)
                return "replica " + std::to_string(source) + " has " + wanted +
                       ", and it could not be had: it is tried again. Look at that replica's craned.log, and "
                       "let " +
                       verifier + " look at what it has";
    return "no replica that can be reached has " + wanted +
           ": the primary is asked to have one taken; if none has a server, start those that may have one";
}

void CheckpointChoice::blame(uint32_t source, const CheckpointName& name, uint64_t now_ns) {
    if (marks_.size() >= kMaxRemembered) marks_.clear();
    Mark& mark = marks_[{source, name}];
    mark.pause_ns = std::clamp(mark.pause_ns * 2, kFirstPauseNs, kLongestPauseNs);
    mark.until_ns = now_ns + mark.pause_ns;
}

bool CheckpointChoice::count_damage(const CheckpointName& name, uint64_t now_ns) {
    if (damaged_.size() >= kMaxRemembered) damaged_.clear();
    Damage& damage = damaged_[name];
    if (++damage.times < kMaxDamaged) return false;
    damage = {0, now_ns + kRefusedNs};
    return true;
}

}  // namespace crane::proxy
