#include "paxos/store/record.hpp"

#include <endian.h>
#include <xxhash.h>

#include <cstring>

#include "base/check.hpp"
#include "paxos/core/wire.hpp"

namespace crane::paxos {
namespace {

constexpr uint32_t kFlagRejoining = 1, kFlagLineage = 2, kFlagReplaces = 4, kFlagStarts = 8,
                   kFlagDisowned = 16;

// Fills in the checksum of the record that begins at `begin`.
void seal(std::string& out, uint64_t seed, size_t begin = 0) {
    char* record = out.data() + begin;
    const uint64_t sum = XXH64(record + 8, out.size() - begin - 8, seed);
    std::memcpy(record, &sum, sizeof sum);
}

bool seal_holds(std::string_view record, uint64_t seed) {
    if (record.size() < 8) return false;
    uint64_t sum;
    std::memcpy(&sum, record.data(), sizeof sum);
    return sum == XXH64(record.data() + 8, record.size() - 8, seed);
}

}  // namespace

RecordKey make_key(uint64_t index) {
    const uint64_t big = htobe64(index);
    RecordKey key;
    std::memcpy(key.data(), &big, sizeof big);
    return key;
}

uint64_t key_index(const RecordKey& key) {
    uint64_t big;
    std::memcpy(&big, key.data(), sizeof big);
    return be64toh(big);
}

void encode_entry(const Entry& entry, std::string& out) {
    out.clear();
    append_entry(entry, out);
}

void append_entry(const Entry& entry, std::string& out) {
    CRANE_CHECK(entry.index > 0 && entry.value != nullptr);
    const size_t begin = out.size();
    put_int(out, uint64_t{0});
    put_int(out, entry.view);
    put_int(out, entry.chain);
    put_int(out, static_cast<uint8_t>(entry.kind));
    out.append(*entry.value);
    seal(out, entry.index, begin);
}

bool decode_entry(uint64_t index, std::string_view bytes, Entry& entry) {
    if (!seal_holds(bytes, index)) return false;
    WireReader in(bytes.substr(8));
    entry.index = index;
    entry.view = in.get_int<uint64_t>();
    entry.chain = in.get_int<uint64_t>();
    const uint8_t kind = in.get_int<uint8_t>();
    if (in.bad() || !known_entry_kind(kind)) return false;
    const std::string_view value = bytes.substr(bytes.size() - in.remaining());
    entry.kind = static_cast<EntryKind>(kind);
    if (!well_formed(entry.kind, value)) return false;
    entry.value = std::make_shared<const std::string>(value);
    return true;
}

void encode_state(const StateRecord& state, std::string& out) {
    out.clear();
    put_int(out, uint64_t{0});
    put_int(out, kRecordMagic);
    put_int(out, state.version);
    put_int(out, state.replica);
    put_bytes(out, state.cluster_id);
    put_int(out, (state.rejoining ? kFlagRejoining : 0) | (state.database != 0 ? kFlagLineage : 0) |
                     (state.replaces ? kFlagReplaces : 0) |
                     (state.known_starts.table.empty() ? 0 : kFlagStarts) |
                     (state.disowned ? kFlagDisowned : 0));
    for (uint64_t word : {state.view, state.commit, state.start.index, state.start.view, state.start.chain})
        put_int(out, word);
    CRANE_CHECK(state.memberships.size() <= kMaxStoredMemberships);
    put_int(out, static_cast<uint8_t>(state.memberships.size()));
    std::string bytes;
    for (const MembershipAt& at : state.memberships) {
        bytes.clear();
        encode(at.membership, bytes);
        put_int(out, at.index);
        put_bytes(out, bytes);
    }
    if (state.database != 0) {
        put_int(out, state.database);
        put_int(out, state.starts);
        CRANE_CHECK(state.runs.size() <= kMaxStoredRuns);
        put_int(out, static_cast<uint8_t>(state.runs.size()));
        for (const uint64_t run : state.runs) put_int(out, run);
    }
    if (!state.known_starts.table.empty()) {
        std::string bytes;
        encode(state.known_starts.table, bytes);
        put_int(out, state.known_starts.index);
        put_bytes(out, bytes);
    }
    seal(out, 0);
}

bool decode_state(std::string_view bytes, StateRecord& state) {
    if (!seal_holds(bytes, 0)) return false;
    WireReader in(bytes.substr(8));
    state = StateRecord{};
    if (in.get_int<uint32_t>() != kRecordMagic) return false;
    state.version = in.get_int<uint32_t>();
    if (in.bad()) return false;
    if (state.version < kOldestRecordVersion || state.version > kRecordVersion) return true;
    state.replica = in.get_int<uint32_t>();
    state.cluster_id = in.get_bytes(kMaxClusterIdBytes);
    const uint32_t flags = in.get_int<uint32_t>();
    if ((flags & ~(kFlagRejoining | kFlagLineage | kFlagReplaces | kFlagStarts | kFlagDisowned)) != 0)
        return false;
    state.rejoining = (flags & kFlagRejoining) != 0;
    state.replaces = (flags & kFlagReplaces) != 0;
    state.disowned = (flags & kFlagDisowned) != 0;
    for (uint64_t* word :
         {&state.view, &state.commit, &state.start.index, &state.start.view, &state.start.chain})
        *word = in.get_int<uint64_t>();
    const uint8_t count = in.get_int<uint8_t>();
    if (in.bad() || count > kMaxStoredMemberships) return false;
    for (uint8_t i = 0; i < count; ++i) {
        MembershipAt at;
        at.index = in.get_int<uint64_t>();
        if (!decode(in.get_bytes(kMaxMembershipBytes), at.membership)) return false;
        state.memberships.push_back(std::move(at));
    }
    if ((flags & kFlagLineage) != 0) {
        state.database = in.get_int<uint64_t>();
        state.starts = in.get_int<uint64_t>();
        const uint8_t runs = in.get_int<uint8_t>();
        if (in.bad() || state.database == 0 || runs > kMaxStoredRuns) return false;
        for (uint8_t i = 0; i < runs; ++i) state.runs.push_back(in.get_int<uint64_t>());
    }
    if ((flags & kFlagStarts) != 0) {
        state.known_starts.index = in.get_int<uint64_t>();
        if (!decode(in.get_bytes(kMaxIncarnationsBytes), state.known_starts.table)) return false;
    }
    return in.finished();
}

}  // namespace crane::paxos
