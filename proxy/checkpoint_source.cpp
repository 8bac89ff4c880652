#include "proxy/checkpoint_source.hpp"

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr size_t kMaxReads = 8;
constexpr uint64_t kHeldNs = 60'000'000'000;
constexpr size_t kMaxHeld = 64;
/// By then whoever asked asks again, or somebody else.
constexpr uint64_t kUnsentNs = 30'000'000'000;

}  // namespace

CheckpointSource::CheckpointSource(std::shared_ptr<CheckpointFiles> files, ShipSend send, ShipPost post,
                                   uint64_t bytes_per_s)
    : files_(std::move(files)), send_(std::move(send)), post_(std::move(post)), limit_(bytes_per_s) {}

void CheckpointSource::on_ask(uint32_t from, const AskWords& words) {
    peers_[from].ask = words;  // the last one counts: an earlier one is no longer waited for
    advance();
}

void CheckpointSource::on_read(uint32_t from, const ReadWords& words) {
    Peer& peer = peers_[from];
    if (peer.reads.size() >= kMaxReads) return;
    peer.reads.push_back(words);
    advance();
}

void CheckpointSource::on_link(uint32_t peer, bool up) {
    if (!up) peers_.erase(peer);  // what was asked before the link was lost is asked again
}

void CheckpointSource::tick(uint64_t now_ns) {
    now_ns_ = now_ns;
    for (auto& [id, peer] : peers_) flush(id, peer);
    advance();
}

bool CheckpointSource::idle() const {
    return !busy_ && std::all_of(peers_.begin(), peers_.end(), [](const auto& one) {
        return !one.second.ask && one.second.reads.empty() && one.second.unsent.empty();
    });
}

std::set<uint64_t> CheckpointSource::held(uint64_t now_ns) const {
    std::set<uint64_t> out;
    for (const auto& [index, when] : read_ns_)
        if (now_ns <= when + kHeldNs) out.insert(index);
    return out;
}

void CheckpointSource::advance() {
    if (busy_ || peers_.empty()) return;
    // One after the other, beginning behind the one that was served last.
    auto next = peers_.upper_bound(last_served_);
    for (size_t left = peers_.size(); left > 0; --left, ++next) {
        if (next == peers_.end()) next = peers_.begin();
        auto& [id, peer] = *next;
        if (!peer.unsent.empty()) continue;
        if (peer.ask) {
            last_served_ = id;
            const AskWords words = *peer.ask;
            peer.ask.reset();
            answer_ask(id, words);
            return;
        }
        if (peer.reads.empty() || !limit_.allows(now_ns_)) continue;
        last_served_ = id;
        const ReadWords words = peer.reads.front();
        peer.reads.pop_front();
        answer_read(id, words);
        return;
    }
}

void CheckpointSource::answer_ask(uint32_t to, const AskWords& words) {
    auto answer = std::make_shared<OffersWords>();
    answer->round = words.round;
    busy_ = true;
    post_(
        [answer, files = files_, least = words.min_index] {
            try {
                answer->offers = files->offers(least);
            } catch (const std::exception&) {
                answer->offers.clear();  // a store that cannot be read has nothing to offer
            }
        },
        [this, to, answer] { done(to, encode(*answer)); });
}

void CheckpointSource::answer_read(uint32_t to, const ReadWords& words) {
    std::erase_if(read_ns_, [&](const auto& one) { return now_ns_ > one.second + kHeldNs; });
    if (read_ns_.size() < kMaxHeld || read_ns_.count(words.name.index) != 0)
        read_ns_[words.name.index] = now_ns_;
    limit_.took(words.bytes, now_ns_);
    auto answer = std::make_shared<std::string>();
    busy_ = true;
    post_(
        [answer, files = files_, words] {
            try {
                *answer = encode(ChunkWords{words.request, files->read(words)});
            } catch (const std::exception&) {
                *answer = encode(RefusalWords{words.request});
            }
        },
        [this, to, answer] { done(to, *answer); });
}

void CheckpointSource::done(uint32_t to, const std::string& message) {
    busy_ = false;
    if (const auto found = peers_.find(to); found != peers_.end()) {
        found->second.unsent = message;
        found->second.unsent_ns = now_ns_;
        flush(to, found->second);
    }
    advance();
}

void CheckpointSource::flush(uint32_t to, Peer& peer) {
    if (peer.unsent.empty()) return;
    if (send_(to, peer.unsent) || now_ns_ > peer.unsent_ns + kUnsentNs) peer.unsent.clear();
}

}  // namespace crane::proxy
