// crane output: how far an output log goes, and its hash chain there or at an earlier record. Equal chains at
// the same record mean equal output up to it, so replicas on different hosts are compared by a line from
// each.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "proxy/output_marks.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr int kReadLimitMs = 120'000;  // a log of some GiB

/// Who runs writes out what its log still holds in memory. One that does not has nothing there.
void have_written_out(const std::string& path) {
    try {
        ask_craned(path, {{"cmd", "status"}}, 1000);
    } catch (const std::runtime_error&) {
    }
}

json mark(const ReplicaDir& replica, std::optional<uint64_t> at) {
    if (!is_remote(replica.path)) {
        have_written_out(replica.path);
        return OutputMarks(replica.path).mark(at);
    }
    json question = {{"cmd", "output"}};
    if (at) question["at"] = *at;
    json answer = ask_replica(replica, question, kReadLimitMs);
    if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
    return answer;
}

}  // namespace

int tool_output(const std::string& state_dir, const OutputRequest& request, bool as_json) {
    json rows = json::array();
    for (const ReplicaDir& replica : chosen_replicas(state_dir, request.replica))
        rows.push_back(mark(replica, request.at));
    if (as_json) {
        std::cout << rows.dump() << "\n";
        return kExitOk;
    }
    for (const json& row : rows)
        std::cout << "replica " << row["replica"] << ": " << row["records"] << " records, chain "
                  << row["chain"].get<std::string>() << "\n";
    return kExitOk;
}

}  // namespace crane::proxy
