#include "proxy/batcher.hpp"

#include <string.h>

#include <algorithm>
#include <cassert>
#include <stdexcept>

#include "timebubble/limits.hpp"

namespace crane::proxy {

using timebubble::BatchEncoder;
using timebubble::CallKind;

namespace {

constexpr size_t kPieceBytes = 256 * 1024;
/// For so long calls wait for the batch before them to be decided.
constexpr uint64_t kGroupingNs = 2'000'000;

}  // namespace

std::string program_payload(uint64_t generation, const std::string& inventory) {
    const timebubble::ProgramPayload head{generation};
    return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + inventory;
}

void Batcher::add(CallKind kind, uint64_t connection, std::string_view payload) {
    do {
        const std::string_view piece = kind == CallKind::kSend ? payload.substr(0, kPieceBytes) : payload;
        if (queue_.empty()) queue_.emplace_back();
        const size_t before = queue_.back().bytes();
        if (!queue_.back().add(kind, connection, piece)) {
            queue_.emplace_back();
            if (!queue_.back().add(kind, connection, piece)) {
                throw std::logic_error("a call's payload does not fit into a batch");
            }
            bytes_ += queue_.back().bytes();
        } else {
            bytes_ += queue_.back().bytes() - before;
        }
        ++calls_;
        payload.remove_prefix(piece.size());
    } while (!payload.empty());
}

void Batcher::set_genesis(const timebubble::GenesisPayload& genesis) {
    genesis_bytes_.assign(reinterpret_cast<const char*>(&genesis), sizeof(genesis));
    genesis_ = true;
}

void Batcher::saw_timestamp(uint64_t timestamp_ns) {
    last_timestamp_ns_ = std::max(last_timestamp_ns_, timestamp_ns);
}

bool Batcher::due(uint64_t now_ns, uint64_t undecided, uint64_t under_way) const {
    if (empty() || under_way >= timebubble::kBatchesUnderWay) return false;
    return undecided == 0 || queue_.size() > 1 || now_ns >= group_until_ns_;
}

std::string Batcher::take(uint64_t now_ns, uint64_t grant_clocks) {
    group_until_ns_ = now_ns + kGroupingNs;
    last_timestamp_ns_ = std::max(last_timestamp_ns_ + 1, now_ns);
    BatchEncoder batch;
    if (genesis_) {
        genesis_ = false;
        batch.add(CallKind::kGenesis, 0, genesis_bytes_);
        if (!first_program_.empty()) batch.add(CallKind::kProgram, 0, program_payload(1, first_program_));
    } else if (!queue_.empty()) {
        batch = std::move(queue_.front());
        queue_.pop_front();
        calls_ -= batch.calls();
        bytes_ = queue_.empty() ? 0 : bytes_ - std::min(bytes_, batch.bytes());
    }
    return batch.finish(last_timestamp_ns_, grant_clocks);
}

std::string Batcher::start(const timebubble::StartPayload& start, const timebubble::GenesisPayload& genesis,
                           const std::string& inventory, uint64_t now_ns, uint64_t grant_clocks) {
    last_timestamp_ns_ = std::max(last_timestamp_ns_ + 1, now_ns);
    BatchEncoder batch;
    batch.add(CallKind::kStart, 0, {reinterpret_cast<const char*>(&start), sizeof(start)});
    batch.add(CallKind::kGenesis, 0, {reinterpret_cast<const char*>(&genesis), sizeof(genesis)});
    if (!inventory.empty()) batch.add(CallKind::kProgram, 0, program_payload(start.generation, inventory));
    return batch.finish(last_timestamp_ns_, grant_clocks);
}

std::string Batcher::base(uint32_t replica, uint64_t now_ns) {
    last_timestamp_ns_ = std::max(last_timestamp_ns_ + 1, now_ns);
    const timebubble::BasePayload payload{replica};
    BatchEncoder batch;
    batch.add(CallKind::kBase, 0, {reinterpret_cast<const char*>(&payload), sizeof(payload)});
    return batch.finish(last_timestamp_ns_, 0);
}

uint32_t named_base(timebubble::BatchDecoder decoder) {
    timebubble::Call call{};
    timebubble::BasePayload base{};
    if (!decoder.next(call) || call.kind != CallKind::kBase || call.payload.size() != sizeof(base)) return 0;
    memcpy(&base, call.payload.data(), sizeof(base));
    return static_cast<uint32_t>(base.replica);
}

void Batcher::clear() {
    queue_.clear();
    calls_ = 0;
    bytes_ = 0;
    genesis_ = false;
}

}  // namespace crane::proxy
