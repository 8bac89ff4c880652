// Reads an output log (output_format.hpp) from its oldest file on, checking the chain record by record.
// Tolerates the torn end that a killed replica leaves, and says so.
#pragma once

#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "proxy/config.hpp"
#include "proxy/output_format.hpp"

namespace crane::proxy {

class OutputLogReader {
  public:
    enum class Next { kRecord, kEnd, kTorn };

    /// `path`: an output.log, or a directory that has one. Throws std::runtime_error with a message.
    explicit OutputLogReader(const std::string& path);
    OutputLogReader(OutputLogReader&&) noexcept = default;

    /// Reads the next record into record() and payload(). Where there is none, the next call looks there
    /// again.
    Next next();
    /// Finds the files that were begun since. False: the log was made anew, and this one goes no further.
    bool look_again();
    const OutputLogRecord& record() const { return record_; }
    /// The payload, or the 16 bytes of its hash if hashed().
    std::string_view payload() const { return payload_; }
    bool hashed() const;
    /// Comparable whatever either log keeps.
    Hash128 payload_hash() const;

    uint64_t number() const { return number_; }                                          ///< of record()
    OutputPosition position() const { return {next_number_, admitted_index_, chain_}; }  ///< behind record()
    uint64_t first_number() const { return first_number_; }  ///< of the oldest record kept
    uint64_t admitted_index() const { return admitted_index_; }
    /// After kTorn: what is there is whole, and no record. It will not become one by waiting.
    bool damaged() const { return damaged_; }
    const OutputLogHeader& header() const { return header_; }
    const std::string& path() const { return path_; }

  private:
    struct Closer {
        void operator()(FILE* file) const { fclose(file); }
    };
    using File = std::unique_ptr<FILE, Closer>;
    void read_header(FILE* file, const std::string& name, OutputLogHeader& header) const;
    bool next_file();
    /// Back to where the record begins that is not there, or not whole.
    Next stay(long begin, Next why);

    std::string path_;
    std::deque<std::pair<File, OutputLogHeader>>
        files_;  ///< opened together, so that rotation does not matter
    OutputLogHeader header_{};
    OutputLogRecord record_{};
    std::string payload_;
    Hash128 chain_;
    uint64_t number_ = 0;
    uint64_t next_number_ = 0;
    uint64_t first_number_ = 0;
    uint64_t admitted_index_ = 0;
    bool damaged_ = false;
};

const char* output_kind_name(uint16_t kind);

}  // namespace crane::proxy
