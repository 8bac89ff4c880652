// What replicas say to each other, and what the store reads back.
//
// Checksums would keep a fuzzer out, so that they are put right where the target is what lies behind them.
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "paxos/core/message.hpp"
#include "paxos/link/address_book.hpp"
#include "paxos/link/certificate.hpp"
#include "paxos/link/connection.hpp"
#include "paxos/store/log_scan.hpp"
#include "paxos/store/page_scan.hpp"
#include "paxos/store/record.hpp"
#include "paxos/store/segment.hpp"
#include "targets.hpp"

namespace crane::fuzz {

using namespace crane::paxos;

void fuzz_message(std::string_view bytes) {
    Message message;
    if (!decode(bytes, message)) return;
    std::string again;
    encode(message, again);
    must(again == bytes, "a message that was decoded encodes to other bytes");
    for (const Entry& entry : message.entries) {
        must(entry.value != nullptr && well_formed(entry.kind, *entry.value),
             "an entry with a malformed value");
        must(entry.view <= message.view && entry.index > message.index, "an entry out of place");
    }
}

namespace {

// Any bytes as one frame: type, length, and a checksum that is right but for one time in eight.
std::string next_frame(Input& in) {
    const uint8_t control = in.number<uint8_t>();
    const size_t size = in.number<uint8_t>() * size_t{control & 16 ? 64u : 1u};
    std::string frame = begin_frame();
    frame.append(in.take(size));
    finish_frame(static_cast<FrameType>(control & 7), frame);
    if (control >> 5 == 7) frame[in.number<uint8_t>() % frame.size()] ^= static_cast<char>(control | 1);
    return frame;
}

struct Parsed {
    std::vector<std::pair<FrameType, std::string>> frames;
    bool bad = false;
};

Parsed parse_whole(std::string_view bytes) {
    Parsed out;
    for (;;) {
        FrameType type;
        std::string_view payload;
        size_t size = 0;
        const FrameStatus status = parse_frame(bytes, kMaxGreetingBytes, type, payload, size);
        if (status == FrameStatus::kIncomplete) return out;
        out.bad = status == FrameStatus::kBad;
        if (out.bad) return out;
        must(make_frame(type, payload) == bytes.substr(0, size),
             "a frame that was parsed is made of other bytes");
        out.frames.emplace_back(type, payload);
        bytes.remove_prefix(size);
    }
}

// The same bytes through a connection, in pieces.
Parsed parse_in_pieces(std::string_view bytes, uint32_t pieces) {
    static event_base* const base = event_base_new();
    int ends[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
    Parsed out;
    Connection::Handlers handlers;
    handlers.on_frame = [&](FrameType type, std::string_view payload) {
        out.frames.emplace_back(type, payload);
        return true;
    };
    handlers.on_closed = [&](const std::string&) { out.bad = true; };
    Connection connection(base, make_plain_stream(ends[0]), false, std::move(handlers));
    while (!bytes.empty() && !out.bad) {
        const size_t part = std::min<size_t>(bytes.size(), pieces % 509 + 1);
        pieces = pieces * 1664525 + 1013904223;
        must(write(ends[1], bytes.data(), part) == static_cast<ssize_t>(part), "a socket takes nothing");
        bytes.remove_prefix(part);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    connection.close();
    close(ends[1]);
    return out;
}

}  // namespace

void fuzz_frame(std::string_view bytes) {
    Input in(bytes);
    const uint32_t pieces = in.number<uint32_t>();
    const bool raw = (pieces & 1) != 0;
    std::string wire;
    if (raw) wire = in.rest();
    while (!in.empty() && wire.size() < 20'000) wire += next_frame(in);
    const Parsed whole = parse_whole(wire), split = parse_in_pieces(wire, pieces >> 1);
    must(whole.frames == split.frames, "frames depend on how their bytes arrive");
    must(whole.bad == split.bad, "whether bytes are malformed depends on how they arrive");
}

void fuzz_hello(std::string_view bytes) {
    Hello hello;
    if (decode_hello(bytes, hello))
        must(bytes.starts_with(encode_hello(hello)), "a greeting encodes to other bytes");
    Welcome welcome;
    if (decode_welcome(bytes, welcome))
        must(encode_welcome(welcome) == bytes, "a welcome encodes to other bytes");
    AddressBook book(1, {{2, "127.0.0.1", 7400}});
    if (!book.hear(bytes, 5)) return;
    must(!book.hear(bytes, 5), "the same introduction is news twice");
    MembershipAt told;
    std::memcpy(&told.index, bytes.data(), sizeof told.index);
    must(told.index > 5, "an old introduction is news");
    must(decode(bytes.substr(sizeof told.index), told.membership), "a malformed introduction is news");
    must(AddressBook::introduction(told) == bytes, "an introduction encodes to other bytes");
    std::vector<ReplicaId> unknown;
    const std::vector<PeerAddress> found = book.resolve({2, 3}, {5, {}}, unknown);
    for (const PeerAddress& one : found) {
        must(one.id != 1 && one.port != 0 && !one.host.empty(), "an address that is none");
        must(one.id != 2 || one == PeerAddress{2, "127.0.0.1", 7400}, "a peer changed what is configured");
    }
    must(found.size() <= kMaxMembers + 2, "more replicas than there may be");
}

void fuzz_membership(std::string_view bytes) {
    Input in(bytes);
    const uint8_t which = in.number<uint8_t>();
    const std::string_view value = in.rest();
    for (uint8_t kind = 0; kind < 8; ++kind)
        if (known_entry_kind(kind)) well_formed(static_cast<EntryKind>(kind), value);
    Comeback comeback;
    if (decode_comeback(value, comeback))
        must(encode_comeback(comeback) == value, "a comeback encodes to other bytes");
    std::string again;
    Incarnations starts;
    if (decode(value, starts)) {
        encode(starts, again);
        must(again == value, "a table of starts encodes to other bytes");
        again.clear();
    }
    Membership membership;
    if (!decode(value, membership)) return;
    encode(membership, again);
    must(again == value, "a membership encodes to other bytes");
    describe(membership);
    // What can be decoded can be changed, and the outcome be decoded.
    const ReplicaId id = which % 4 == 0 ? membership.highest_id + 1 : which / 4u;
    for (const ChangeKind kind : {ChangeKind::kAdd, ChangeKind::kPromote, ChangeKind::kRemove}) {
        Membership changed = membership;
        if (!apply({kind, id, "127.0.0.1:1"}, changed).empty()) {
            must(changed == membership, "a change that was refused left something behind");
            continue;
        }
        again.clear();
        encode(changed, again);
        Membership read;
        must(decode(again, read) && read == changed, "a changed membership cannot be decoded");
    }
}

namespace {

// Records of Berkeley DB's log with any content, one in eight of which the disk has damaged.
std::string log_file(Input& in) {
    std::string file;
    uint32_t previous = 0;
    while (!in.empty()) {
        const uint8_t control = in.number<uint8_t>();
        std::string content(in.take(in.number<uint8_t>()));
        if (control & 1) {
            SegmentWriter segment;
            segment.set_synced({control & 2u, in.number<uint16_t>()});
            content.insert(0, segment.record());
        }
        const uint32_t head[2] = {previous, static_cast<uint32_t>(content.size() + sizeof head + 4)};
        uint32_t sum = 0;
        for (const char byte : content) sum = sum * 33 + static_cast<uint8_t>(byte);
        sum ^= head[0] ^ head[1];
        previous = static_cast<uint32_t>(file.size());
        file.append(reinterpret_cast<const char*>(head), sizeof head);
        file.append(reinterpret_cast<const char*>(&sum), sizeof sum);
        file += content;
        if (control >> 5 == 7) file[in.number<uint16_t>() % file.size()] ^= static_cast<char>(control | 1);
    }
    return file;
}

}  // namespace

void fuzz_disk(std::string_view bytes) {
    Input in(bytes);
    const uint8_t newest = in.number<uint8_t>();
    const std::string_view older = in.take(in.number<uint8_t>());
    find_misplaced_page(in.take(in.number<uint16_t>()));
    const std::string file = log_file(in);
    LogScans logs;
    logs.newest.push_back(scan_log(newest, file));
    logs.oldest = scan_log(newest - 1u, older);
    logs.newest.push_back(logs.oldest);
    for (const LogScan& scan : logs.newest) {
        must(scan.bytes <= std::max(file.size(), older.size()), "a log file is longer than it is");
        must(scan.last <= scan.end, "a record begins behind its end");
    }
    find_damage(logs);
}

void fuzz_record(std::string_view bytes) {
    Input in(bytes);
    const uint8_t index = in.number<uint8_t>();
    const bool sealed = (index & 1) == 0;
    std::string record(in.rest());
    if (record.size() >= 8 && sealed) {
        const uint64_t sum = XXH64(record.data() + 8, record.size() - 8, index);
        std::memcpy(record.data(), &sum, sizeof sum);
    }
    std::string again;
    const std::string run = SegmentWriter().record() + record;
    SegmentReader segments(run);
    uint64_t found = 0;
    for (std::string_view part; segments.next(found, part);)
        must(part.size() <= record.size(), "a segment has more than its record");
    Segment segment;
    if (decode_segment(index, record, segment)) {
        encode_segment(segment, again);
        must(again == record, "a segment encodes to other bytes");
    }
    Entry entry;
    if (index > 0 && decode_entry(index, record, entry)) {
        encode_entry(entry, again);
        must(again == record, "an entry encodes to other bytes");
    }
    StateRecord state;
    if (!decode_state(record, state) || state.version != kRecordVersion) return;
    encode_state(state, again);
    must(again == record, "a state encodes to other bytes");
}

void fuzz_identity(std::string_view bytes) {
    Identity identity;
    if (parse_uri(bytes, identity)) {
        must(to_uri(identity) == bytes, "a name is written in two ways");
        must(usable_cluster_name(identity.cluster), "a name of no cluster");
    }
    PeerAddress address;
    if (parse_address(std::string(bytes), address)) must(address.port != 0, "an address without a port");
    is_loopback(std::string(bytes));
    try {
        inspect_certificate("-----BEGIN CERTIFICATE-----\n" + std::string(bytes) +
                            "\n-----END CERTIFICATE-----\n");
    } catch (const std::runtime_error&) {  // not a certificate: said so
    }
}

}  // namespace crane::fuzz
