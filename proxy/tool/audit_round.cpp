#include "proxy/tool/audit_round.hpp"

#include <algorithm>
#include <stdexcept>

namespace crane::proxy {

using nlohmann::json;

namespace {

EqualUpTo position(const json& mark) {
    return {mark.value("at", uint64_t{0}), mark.value("admitted_index", uint64_t{0}),
            mark.value("chain", "")};
}

bool all_equal(const std::map<uint32_t, json>& marks) {
    return std::all_of(marks.begin(), marks.end(), [&](const auto& one) {
        return one.second["chain"] == marks.begin()->second["chain"];
    });
}

/// Whose chain is not the one that most have, or that there is no such chain.
std::string who_differs(const std::map<uint32_t, json>& marks) {
    std::map<std::string, std::vector<uint32_t>> by_chain;
    for (const auto& [replica, mark] : marks) by_chain[mark.value("chain", "")].push_back(replica);
    std::string odd;
    bool majority = false;
    for (const auto& [chain, replicas] : by_chain) {
        if (replicas.size() * 2 > marks.size()) {
            majority = true;
            continue;
        }
        for (const uint32_t replica : replicas) odd += (odd.empty() ? "" : ", ") + std::to_string(replica);
    }
    return majority ? "the output of replica " + odd + " differs from the others'"
                    : "the outputs of replicas " + odd + " differ, and no majority of them agrees";
}

}  // namespace

std::optional<EqualUpTo> equal_in(const json& statement) {
    const auto equal = statement.find("equal");
    if (equal == statement.end() || !equal->is_object()) return std::nullopt;
    return EqualUpTo{equal->value("records", uint64_t{0}), equal->value("admitted_index", uint64_t{0}),
                     equal->value("chain", "")};
}

std::map<uint32_t, json> Auditor::all_at(const std::vector<uint32_t>& replicas, std::optional<uint64_t> at,
                                         AuditRound& round) {
    std::map<uint32_t, json> out;
    for (const uint32_t replica : replicas) {
        try {
            out[replica] = mark_(replica, at, false);
        } catch (const std::runtime_error& error) {
            round.reasons.try_emplace(replica, error.what());
        }
    }
    return out;
}

bool Auditor::equal_at(const std::vector<uint32_t>& replicas, uint64_t at, AuditRound& round) {
    return all_equal(all_at(replicas, at, round));
}

/// They are equal behind the record `equal`, and not behind `different`.
void Auditor::find_difference(const std::vector<uint32_t>& replicas, uint64_t equal, uint64_t different,
                              AuditRound& round) {
    while (different - equal > 1) {
        const uint64_t middle = equal + (different - equal) / 2;
        (equal_at(replicas, middle, round) ? equal : different) = middle;
    }
    round.first_different = equal;
    for (const uint32_t replica : replicas) {
        try {
            round.at_difference[replica] = mark_(replica, equal, true).value("record", "");
        } catch (const std::runtime_error& error) {
            round.at_difference[replica] = error.what();
        }
    }
}

AuditRound Auditor::compare(const std::vector<uint32_t>& replicas, const std::optional<EqualUpTo>& before) {
    AuditRound round;
    round.equal = before;
    const std::map<uint32_t, json> ends = all_at(replicas, std::nullopt, round);
    uint64_t common = UINT64_MAX, oldest = 0;
    std::vector<uint32_t> asked;
    for (const auto& [replica, mark] : ends) {
        asked.push_back(replica);
        round.records[replica] = mark.value("records", uint64_t{0});
        common = std::min(common, round.records[replica]);
        oldest = std::max(oldest, mark.value("first_record", uint64_t{0}));
    }
    // What was equal before has to be so still, wherever a log has it.
    if (before) {
        for (const auto& [replica, mark] : ends) {
            if (mark.value("first_record", uint64_t{0}) > before->records ||
                round.records[replica] < before->records)
                continue;
            const std::map<uint32_t, json> again = all_at({replica}, before->records, round);
            if (again.empty() || again.at(replica)["chain"] == before->chain) continue;
            round.difference = "replica " + std::to_string(replica) + "'s output up to record " +
                               std::to_string(before->records) +
                               " is no longer what all replicas' was found to be";
        }
    }
    if (asked.size() > 1 && oldest > common) {
        for (const auto& [replica, records] : round.records)
            if (records == common)
                round.reasons.try_emplace(replica, "its log ends at record " + std::to_string(common) +
                                                       ", where another one's has not begun");
    } else if (asked.size() > 1) {
        const std::map<uint32_t, json> here = all_at(asked, common, round);
        if (all_equal(here)) {
            const bool further = !before || common >= before->records;
            if (further && round.difference.empty() && here.size() == replicas.size())
                round.equal = position(here.begin()->second);
        } else {
            std::vector<uint32_t> compared;
            compared.reserve(here.size());
            for (const auto& [replica, unused] : here) compared.push_back(replica);
            const bool from_start = oldest == common || !equal_at(compared, oldest, round);
            if (!from_start) find_difference(compared, oldest, common, round);
            round.difference =
                who_differs(here) + ", " +
                (from_start ? "before record " + std::to_string(oldest) + ", where a log begins"
                            : "first in record " + std::to_string(*round.first_different));
        }
    }
    using Verdict = AuditRound::Verdict;
    const bool complete = round.reasons.empty() && asked.size() == replicas.size() && asked.size() > 1;
    round.verdict = !round.difference.empty() ? Verdict::kDifferent
                    : complete                ? Verdict::kEqual
                                              : Verdict::kIncomplete;
    return round;
}

}  // namespace crane::proxy
