// The files of an output log: what is written where, and what waits while nothing can be.
//
// output.log is written; before it would have more than a quarter of max_bytes it becomes output.log.1, and
// so on up to .3; older ones are removed. The log can be made again by replay, so it is never synced. A start
// of craned replays the domain from the log's first index, or from a checkpoint's, and begins the output log
// anew there; the old one becomes output.log.previous.
//
// Rules kept here:
//   - a file holds records without a gap: what does not follow on what was written last begins a new one,
//     whose first_record tells how many are missing, so that a reader never passes over them;
//   - a file comes to its place with its header, and the one before it stays until then: who compares logs
//     never finds none, or one that nothing is known of;
//   - nothing is lost here: what cannot be written waits, and is tried again. Who appends sets the bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "proxy/output_format.hpp"

namespace crane::proxy {

/// Whole records, in the form of the file.
struct OutputChunk {
    OutputPosition from;  ///< before the first of them
    OutputPosition to;    ///< behind the last one
    std::string bytes;
};

class OutputFiles {
  public:
    /// `identity`: version, replica, cluster and content, for each file's header. `abandoned`: no file is
    /// begun any more, the names may be another's.
    OutputFiles(const std::string& path, const OutputLogHeader& identity, uint64_t file_limit,
                const OutputPosition& from, const std::atomic<bool>& abandoned);
    ~OutputFiles();
    OutputFiles(const OutputFiles&) = delete;
    OutputFiles& operator=(const OutputFiles&) = delete;

    /// Writes what waits and then this, as far as it goes. Returns memory to be used again. Where the file
    /// was moved or removed, that is noticed here, too.
    std::string write(OutputChunk chunk);
    /// Tries what waits once more. True: nothing does any more, and a file is open.
    bool retry();
    /// The file may have been moved away (log rotation): goes on in a new one at the old place.
    void reopen();

    /// Why the log cannot be written now; empty if it can.
    const std::string& error() const { return error_; }
    /// That wait.
    size_t bytes() const;

  private:
    /// What becomes of the file at output.log when the next one takes its place.
    enum class Before { kNone, kPrevious, kShifted };

    bool begin_file(const OutputPosition& from, Before before);
    bool write_out();
    bool put_in_place();
    /// The open file is the one at its path.
    bool in_place() const;
    size_t left() const { return header_.size() + current_.bytes.size() - written_; }
    void keep_the_one_before();
    void failed(const std::string& what);

    std::string path_;
    OutputLogHeader identity_;
    uint64_t file_limit_;
    const std::atomic<bool>& abandoned_;
    int fd_ = -1;
    bool placed_ = false;  ///< what is open has come to its place
    Before before_ = Before::kPrevious;
    uint64_t file_bytes_ = 0;
    std::string header_;               ///< of the file that is open, if that is still to be written
    OutputChunk current_;              ///< behind it
    size_t written_ = 0;               ///< bytes of these two
    std::deque<OutputChunk> waiting_;  ///< behind that
    OutputPosition at_;                ///< behind current_
    std::string error_;
};

}  // namespace crane::proxy
