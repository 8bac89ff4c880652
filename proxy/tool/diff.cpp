// crane diff: do the replicas' outputs agree, byte by byte?
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "proxy/tool/compare.hpp"
#include "proxy/tool/tools.hpp"

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
    if (result.bytes == 0 && result.verdict == Verdict::kIdentical)
        std::cout
            << "    note: no byte of output is in these records; what was compared is connections, ports and "
               "admissions\n";
    if (!result.schedule_difference.empty()) {
        std::cout << "the output is equal, but the schedule is not: " << result.schedule_difference << "\n";
    }
}

/// What a replica's craned says of itself; null if none answers. Asking makes it write its log out.
json ask_status(const std::string& path) {
    try {
        return ask_craned(path, {{"cmd", "status"}}, 1000);
    } catch (const std::runtime_error&) {
        return {};
    }
}

/// The highest index that any of the replicas knows to be decided; 0 if none runs.
uint64_t highest_decided(const std::vector<std::string>& paths) {
    uint64_t highest = 0;
    for (const std::string& path : paths) {
        const json status = ask_status(path);
        if (status.is_object()) highest = std::max(highest, status.value("decided", uint64_t{0}));
    }
    return highest;
}

/// Has every replica, or every one that runs, admitted all up to `index`?
bool all_reached(const std::vector<std::string>& paths, uint64_t index, bool also_down) {
    return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
        const json status = ask_status(path);
        if (!status.is_object()) return !also_down;
        const bool level =
            status.value("lag", uint64_t{1}) == 0 && status.value("decided", uint64_t{0}) >= index;
        return level || status.value("admitted", uint64_t{0}) >= index;
    });
}

bool any_down(const std::vector<std::string>& paths) {
    return std::any_of(paths.begin(), paths.end(),
                       [](const std::string& path) { return !ask_status(path).is_object(); });
}

/// Compares until the equal range reaches what was decided when asked: timers alone keep a cluster's log
/// growing, so running replicas' logs seldom end alike at one moment.
CompareResult compare_cluster(const std::vector<std::string>& paths, const DiffRequest& request) {
    const uint64_t end_ns = monotonic_ns() + uint64_t{request.wait_s} * 1'000'000'000;
    const uint64_t target = highest_decided(paths);
    while (true) {
        const bool reached = all_reached(paths, target, request.wait_for_down);
        const bool late = monotonic_ns() >= end_ns;
        if (reached || late) {
            CompareResult result = compare_logs(paths);
            const bool covered = target > 0 && result.last_index >= target;
            if (result.verdict == Verdict::kPrefix && covered) result.verdict = Verdict::kIdentical;
            const bool final = result.verdict == Verdict::kIdentical || result.verdict == Verdict::kDifferent;
            // A log that nobody writes any more will not grow.
            if (late || final || (!request.wait_for_down && any_down(paths))) return result;
        }
        usleep(50'000);
    }
}

/// As long as they are equal, or cannot be told to differ.
bool agree(const CompareResult& result) {
    return result.verdict == Verdict::kIdentical || result.verdict == Verdict::kPrefix;
}

void print_pair(const CompareResult& result) {
    std::cout << result.logs[0].path << "\n" << result.logs[1].path << "\n    ";
    if (result.verdict != Verdict::kDifferent) {
        std::cout << verdict_name(result.verdict) << ": " << result.records << " records, to log entry "
                  << result.last_index << "\n";
        return;
    }
    std::cout << "different behind log entry " << result.last_index << ", after " << result.records
              << " equal records:\n";
    for (const std::string& record : result.at) std::cout << "        " << record << "\n";
}

/// Where no majority agrees somebody has to choose, and this is what there is to choose from.
int compare_each_two(const std::vector<std::string>& paths, bool as_json) {
    json pairs = json::array();
    std::vector<size_t> agreeing(paths.size(), 1);
    bool differ = false, compared = false;
    for (size_t i = 0; i < paths.size(); ++i) {
        for (size_t j = i + 1; j < paths.size(); ++j) {
            const CompareResult result = compare_logs({paths[i], paths[j]});
            agreeing[i] += agree(result);
            agreeing[j] += agree(result);
            differ |= result.verdict == Verdict::kDifferent;
            compared |= result.verdict != Verdict::kNothing;
            pairs.push_back(to_json(result));
            if (!as_json) print_pair(result);
        }
    }
    const bool majority = *std::max_element(agreeing.begin(), agreeing.end()) > paths.size() / 2;
    if (as_json) {
        std::cout << json{{"pairs", pairs}, {"majority", majority}}.dump(1) << "\n";
    } else if (differ && majority) {
        std::cout << "a majority of these agrees: the others are made anew by themselves\n";
    } else if (differ) {
        std::cout << "no majority of these agrees: say whose state is to count (crane base REPLICA)\n";
    }
    return differ ? kExitNo : compared ? kExitOk : kExitError;
}

/// Whose logs are there to be asked for, not to be read.
bool has_replicas_elsewhere(const std::string& state_dir) {
    return std::ranges::any_of(whole_cluster(state_dir),
                               [](const ReplicaDir& replica) { return replica.elsewhere; });
}

}  // namespace

int tool_diff(const std::string& state_dir, const DiffRequest& request, bool as_json) {
    if (is_remote(state_dir)) return compare_by_chain(state_dir, as_json);
    std::vector<std::string> paths = request.logs;
    CompareResult result;
    if (paths.empty()) {
        const json rows = ask_all(state_dir);
        const auto is_member = [&rows](const ReplicaDir& replica) {
            return rows.size() == 1 || std::ranges::any_of(rows, [&](const json& row) {
                       return row.value("replica", 0u) == replica.id;
                   });
        };
        for (const ReplicaDir& replica : find_replicas(state_dir))
            if (is_member(replica) && !is_witness(replica.path)) paths.push_back(replica.path);
    }
    if (request.logs.empty() && paths.size() < 2 && has_replicas_elsewhere(state_dir)) {
        if (request.anew)
            throw std::runtime_error(
                "--anew reads the logs themselves, and the others' are on other hosts: copy them here and "
                "name them, or leave it out (all are then asked for their chains)");
        return compare_by_chain(state_dir, as_json);
    }
    if (paths.size() < 2)
        throw std::runtime_error(
            "there is one log only, and nothing to compare it with: where the other replicas are on other "
            "hosts, this one has to run to ask them (crane status); or name the logs, copied here");
    if (request.anew) {
        for (const std::string& path : paths) ask_status(path);
        return compare_each_two(paths, as_json);
    }
    if (request.logs.empty()) {
        result = compare_cluster(paths, request);
    } else {
        for (const std::string& path : paths) ask_status(path);
        result = compare_logs(paths);
    }
    if (as_json) {
        std::cout << to_json(result).dump(1) << "\n";
    } else {
        print(result);
    }
    switch (result.verdict) {
        case Verdict::kIdentical:
            return kExitOk;
        case Verdict::kPrefix:
            return request.allow_lag ? kExitOk : kExitLag;
        case Verdict::kDifferent:
            return kExitNo;
        case Verdict::kNothing:
            break;
    }
    return kExitError;
}

}  // namespace crane::proxy
