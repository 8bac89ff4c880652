// The output log: every output record of the domain, in order, so that replicas can be compared byte by byte.
//
// Files: output.log is written; when it has a quarter of max_bytes it becomes output.log.1, and so on up to
// .3; older ones are removed. The log can be made again by replay, so it is buffered and never synced. A
// start of craned replays the domain from the log's first index, or from a checkpoint's, and begins the
// output log anew there; the old one becomes output.log.previous.
//
// While nothing can be written (a full disk) records wait in memory; beyond kMaxBufferBytes they are dropped.
// A new file is then begun, whose first_record tells how many are missing: a reader never passes over them.
//
// Format (version 1, little endian). A file is one OutputLogHeader, then records: OutputLogRecord, then the
// payload padded to 8 bytes; under content "hash" the payload of a kSend is replaced by its XXH3-128 (16
// bytes). The chain, the replica's output hash, is over what clients can see: for every record but kAdmitted,
//   chain = XXH3-128(previous chain, kind, flags, connection, payload length, XXH3-128 of the payload)
// It leaves out logical clock and schedule hash, which are compared apart, and it also finds a torn tail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proxy/config.hpp"
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

/// Between two records.
struct OutputPosition {
    uint64_t records = 0;         ///< before it
    uint64_t admitted_index = 0;  ///< of the last kAdmitted before it
    Hash128 chain;
};

class OutputLog {
  public:
    /// `from`: where it begins; later than at the start when that is not replayed.
    OutputLog(const std::string& state_dir, const Config& config, const OutputPosition& from = {});
    ~OutputLog();
    OutputLog(const OutputLog&) = delete;
    OutputLog& operator=(const OutputLog&) = delete;

    /// Appends a record; kConsumed and kMessage are not logged.
    void append(const timebubble::OutputHeader& header, std::string_view payload);
    /// Writes out what is buffered. What cannot be written stays, up to a bound, and is tried again.
    void flush();
    /// The file may have been moved away (log rotation): goes on in a new one at the old place.
    void reopen();
    bool buffered() const { return !buffer_.empty() || losing_; }

    OutputPosition position() const { return {records_, admitted_index_, chain_}; }
    const Hash128& chain() const { return chain_; }
    uint64_t records() const { return records_; }
    uint64_t bytes() const { return bytes_; }
    /// Why the log cannot be written now; empty if it can.
    const std::string& error() const { return error_; }

  private:
    void open_file();
    void rotate();
    void shift_files();
    void write_out();
    void failed(const std::string& what);
    void recovered();

    std::string path_;
    uint32_t replica_;
    std::string cluster_id_;
    LogContent content_;
    uint64_t file_limit_;
    int fd_ = -1;
    uint64_t file_bytes_ = 0;
    std::string buffer_;
    Hash128 chain_;
    uint64_t records_ = 0;
    uint64_t bytes_ = 0;
    uint64_t admitted_index_ = 0;
    std::string error_;
    uint64_t lost_from_ = 0;  ///< number of the first record that found no room in the buffer
    bool losing_ = false;     ///< what comes is only counted, until a file can be written again
};

}  // namespace crane::proxy
