// A run of entries that became durable together: one record of Berkeley DB's write-ahead log, found by the
// tree. So each value is written once, and a batch costs one small change of the tree.
//
//   record  type u32 (above DB_user_BEGIN) | transaction u32 (0) | previous record u64 (0), as Berkeley
//           DB wants every record to begin | how far the log was on disk before: file u32 | offset u32
//           | per entry: index u64 | size u32, bytes (record.hpp: entry)
//   tree    key: index of the last entry that counts | first index u64 | file u32 | offset u32
//           Entries of the record outside first..last were cut off, and say nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paxos/core/types.hpp"
#include "paxos/core/wire.hpp"
#include "paxos/store/bdb.hpp"

namespace crane::paxos {

constexpr uint32_t kSegmentRecordType = DB_user_BEGIN + 1;

/// What the tree knows of a segment.
struct Segment {
    uint64_t first = 0;
    uint64_t last = 0;
    LogPlace place;
};

void encode_segment(const Segment& segment, std::string& out);  ///< without `last`, which is the key
bool decode_segment(uint64_t last, std::string_view bytes, Segment& segment);

class SegmentWriter {
  public:
    SegmentWriter();
    void add(const Entry& entry);  ///< the one after the last one added
    void set_synced(const LogPlace& place);
    bool empty() const { return last_ == 0; }
    uint64_t first() const { return first_; }
    uint64_t last() const { return last_; }
    const std::string& record() const { return record_; }
    void clear();

  private:
    std::string record_;
    uint64_t first_ = 0, last_ = 0;
};

class SegmentReader {
  public:
    explicit SegmentReader(std::string_view record);
    const LogPlace& synced() const { return synced_; }  ///< {}: not a segment
    /// The next entry's bytes, not yet decoded; false at the end, and when the record is not well formed.
    bool next(uint64_t& index, std::string_view& bytes);

  private:
    WireReader in_;
    LogPlace synced_;
};

}  // namespace crane::paxos
