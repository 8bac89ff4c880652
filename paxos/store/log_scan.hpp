// The files of the write-ahead log that Berkeley DB's recovery goes through, read before it cuts them.
//
// Recovery takes the first record of the newest file that does not hold for the end of the log. That is right
// for a write that was cut short, and wrong for a disk that has lost what it had: then entries that were
// acknowledged would go without a word. In an older file it takes zeros for the end of that file, and goes on
// with the next; and where the oldest one has no beginning it finds nothing to recover. Each segment tells
// how far the log was on disk before it was written (segment.hpp), and each file where the last record of the
// one before begins; where one tells of more than is left, the log is damaged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paxos/store/bdb.hpp"
#include "paxos/store/file_system.hpp"

namespace crane::paxos {

/// One file.
struct LogScan {
    uint32_t file = 0;   ///< 0: there is none
    uint64_t bytes = 0;  ///< up to the last one that is not zero
    uint64_t end = 0;    ///< of the records that hold
    uint64_t last = 0;   ///< where the last of them begins
    uint64_t previous =
        0;            // where the last record of the file before begins, as this one says; 0: it does not
    LogPlace synced;  ///< what was on disk when a later record of this file was written
    LogPlace redo;    ///< where recovery begins, as the last checkpoint in this file says; {}: none in it

    /// The records that hold end before what was on disk.
    bool damaged() const;
};

/// `bytes`: a whole file in Berkeley DB 5.3's format without encryption. Anything else: nothing is found.
LogScan scan_log(uint32_t file, std::string_view bytes);

struct LogScans {
    std::vector<LogScan> newest;  ///< those that recovery goes through, the newest first
    LogScan oldest;
    int error = 0;           ///< an errno value: not all could be read
    std::string unreadable;  ///< what could not
};
LogScans scan_logs(FileSystem& files, const std::string& directory);

/// What a disk has lost in them; nothing: they hold, as far as anybody can tell.
std::optional<LogPlace> find_damage(const LogScans& logs);

}  // namespace crane::paxos
