#include "proxy/output_tail.hpp"

#include <string.h>

#include <algorithm>

namespace crane::proxy {

using timebubble::OutputKind;

namespace {

struct WireHead {
    uint64_t number, connection, offset;
    Hash128 chain;
    uint32_t bytes;
    uint16_t kind, flags;
    uint32_t kept, reserved;
};
static_assert(sizeof(WireHead) == 56);

}  // namespace

void OutputTail::add(uint64_t number, const timebubble::OutputHeader& header, std::string_view payload,
                     uint64_t offset, const Hash128& chain) {
    if (slots_.capacity() == 0) slots_.reserve(kRecords);
    if (slots_.size() < kRecords) slots_.emplace_back();
    Slot& slot = slots_[added_++ % kRecords];
    slot.number = number;
    slot.connection = header.connection;
    slot.offset = offset;
    slot.chain = chain;
    slot.bytes = static_cast<uint32_t>(payload.size());
    slot.kind = static_cast<uint16_t>(header.kind);
    slot.flags = header.flags;
    slot.admitted = 0;
    timebubble::AdmittedRecord record;
    if (header.kind == OutputKind::kAdmitted && payload.size() == sizeof(record)) {
        memcpy(&record, payload.data(), sizeof(record));
        slot.admitted = record.index;
    }
    slot.kept = static_cast<uint32_t>(std::min(payload.size(), kBeginningBytes));
    memcpy(slot.beginning, payload.data(), slot.kept);
}

std::vector<TailRecord> OutputTail::up_to(uint64_t index) const {
    size_t n = 0;
    while (n < slots_.size() && newest(n).admitted != index) ++n;
    std::vector<TailRecord> out;
    size_t bytes = 0;
    for (; index != 0 && n < slots_.size(); ++n) {
        const Slot& slot = newest(n);
        bytes += sizeof(WireHead) + slot.kept;
        if (bytes > kAnswerBytes) break;
        out.push_back({slot.number, slot.connection, slot.offset, slot.chain, slot.bytes, slot.kind,
                       slot.flags, std::string(slot.beginning, slot.kept)});
    }
    std::reverse(out.begin(), out.end());
    return out;
}

std::string encode_tail(const std::vector<TailRecord>& records) {
    std::string out;
    for (const TailRecord& one : records) {
        const WireHead head{
            one.number, one.connection, one.offset, one.chain,
            one.bytes,  one.kind,       one.flags,  static_cast<uint32_t>(one.beginning.size()),
            0};
        out.append(reinterpret_cast<const char*>(&head), sizeof(head));
        out += one.beginning;
    }
    return out;
}

std::vector<TailRecord> decode_tail(std::string_view bytes) {
    std::vector<TailRecord> out;
    WireHead head;
    while (bytes.size() >= sizeof(head) && out.size() < OutputTail::kRecords) {
        memcpy(static_cast<void*>(&head), bytes.data(), sizeof(head));
        bytes.remove_prefix(sizeof(head));
        const bool follows = out.empty() || head.number == out.back().number + 1;
        if (!follows || head.kept > std::min(bytes.size(), OutputTail::kBeginningBytes)) break;
        out.push_back({head.number, head.connection, head.offset, head.chain, head.bytes, head.kind,
                       head.flags, std::string(bytes.substr(0, head.kept))});
        bytes.remove_prefix(head.kept);
    }
    return out;
}

}  // namespace crane::proxy
