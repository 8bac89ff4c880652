// Compares output logs record by record, in bounded memory: what `crane diff` does.
//
// Two records are the same when their call, connection, flags and bytes are. Logical clock and schedule hash
// are compared too, but a difference there alone is told apart: clients saw the same. Admission marks hold a
// place in the log and are compared as part of the schedule. A comparison of nothing is never a pass.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proxy/output_log_reader.hpp"

namespace crane::proxy {

struct CompareResult {
    enum class Verdict { kIdentical, kPrefix, kDifferent, kNothing };
    struct Log {
        std::string path;
        uint64_t records = 0;  ///< compared or, beyond what is common, counted
        bool torn = false;
    };

    Verdict verdict = Verdict::kNothing;
    std::vector<Log> logs;
    uint64_t first_record = 0;
    uint64_t records = 0;  ///< compared in every log
    uint64_t bytes = 0;    ///< of output in them
    uint64_t first_index = 0;
    uint64_t last_index = 0;
    bool by_hash = false;             ///< some log keeps hashes only
    std::string schedule_difference;  ///< the first, in words; empty if none
    size_t odd_log = 0;               ///< at the first difference: one that differs from log 0
    std::vector<std::string> before;  ///< the last equal records, in words
    std::vector<std::string> at;      ///< each log's record at the difference, in words
};

/// Throws std::runtime_error when a log cannot be read.
CompareResult compare_logs(const std::vector<std::string>& paths);

}  // namespace crane::proxy
