// What an output log is made of: every output record of the domain, in order, so that replicas can be
// compared byte by byte.
//
// Format (version 1, little endian). A file is one OutputLogHeader, then records: OutputLogRecord, then the
// payload padded to 8 bytes; under content "hash" the payload of a kSend is replaced by its XXH3-128 (16
// bytes). The chain, the replica's output hash, is over what clients can see: for every record but kAdmitted,
//   chain = XXH3-128(previous chain, kind, flags, connection, payload length, XXH3-128 of the payload)
// It leaves out logical clock and schedule hash, which are compared apart, and it also finds a torn tail.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "timebubble/transport.hpp"

namespace crane::proxy {

struct Hash128 {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Hash128&) const = default;
    std::string hex() const;
};

constexpr char kOutputLogMagic[8] = {'C', 'R', 'A', 'N', 'E', 'O', 'U', 'T'};
constexpr uint32_t kOutputLogVersion = 1;

struct OutputLogHeader {
    char magic[8];
    uint32_t version;
    uint32_t replica;
    char cluster_id[32];
    uint32_t content;  ///< LogContent
    uint32_t reserved;
    uint64_t first_record;    ///< number of this file's first record; the log's first is 0
    uint64_t admitted_index;  ///< of the last kAdmitted before it
    Hash128 chain;            ///< before its first record
};
static_assert(sizeof(OutputLogHeader) == 88);

struct OutputLogRecord {
    uint32_t bytes;  ///< of the payload, also where only its hash is kept
    uint16_t kind;   ///< timebubble::OutputKind
    uint16_t flags;
    uint64_t connection;
    uint64_t clock;
    uint64_t schedule_hash;
    Hash128 chain;  ///< after this record
};
static_assert(sizeof(OutputLogRecord) == 48);

Hash128 hash_payload(std::string_view payload);
Hash128 next_chain(const Hash128& previous, const OutputLogRecord& record, const Hash128& payload);
constexpr bool in_chain(uint16_t kind) {
    return kind != static_cast<uint16_t>(timebubble::OutputKind::kAdmitted);
}

/// What of a record is the server's own words to a client.
constexpr uint64_t output_bytes(uint16_t kind, uint64_t bytes) {
    constexpr uint64_t kAddress = sizeof(timebubble::DatagramRecord);
    if (kind == static_cast<uint16_t>(timebubble::OutputKind::kSend)) return bytes;
    const bool datagram = kind == static_cast<uint16_t>(timebubble::OutputKind::kDatagram);
    return datagram && bytes > kAddress ? bytes - kAddress : 0;
}

/// Between two records.
struct OutputPosition {
    uint64_t records = 0;         ///< before it
    uint64_t admitted_index = 0;  ///< of the last kAdmitted before it
    Hash128 chain;
};

}  // namespace crane::proxy
