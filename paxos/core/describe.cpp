#include "paxos/core/describe.hpp"

#include <string_view>

namespace crane::paxos {
namespace {

constexpr size_t kShownValueBytes = 16;
constexpr size_t kShownEntries = 6;  // of a longer list only the ends are shown

std::string at(uint64_t index, View view) {
    return std::to_string(index) + "@" + view_name(view);
}

// Values are opaque: whatever would not show as itself becomes a dot.
std::string quoted(std::string_view value) {
    std::string text = "\"";
    for (const char c : value.substr(0, kShownValueBytes)) text += c >= ' ' && c <= '~' && c != '"' ? c : '.';
    text += "\"";
    if (value.size() > kShownValueBytes) text += "... " + std::to_string(value.size()) + " bytes";
    return text;
}

std::string describe_vote(const Message& message) {
    return "view " + view_name(message.view) + ", log ends at " + at(message.index, message.index_view) +
           (message.forced ? ", ordered by the leader" : "");
}

std::string describe_vote_reply(const Message& message) {
    return std::string(message.ok ? "yes" : "no") + " to view " + view_name(message.view) + ", promised " +
           view_name(message.promised);
}

std::string value_in_words(EntryKind kind, std::string_view value) {
    Comeback comeback;
    Membership membership;
    Incarnations starts;
    switch (kind) {
        case EntryKind::kNewView:
            return "new view";
        case EntryKind::kReturn:
            if (!decode_comeback(value, comeback)) break;
            return "return of " + std::to_string(comeback.replica) + " in run " +
                   std::to_string(comeback.run);
        case EntryKind::kMembership:
            if (!decode(value, membership)) break;
            return "members " + describe(membership);
        case EntryKind::kStart:
            if (!decode(value, starts)) break;
            return describe(starts);
        case EntryKind::kValue:
            break;
    }
    return quoted(value);
}

std::string describe_commit(const Message& message) {
    std::string text = ", decided " + std::to_string(message.commit);
    if (message.checkpoint != 0) text += ", checkpoints of a majority " + std::to_string(message.checkpoint);
    return text;
}

std::string describe_ack(const Message& message) {
    std::string text = "view " + view_name(message.view);
    if (!message.ok && message.promised > message.view)
        return text + ", refused: promised " + view_name(message.promised);
    text += message.ok ? ", same up to " + std::to_string(message.index) + ", log ends at "
                       : ", NOT the same at " + std::to_string(message.index) + ", go back to ";
    text += std::to_string(message.hint);
    if (message.rejoining != 0) text += ", rejoining in run " + std::to_string(message.rejoining);
    if (message.checkpoint != 0) text += ", checkpoint " + std::to_string(message.checkpoint);
    if (!message.report.empty()) text += ", report of " + std::to_string(message.report.size()) + " bytes";
    return text;
}

}  // namespace

std::string describe(const LogPosition& position) {
    return at(position.index, position.view);
}

std::string describe_value(const Entry& entry) {
    return value_in_words(entry.kind, *entry.value);
}

std::string describe(const Entry& entry) {
    return at(entry.index, entry.view) + " " + describe_value(entry);
}

std::string describe(const std::vector<Entry>& entries) {
    std::string text = "[";
    for (size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) text += ", ";
        if (entries.size() > kShownEntries && i == 2) {
            i = entries.size() - 2;
            text += "..., ";
        }
        text += describe(entries[i]);
    }
    return text + "]";
}

std::string describe(const Message& message) {
    std::string text = std::to_string(message.from) + "->" + std::to_string(message.to) + " " +
                       message_name(message.type) + " ";
    switch (message.type) {
        case MessageType::kPreVote:
        case MessageType::kViewChange:
            return text + describe_vote(message);
        case MessageType::kPreVoteReply:
        case MessageType::kViewChangeReply:
            return text + describe_vote_reply(message);
        case MessageType::kPrepare:
            return text + "view " + view_name(message.view) + ", after " +
                   at(message.index, message.index_view) + " " + describe(message.entries) +
                   describe_commit(message);
        case MessageType::kCommit:
            return text + "view " + view_name(message.view) + describe_commit(message) +
                   (message.wants_ack ? ", answer!" : "");
        case MessageType::kAck:
            return text + describe_ack(message);
        case MessageType::kTakeOver:
            if (message.from != view_leader(message.view))
                return text + "declined, view " + view_name(message.view);
            return text + "view " + view_name(message.view) + ", if your log ends at " +
                   std::to_string(message.index);
        case MessageType::kDisown:
            return text + "your database " + describe(static_cast<Copy>(message.index)) + ", run " +
                   std::to_string(message.hint);
    }
    return text;
}

std::string describe(const PersistBatch& batch) {
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
    if (batch.has_view) add("view " + view_name(batch.view));
    if (batch.truncate_from != 0) add("cut from " + std::to_string(batch.truncate_from));
    if (!batch.append.empty()) add("append " + describe(batch.append));
    if (!batch.memberships.empty()) add("members " + describe(batch.memberships.back().membership));
    if (batch.has_starts) add(batch.starts.table.empty() ? "no starts" : describe(batch.starts.table));
    if (batch.rejoined) add("no longer rejoining");
    return text;
}

}  // namespace crane::paxos
