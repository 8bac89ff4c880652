#include "paxos/core/message.hpp"

#include "base/check.hpp"
#include "paxos/core/membership.hpp"
#include "paxos/core/wire.hpp"

namespace crane::paxos {
namespace {

constexpr uint8_t kFlagOk = 1, kFlagForced = 2, kFlagWantsAck = 4, kFlagReplaces = 8, kAllFlags = 15;
constexpr size_t kEntryHeadBytes = 8 + 1 + 8 + 4;

bool decode_entries(WireReader& in, Message& message) {
    const uint32_t count = in.get_int<uint32_t>();
    if (in.bad() || count > kMaxBatchEntries || count > in.remaining() / kEntryHeadBytes) return false;
    if (count > 0 && message.type != MessageType::kPrepare) return false;
    message.entries.reserve(count);
    View least_view = message.index_view;
    for (uint32_t i = 0; i < count; ++i) {
        Entry entry;
        entry.index = message.index + 1 + i;
        entry.view = in.get_int<uint64_t>();
        const uint8_t kind = in.get_int<uint8_t>();
        entry.chain = in.get_int<uint64_t>();
        const std::string_view value = in.get_bytes(kMaxValueBytes);
        if (in.bad() || entry.view < least_view || entry.view > message.view) return false;
        if (!known_entry_kind(kind) || !well_formed(static_cast<EntryKind>(kind), value)) return false;
        least_view = entry.view;
        entry.kind = static_cast<EntryKind>(kind);
        entry.value = std::make_shared<const std::string>(value);
        message.entries.push_back(std::move(entry));
    }
    return true;
}

}  // namespace

const char* message_name(MessageType type) {
    switch (type) {
        case MessageType::kPreVote:
            return "PreVote";
        case MessageType::kPreVoteReply:
            return "PreVoteReply";
        case MessageType::kViewChange:
            return "ViewChange";
        case MessageType::kViewChangeReply:
            return "ViewChangeReply";
        case MessageType::kPrepare:
            return "Prepare";
        case MessageType::kCommit:
            return "Commit";
        case MessageType::kAck:
            return "Ack";
        case MessageType::kTakeOver:
            return "TakeOver";
        case MessageType::kDisown:
            return "Disown";
    }
    return "?";
}

void encode(const Message& message, std::string& out) {
    CRANE_CHECK(message.entries.size() <= kMaxBatchEntries);
    CRANE_CHECK(message.report.size() <= kMaxReportBytes);
    put_int(out, static_cast<uint8_t>(message.type));
    put_int(out, static_cast<uint8_t>((message.ok ? kFlagOk : 0) | (message.forced ? kFlagForced : 0) |
                                      (message.wants_ack ? kFlagWantsAck : 0) |
                                      (message.origin.replaces ? kFlagReplaces : 0)));
    put_int(out, message.from);
    put_int(out, message.to);
    for (uint64_t word :
         {message.view, message.index, message.index_view, message.chain, message.commit, message.promised,
          message.hint, message.rejoining, message.checkpoint, message.origin.database, message.origin.start,
          message.origin.run, message.origin.view, message.origin.index})
        put_int(out, word);
    CRANE_CHECK(message.origin.previous_runs.size() <= kMaxPreviousRuns);
    put_int(out, static_cast<uint8_t>(message.origin.previous_runs.size()));
    for (const uint64_t run : message.origin.previous_runs) put_int(out, run);
    put_bytes(out, message.report);
    put_int(out, static_cast<uint32_t>(message.entries.size()));
    for (const Entry& entry : message.entries) {
        put_int(out, entry.view);
        put_int(out, static_cast<uint8_t>(entry.kind));
        put_int(out, entry.chain);
        put_bytes(out, *entry.value);
    }
}

bool decode(std::string_view bytes, Message& message) {
    WireReader in(bytes);
    message = Message{};
    const uint8_t type = in.get_int<uint8_t>();
    const uint8_t flags = in.get_int<uint8_t>();
    if (type < static_cast<uint8_t>(MessageType::kPreVote) ||
        type > static_cast<uint8_t>(MessageType::kDisown) || (flags & ~kAllFlags) != 0)
        return false;
    message.type = static_cast<MessageType>(type);
    message.ok = (flags & kFlagOk) != 0;
    message.forced = (flags & kFlagForced) != 0;
    message.wants_ack = (flags & kFlagWantsAck) != 0;
    message.origin.replaces = (flags & kFlagReplaces) != 0;
    message.from = in.get_int<uint32_t>();
    message.to = in.get_int<uint32_t>();
    for (uint64_t* word :
         {&message.view, &message.index, &message.index_view, &message.chain, &message.commit,
          &message.promised, &message.hint, &message.rejoining, &message.checkpoint, &message.origin.database,
          &message.origin.start, &message.origin.run, &message.origin.view, &message.origin.index})
        *word = in.get_int<uint64_t>();
    const uint8_t runs = in.get_int<uint8_t>();
    if (in.bad() || runs > kMaxPreviousRuns) return false;
    for (uint8_t i = 0; i < runs; ++i) message.origin.previous_runs.push_back(in.get_int<uint64_t>());
    message.report = in.get_bytes(kMaxReportBytes);
    if (in.bad() || message.index > UINT64_MAX - kMaxBatchEntries) return false;
    return decode_entries(in, message) && in.finished();
}

}  // namespace crane::paxos
