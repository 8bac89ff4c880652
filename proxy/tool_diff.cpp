// crane diff: do the replicas' outputs agree, byte by byte?
#include <iostream>
#include <nlohmann/json.hpp>

#include "proxy/compare.hpp"
#include "proxy/tools.hpp"

namespace crane::proxy {

using nlohmann::json;
using Verdict = CompareResult::Verdict;

namespace {

const char* verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kIdentical:
            return "identical";
        case Verdict::kPrefix:
            return "identical as far as the shortest log goes";
        case Verdict::kDifferent:
            return "different";
        case Verdict::kNothing:
            return "nothing to compare";
    }
    return "";
}

json to_json(const CompareResult& result) {
    json logs = json::array();
    for (const auto& log : result.logs) {
        logs.push_back({{"path", log.path}, {"records", log.records}, {"torn_end", log.torn}});
    }
    json out = {{"verdict", verdict_name(result.verdict)},
                {"identical", result.verdict == Verdict::kIdentical},
                {"first_record", result.first_record},
                {"records", result.records},
                {"bytes", result.bytes},
                {"first_index", result.first_index},
                {"last_index", result.last_index},
                {"compared_by", result.by_hash ? "hash" : "bytes"},
                {"logs", logs}};
    out["schedule_difference"] =
        result.schedule_difference.empty() ? json() : json(result.schedule_difference);
    if (result.verdict == Verdict::kDifferent) {
        out["difference"] = {
            {"log", result.logs[result.odd_log].path}, {"before", result.before}, {"at", result.at}};
    }
    return out;
}

void print(const CompareResult& result) {
    std::cout << verdict_name(result.verdict) << ": compared " << result.records << " records from number "
              << result.first_record << " on, " << result.bytes << " bytes of output, log entries "
              << result.first_index << " to " << result.last_index << ", of " << result.logs.size()
              << " replicas, by " << (result.by_hash ? "hash" : "bytes") << "\n";
    if (result.verdict == Verdict::kDifferent) {
        std::cout << "before the first difference, equal in all:\n";
        for (const std::string& line : result.before) std::cout << "    " << line << "\n";
        std::cout << "the first difference:\n";
        for (size_t i = 0; i < result.at.size(); ++i) {
            std::cout << "    " << result.logs[i].path << "\n        " << result.at[i] << "\n";
        }
    }
    if (result.verdict == Verdict::kPrefix || result.verdict == Verdict::kNothing) {
        uint64_t longest = 0;
        for (const auto& log : result.logs) longest = std::max(longest, log.records);
        for (const auto& log : result.logs) {
            std::cout << "    " << log.path << ": " << log.records << " records";
            if (log.records < longest) std::cout << ", " << longest - log.records << " behind";
            std::cout << (log.torn ? ", its last record is torn" : "") << "\n";
        }
    }
    if (!result.schedule_difference.empty()) {
        std::cout << "the output is equal, but the schedule is not: " << result.schedule_difference << "\n";
    }
}

}  // namespace

int tool_diff(const std::string& state_dir, const std::vector<std::string>& given, bool allow_lag,
              bool as_json) {
    std::vector<std::string> paths = given;
    if (paths.empty()) {
        for (const ReplicaDir& replica : find_replicas(state_dir)) paths.push_back(replica.path);
    }
    if (paths.size() < 2) throw std::runtime_error("there is one log only, and nothing to compare it with");
    const CompareResult result = compare_logs(paths);
    if (as_json) {
        std::cout << to_json(result).dump(1) << "\n";
    } else {
        print(result);
    }
    switch (result.verdict) {
        case Verdict::kIdentical:
            return kExitOk;
        case Verdict::kPrefix:
            return allow_lag ? kExitOk : kExitLag;
        case Verdict::kDifferent:
            return kExitNo;
        case Verdict::kNothing:
            break;
    }
    return kExitError;
}

}  // namespace crane::proxy
