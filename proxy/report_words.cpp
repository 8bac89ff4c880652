#include "proxy/report_words.hpp"

#include <string.h>

namespace crane::proxy {

namespace {

/// In the number of the server that has ended.
constexpr uint64_t kUnstartedBit = 1ULL << 63;

}  // namespace

std::string encode_report(const ReportHead& head, const Admission* last) {
    std::string report(reinterpret_cast<const char*>(&head.settings), sizeof(head.settings));
    report.append(reinterpret_cast<const char*>(&head.reading), sizeof(head.reading));
    const uint64_t ended = head.ended | (head.unstarted ? kUnstartedBit : 0);
    report.append(reinterpret_cast<const char*>(&ended), sizeof(ended));
    if (last) report += encode_admissions({*last});
    return report;
}

bool decode_report(std::string_view& report, ReportHead& head) {
    constexpr size_t kFixed = sizeof(head.settings) + sizeof(head.reading) + sizeof(head.ended);
    if (report.size() < kFixed) return false;
    memcpy(&head.settings, report.data(), sizeof(head.settings));
    memcpy(&head.reading, report.data() + sizeof(head.settings), sizeof(head.reading));
    memcpy(&head.ended, report.data() + sizeof(head.settings) + sizeof(head.reading), sizeof(head.ended));
    head.unstarted = (head.ended & kUnstartedBit) != 0;
    head.ended &= ~kUnstartedBit;
    report.remove_prefix(kFixed);
    return true;
}

}  // namespace crane::proxy
