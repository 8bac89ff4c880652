#include "proxy/audit_note.hpp"

#include <nlohmann/json.hpp>

#include "paxos/link/refusal_log.hpp"

namespace crane::proxy {

std::string AuditNote::take(const nlohmann::json& told, int64_t now_s) {
    const auto records = told.find("records");
    const auto difference = told.find("difference");
    if (records == told.end() || !records->is_number_unsigned() || difference == told.end() ||
        !difference->is_string())
        return "audit needs \"records\": a number, and \"difference\": a text";
    told_s_ = now_s;
    records_ = *records;
    difference_ = paxos::printable(difference->get<std::string>(), kMaxTextBytes);
    return "";
}

nlohmann::json AuditNote::json() const {
    if (told_s_ == 0) return nullptr;
    return {{"told_s", told_s_}, {"records", records_}, {"difference", difference_}};
}

}  // namespace crane::proxy
