// crane output: how far an output log goes, and its hash chain there or at an earlier record. Equal chains at
// the same record mean equal output up to it, so replicas on different hosts are compared by a line from
// each.
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "proxy/output_log_reader.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

/// Who runs writes out what its log still holds in memory. One that does not has nothing there.
void have_written_out(const std::string& path) {
    try {
        ask_craned(path, {{"cmd", "status"}}, 1000);
    } catch (const std::runtime_error&) {
    }
}

/// Reads as far as record number `at`, or to the end. Throws where the log does not have that place.
json mark(const ReplicaDir& replica, std::optional<uint64_t> at) {
    have_written_out(replica.path);
    OutputLogReader log(replica.path);
    uint64_t records = log.first_number();
    Hash128 chain = log.header().chain;
    if (at && *at < records)
        throw std::runtime_error("replica " + std::to_string(replica.id) + ": " + log.path() +
                                 " begins at record " + std::to_string(records) + ", behind " +
                                 std::to_string(*at));
    bool torn = false;
    while (!at || records < *at) {
        const OutputLogReader::Next next = log.next();
        torn = next == OutputLogReader::Next::kTorn;
        if (next != OutputLogReader::Next::kRecord) break;
        records = log.number() + 1;
        chain = log.record().chain;
    }
    if (at && records < *at)
        throw std::runtime_error("replica " + std::to_string(replica.id) + ": " + log.path() + " has " +
                                 std::to_string(records) + " records, not " + std::to_string(*at) + " yet");
    return {{"replica", log.header().replica},
            {"log", log.path()},
            {"records", records},
            {"at", records},
            {"chain", chain.hex()},
            {"first_record", log.first_number()},
            {"torn_end", torn},
            {"admitted_index", log.admitted_index()}};
}

}  // namespace

int tool_output(const std::string& state_dir, const OutputRequest& request, bool as_json) {
    json rows = json::array();
    for (const ReplicaDir& replica : find_replicas(state_dir)) {
        if (request.replica != 0 && replica.id != request.replica) continue;
        rows.push_back(mark(replica, request.at));
    }
    if (rows.empty())
        throw std::runtime_error("there is no replica " + std::to_string(request.replica) + " here");
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
