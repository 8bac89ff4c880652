// The last records that the server has put out, with the beginning of what was in each: in memory, so that a
// replica can show what it has put out where replicas were found to differ, before one of them is made anew
// and its output log begins again. Pure.
//
// Bounded: so many records, and so many bytes of each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/output_format.hpp"

namespace crane::proxy {

struct TailRecord {
    uint64_t number = 0;  ///< as in the output log
    uint64_t connection = 0;
    uint64_t offset = 0;  ///< of its first byte in what was sent on the connection
    Hash128 chain;        ///< after it
    uint32_t bytes = 0;
    uint16_t kind = 0;  ///< timebubble::OutputKind
    uint16_t flags = 0;
    std::string beginning;  ///< of the payload
};

class OutputTail {
  public:
    static constexpr size_t kRecords = 4096;
    static constexpr size_t kBeginningBytes = 512;
    static constexpr size_t kAnswerBytes = 256 * 1024;

    void add(uint64_t number, const timebubble::OutputHeader& header, std::string_view payload,
             uint64_t offset, const Hash128& chain);
    /// The last of those before log entry `index` was admitted, and that record, oldest first: as many as fit
    /// into an answer; none where it is too long ago.
    std::vector<TailRecord> up_to(uint64_t index) const;

  private:
    struct Slot {
        uint64_t number, connection, offset;
        Hash128 chain;
        uint32_t bytes;
        uint16_t kind, flags;
        uint64_t admitted;  ///< the entry, of a kAdmitted
        uint32_t kept;
        char beginning[kBeginningBytes];
    };
    /// The n-th newest.
    const Slot& newest(size_t n) const { return slots_[(added_ - 1 - n) % kRecords]; }

    std::vector<Slot> slots_;  ///< a ring when it is full
    uint64_t added_ = 0;
};

std::string encode_tail(const std::vector<TailRecord>& records);
/// What cannot be read ends it.
std::vector<TailRecord> decode_tail(std::string_view bytes);

}  // namespace crane::proxy
