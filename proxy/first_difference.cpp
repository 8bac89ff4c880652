#include "proxy/first_difference.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "proxy/output_words.hpp"

namespace crane::proxy {

using nlohmann::json;
using timebubble::OutputKind;
using Sides = std::map<uint32_t, std::vector<TailRecord>>;

namespace {

constexpr size_t kBytesBefore = 32;  ///< shown, of those that are equal

const TailRecord* find(const std::vector<TailRecord>& records, uint64_t number) {
    if (records.empty() || number < records.front().number || number > records.back().number) return nullptr;
    return &records[number - records.front().number];
}

/// Whether all who know the record say the same of all up to it. Who has put out less has ended before it.
bool agree(const Sides& sides, uint64_t number) {
    const TailRecord* first = nullptr;
    bool any = false;
    for (const auto& [replica, records] : sides) {
        if (records.empty()) continue;
        const TailRecord* const here = find(records, number);
        if (any && (!first != !here || (here && !(here->chain == first->chain)))) return false;
        first = here;
        any = true;
    }
    return true;
}

bool has_bytes(const TailRecord& record) {
    return record.kind == static_cast<uint16_t>(OutputKind::kSend) ||
           record.kind == static_cast<uint16_t>(OutputKind::kDatagram);
}

/// Of the bytes of all; nothing: not all have sent some, or what is known of them is equal.
std::optional<size_t> different_byte(const Sides& sides, uint64_t number) {
    std::optional<size_t> at;
    const TailRecord* first = nullptr;
    for (const auto& [replica, records] : sides) {
        const TailRecord* const here = find(records, number);
        if (!here) continue;
        if (!has_bytes(*here)) return std::nullopt;
        if (!first) first = here;
        const std::string &a = first->beginning, &b = here->beginning;
        const auto [end, unused] =
            std::mismatch(a.begin(), a.begin() + static_cast<long>(std::min(a.size(), b.size())), b.begin());
        const auto equal = static_cast<size_t>(end - a.begin());
        if (equal < a.size() || equal < b.size()) at = std::min(at.value_or(equal), equal);
    }
    return at;
}

json side_json(uint32_t replica, const TailRecord* record, size_t from) {
    if (!record) return {{"replica", replica}, {"call", nullptr}};
    char connection[20];
    snprintf(connection, sizeof(connection), "%lx", record->connection);
    json out = {{"replica", replica},
                {"call", output_kind_name(record->kind)},
                {"connection", record->connection == 0 ? json() : json(connection)},
                {"flags", record->flags},
                {"bytes", record->bytes}};
    if (!has_bytes(*record)) return out;
    out["offset"] = record->offset;
    out["excerpt_from"] = from;
    out["excerpt"] =
        printable(std::string_view(record->beginning)
                      .substr(std::min(from, record->beginning.size()), FirstDifference::kExcerptBytes));
    return out;
}

}  // namespace

void FirstDifference::heard(uint64_t index, uint32_t replica, std::vector<TailRecord> records,
                            int64_t now_s) {
    auto at =
        std::find_if(found_.begin(), found_.end(), [index](const Found& one) { return one.index == index; });
    if (at == found_.end()) {
        if (found_.size() == kPlaces) found_.pop_front();
        at = found_.insert(found_.end(), Found{index, 0, {}});
    }
    at->told_s = now_s;
    at->sides[replica] = std::move(records);
}

json FirstDifference::json() const {
    if (found_.empty()) return nullptr;
    const Found& last = found_.back();
    const Sides& sides = last.sides;
    nlohmann::json out = {{"index", last.index}, {"found_s", last.told_s},
                          {"record", nullptr},   {"exact", false},
                          {"byte", nullptr},     {"sides", nlohmann::json::array()}};
    uint64_t begin = 0, end = 0;
    for (const auto& [replica, records] : sides) {
        if (records.empty()) continue;
        begin = std::max(begin, records.front().number);
        end = std::max(end, records.back().number + 1);
    }
    uint64_t number = begin;
    while (number < end && agree(sides, number)) ++number;
    if (number >= end) return out;
    const std::optional<size_t> byte = different_byte(sides, number);
    out["record"] = number;
    out["exact"] = number > begin;
    if (byte) out["byte"] = *byte;
    const size_t from = byte.value_or(0) > kBytesBefore ? *byte - kBytesBefore : 0;
    for (const auto& [replica, records] : sides)
        if (!records.empty()) out["sides"].push_back(side_json(replica, find(records, number), from));
    return out;
}

}  // namespace crane::proxy
