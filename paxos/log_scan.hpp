// The newest file of the write-ahead log, read before Berkeley DB's recovery cuts it.
//
// Recovery takes the first record that does not hold for the end of the log. That is right for a write that
// was cut short, and wrong for a disk that has lost what it had: then entries that were acknowledged would go
// without a word. Each segment tells how far the log was on disk before it was written (segment.hpp); where
// one behind the place in question tells of more than is left, the file is damaged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paxos/bdb.hpp"
#include "paxos/file_system.hpp"

namespace crane::paxos {

struct LogScan {
    uint32_t file = 0;   // 0: there is none
    uint64_t bytes = 0;  // up to the last one that is not zero
    uint64_t end = 0;    // of the records that hold
    LogPlace synced;     // what was on disk when a later record of this file was written

    // The records that hold end before what was on disk.
    bool damaged() const;
};

// `bytes`: a whole file in Berkeley DB 5.3's format without encryption. Anything else: nothing is found.
LogScan scan_log(uint32_t file, std::string_view bytes);

// Of the newest file in `directory`.
LogScan scan_newest_log(FileSystem& files, const std::string& directory);

}  // namespace crane::paxos
