// One comparison of all replicas' output logs by their hash chains: what `crane audit` does again and again.
//
// Rules kept here:
//   - only positions and chains are asked for. Where they differ, the first record that does is found by
//     halves: equal chains behind a record mean equal output up to it;
//   - a replica that could not be asked is never called equal, and what was found equal before is compared
//     again: a log that was made anew must come to the same;
//   - how many questions are asked is bounded by the number of replicas and the logarithm of that of records.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace crane::proxy {

struct EqualUpTo {
    uint64_t records = 0;
    uint64_t admitted_index = 0;  ///< the last log entry before it
    std::string chain;
    bool operator==(const EqualUpTo&) const = default;
};

/// As a statement says it; nothing where they never were.
std::optional<EqualUpTo> equal_in(const nlohmann::json& statement);

struct AuditRound {
    enum class Verdict { kEqual, kDifferent, kIncomplete };
    Verdict verdict = Verdict::kIncomplete;
    /// As far as all were found equal; nothing where they never were.
    std::optional<EqualUpTo> equal;
    std::map<uint32_t, uint64_t> records;     ///< of each replica that was asked
    std::map<uint32_t, std::string> reasons;  ///< why a replica could not be compared
    std::string difference;                   ///< the first, in a sentence
    std::optional<uint64_t> first_different;
    std::map<uint32_t, std::string> at_difference;  ///< each replica's record there, in words
};

class Auditor {
  public:
    /// What OutputMarks::mark() says of a replica's log (output_marks.hpp). Throws std::runtime_error where
    /// it cannot be had.
    using Mark = std::function<nlohmann::json(uint32_t replica, std::optional<uint64_t> at, bool in_words)>;

    explicit Auditor(Mark mark) : mark_(std::move(mark)) {}

    /// `before`: as far as they were found equal the last time.
    AuditRound compare(const std::vector<uint32_t>& replicas, const std::optional<EqualUpTo>& before);

  private:
    std::map<uint32_t, nlohmann::json> all_at(const std::vector<uint32_t>& replicas,
                                              std::optional<uint64_t> at, AuditRound& round);
    bool equal_at(const std::vector<uint32_t>& replicas, uint64_t at, AuditRound& round);
    void find_difference(const std::vector<uint32_t>& replicas, uint64_t equal, uint64_t different,
                         AuditRound& round);

    Mark mark_;
};

}  // namespace crane::proxy
