// The log as the core sees it: the newest entries in memory, older ones through a LogReader.
//
// Entries that are not yet on disk or not yet decided are always in memory (their number is bounded by the
// pipeline); of the others a bounded number of bytes is kept for peers that are slightly behind.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "paxos/core/storage.hpp"
#include "paxos/core/types.hpp"

namespace crane::paxos {

class LogWindow {
  public:
    LogWindow(const LogReader& reader, const LogPosition& start, const LogPosition& end);

    const LogPosition& start() const { return start_; }
    const LogPosition& end() const { return end_; }
    uint64_t last_index() const { return end_.index; }

    /// Index, view and chain of an entry in [start, end].
    LogPosition position(uint64_t index) const;
    /// Appends up to max_entries / max_bytes (at least one) entries of [first, last]. True if disk was read.
    bool copy(uint64_t first, uint64_t last, size_t max_entries, size_t max_bytes,
              std::vector<Entry>& out) const;
    bool in_memory(uint64_t index) const { return index >= first_held(); }

    void append(Entry entry);  ///< index and chain must continue the log
    void truncate_from(uint64_t index);
    void forget_before(const LogPosition& start);  ///< log space: `start` becomes the new start
    /// Lets go of entries up to `upto` while more than max_bytes / max_entries are held.
    void trim(uint64_t upto, size_t max_entries, size_t max_bytes);

    size_t held_bytes() const { return held_bytes_; }
    size_t held_entries() const { return held_.size(); }

  private:
    uint64_t first_held() const { return end_.index + 1 - held_.size(); }

    const LogReader& reader_;
    LogPosition start_;
    LogPosition end_;
    std::deque<Entry> held_;  ///< ends at end_
    size_t held_bytes_ = 0;
};

}  // namespace crane::paxos
