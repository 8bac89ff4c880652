#include "proxy/tool/compare.hpp"

#include <string.h>

#include <algorithm>
#include <stdexcept>

#include "proxy/output_words.hpp"

namespace crane::proxy {

using timebubble::OutputKind;
using Next = OutputLogReader::Next;

namespace {

constexpr size_t kContextRecords = 4;

bool same_output(const OutputLogReader& a, const OutputLogReader& b) {
    const OutputLogRecord& x = a.record();
    const OutputLogRecord& y = b.record();
    if (x.kind != y.kind || x.flags != y.flags || x.connection != y.connection || x.bytes != y.bytes)
        return false;
    // An admission's logical clock is the schedule's business; which entry it is, is not.
    if (!in_chain(x.kind)) return a.admitted_index() == b.admitted_index();
    if (!a.hashed() && !b.hashed()) return a.payload() == b.payload();
    return a.payload_hash() == b.payload_hash();
}

bool same_schedule(const OutputLogReader& a, const OutputLogReader& b) {
    return a.record().clock == b.record().clock && a.record().schedule_hash == b.record().schedule_hash;
}

size_t first_different_byte(std::string_view a, std::string_view b) {
    const auto at =
        std::mismatch(a.begin(), a.begin() + static_cast<long>(std::min(a.size(), b.size())), b.begin());
    return static_cast<size_t>(at.first - a.begin());
}

/// Steps every log to the first record that all of them keep.
void align(std::vector<OutputLogReader>& logs, CompareResult& result) {
    for (const OutputLogReader& log : logs)
        result.first_record = std::max(result.first_record, log.first_number());
    for (size_t i = 0; i < logs.size(); ++i) {
        for (uint64_t n = logs[i].first_number(); n < result.first_record; ++n) {
            const Next got = logs[i].next();
            if (got == Next::kRecord) continue;
            result.logs[i].torn = got == Next::kTorn;
            break;
        }
    }
}

void difference_found(const std::vector<OutputLogReader>& logs, const std::vector<bool>& ended, size_t base,
                      size_t odd, CompareResult& result) {
    result.verdict = CompareResult::Verdict::kDifferent;
    result.odd_log = odd;
    const bool bytes_only = logs[base].record().kind == logs[odd].record().kind &&
                            logs[base].record().kind == static_cast<uint16_t>(OutputKind::kSend) &&
                            !logs[base].hashed() && !logs[odd].hashed();
    const size_t from = bytes_only ? first_different_byte(logs[base].payload(), logs[odd].payload()) : 0;
    for (size_t i = 0; i < logs.size(); ++i) {
        result.at.push_back(ended[i] ? "(its log has ended)" : describe_record(logs[i], from));
    }
}

void note_equal(const std::vector<OutputLogReader>& logs, CompareResult& result) {
    const OutputLogReader& first = logs[0];
    ++result.records;
    for (auto& log : result.logs) ++log.records;
    result.bytes += output_bytes(first.record().kind, first.record().bytes);
    if (first.record().kind == static_cast<uint16_t>(OutputKind::kAdmitted)) {
        if (result.first_index == 0) result.first_index = first.admitted_index();
        result.last_index = first.admitted_index();
    }
    for (size_t i = 1; i < logs.size() && result.schedule_difference.empty(); ++i) {
        if (same_schedule(first, logs[i])) continue;
        result.schedule_difference = "record " + std::to_string(first.number()) + ": clock " +
                                     std::to_string(first.record().clock) + " in " + first.path() + ", " +
                                     std::to_string(logs[i].record().clock) + " in " + logs[i].path();
    }
    result.before.push_back(describe_record(first));
    if (result.before.size() > kContextRecords) result.before.erase(result.before.begin());
}

}  // namespace

CompareResult compare_logs(const std::vector<std::string>& paths) {
    CompareResult result;
    std::vector<OutputLogReader> logs;
    for (const std::string& path : paths) {
        logs.emplace_back(path);
        result.logs.push_back({logs.back().path(), 0, false});
        result.by_hash |= logs.back().header().content == static_cast<uint32_t>(LogContent::kHash);
        if (strncmp(logs.back().header().cluster_id, logs[0].header().cluster_id, 32) != 0) {
            throw std::runtime_error(logs.back().path() + " is of another cluster than " + logs[0].path());
        }
    }
    align(logs, result);
    std::vector<bool> ended(logs.size(), false);
    for (;;) {
        bool any_ended = false;
        bool all_ended = true;
        for (size_t i = 0; i < logs.size(); ++i) {
            if (!ended[i]) {
                const Next got = logs[i].next();
                ended[i] = got != Next::kRecord;
                result.logs[i].torn |= got == Next::kTorn;
            }
            any_ended |= ended[i];
            all_ended &= ended[i];
        }
        // Beyond the shortest log, those that go on are still compared with each other.
        size_t base = 0;
        while (base < logs.size() && ended[base]) ++base;
        for (size_t i = base + 1; i < logs.size(); ++i) {
            if (ended[i] || same_output(logs[base], logs[i])) continue;
            difference_found(logs, ended, base, i, result);
            return result;
        }
        if (all_ended) break;
        if (any_ended) {
            for (size_t i = 0; i < logs.size(); ++i) result.logs[i].records += !ended[i];
        } else {
            note_equal(logs, result);
        }
    }
    using Verdict = CompareResult::Verdict;
    const bool same_end = std::all_of(result.logs.begin(), result.logs.end(), [&](const auto& log) {
        return log.records == result.logs[0].records && !log.torn;
    });
    result.verdict = result.records == 0 ? Verdict::kNothing
                     : same_end          ? Verdict::kIdentical
                                         : Verdict::kPrefix;
    return result;
}

}  // namespace crane::proxy
