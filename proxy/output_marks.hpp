// How far a replica's output log goes, and its hash chain there or at an earlier record: what `crane output`,
// `crane audit` and a craned that is asked from elsewhere say. Equal chains at the same record mean equal
// output up to it.
//
// Rules kept here:
//   - all that is said was read from the files and its chain computed anew, so that what the disk has lost or
//     turned is found;
//   - who asks again and again costs what was written since: the log stays open where it was read to, and the
//     chains of the last records are kept.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "proxy/output_log_reader.hpp"

namespace crane::proxy {

class OutputMarks {
  public:
    static constexpr size_t kKept = 32 * 1024;  ///< records whose chains are known without reading

    /// `path`: an output.log, or a directory that has one.
    explicit OutputMarks(std::string path) : path_(std::move(path)) {}

    /// Behind record number `at`, or behind all. `in_words`: and the record that follows there. Throws
    /// std::runtime_error where the log does not have that place.
    nlohmann::json mark(std::optional<uint64_t> at, bool in_words = false);

  private:
    void open();
    bool step();
    const OutputPosition& known(uint64_t at) const { return kept_[at - kept_.front().records]; }

    const std::string path_;
    std::unique_ptr<OutputLogReader> log_;
    std::deque<OutputPosition> kept_;  ///< without a gap; the last is where the log was read to
    bool torn_ = false;
};

}  // namespace crane::proxy
