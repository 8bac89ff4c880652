#include "paxos/core/message.hpp"

#include "paxos/core/check.hpp"
#include "paxos/core/membership.hpp"
#include "paxos/core/wire.hpp"

namespace crane::paxos {
namespace {

constexpr uint8_t flag_ok = 1, flag_forced = 2, flag_wants_ack = 4, flag_replaces = 8, all_flags = 15;
constexpr size_t entry_head_bytes = 8 + 1 + 8 + 4;

bool decode_entries(WireReader& in, Message& message) {
    const uint32_t count = in.get_int<uint32_t>();
    if (in.bad() || count > max_batch_entries || count > in.remaining() / entry_head_bytes) return false;
    if (count > 0 && message.type != MessageType::Prepare) return false;
    message.entries.reserve(count);
    View least_view = message.index_view;
    for (uint32_t i = 0; i < count; ++i) {
        Entry entry;
        entry.index = message.index + 1 + i;
        entry.view = in.get_int<uint64_t>();
        const uint8_t kind = in.get_int<uint8_t>();
        entry.chain = in.get_int<uint64_t>();
        const std::string_view value = in.get_bytes(max_value_bytes);
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
        case MessageType::PreVote:
            return "PreVote";
        case MessageType::PreVoteReply:
            return "PreVoteReply";
        case MessageType::ViewChange:
            return "ViewChange";
        case MessageType::ViewChangeReply:
            return "ViewChangeReply";
        case MessageType::Prepare:
            return "Prepare";
        case MessageType::Commit:
            return "Commit";
        case MessageType::Ack:
            return "Ack";
        case MessageType::TakeOver:
            return "TakeOver";
        case MessageType::Disown:
            return "Disown";
    }
    return "?";
}

void encode(const Message& message, std::string& out) {
    CRANE_CHECK(message.entries.size() <= max_batch_entries);
    CRANE_CHECK(message.report.size() <= max_report_bytes);
    put_int(out, static_cast<uint8_t>(message.type));
    put_int(out, static_cast<uint8_t>((message.ok ? flag_ok : 0) | (message.forced ? flag_forced : 0) |
                                      (message.wants_ack ? flag_wants_ack : 0) |
                                      (message.origin.replaces ? flag_replaces : 0)));
    put_int(out, message.from);
    put_int(out, message.to);
    for (uint64_t word :
         {message.view, message.index, message.index_view, message.chain, message.commit, message.promised,
          message.hint, message.rejoining, message.checkpoint, message.origin.database, message.origin.start,
          message.origin.run, message.origin.view, message.origin.index})
        put_int(out, word);
    CRANE_CHECK(message.origin.previous_runs.size() <= max_previous_runs);
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
    if (type < static_cast<uint8_t>(MessageType::PreVote) ||
        type > static_cast<uint8_t>(MessageType::Disown) || (flags & ~all_flags) != 0)
        return false;
    message.type = static_cast<MessageType>(type);
    message.ok = (flags & flag_ok) != 0;
    message.forced = (flags & flag_forced) != 0;
    message.wants_ack = (flags & flag_wants_ack) != 0;
    message.origin.replaces = (flags & flag_replaces) != 0;
    message.from = in.get_int<uint32_t>();
    message.to = in.get_int<uint32_t>();
    for (uint64_t* word :
         {&message.view, &message.index, &message.index_view, &message.chain, &message.commit,
          &message.promised, &message.hint, &message.rejoining, &message.checkpoint, &message.origin.database,
          &message.origin.start, &message.origin.run, &message.origin.view, &message.origin.index})
        *word = in.get_int<uint64_t>();
    const uint8_t runs = in.get_int<uint8_t>();
    if (in.bad() || runs > max_previous_runs) return false;
    for (uint8_t i = 0; i < runs; ++i) message.origin.previous_runs.push_back(in.get_int<uint64_t>());
    message.report = in.get_bytes(max_report_bytes);
    if (in.bad() || message.index > UINT64_MAX - max_batch_entries) return false;
    return decode_entries(in, message) && in.finished();
}

}  // namespace crane::paxos
