// What may be wrong with a replica and wants somebody's hand, by name: one name from craned to /metrics, the
// alert rules and the runbooks in docs/alarms.md.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace crane::proxy {

enum class AlarmKind : size_t {
    // what a replica finds itself
    kFenced,
    kOnTrial,
    kCheckpoint,
    kCheckpointFetch,
    kImageFetch,
    kDiskFull,
    kOutputLog,
    kServerFrozen,
    kServerStalled,
    kClocks,
    kDisowned,
    kClientsRefused,
    kClientsWait,
    // what its status shows (conditions.hpp)
    kNoPrimary,
    kNoQuorum,
    kPeerDown,
    kServerDown,
    kServerRestarts,
    kPortNotServed,
    kDiverged,
    kScheduleDiffers,
    kSettingsDiffer,
    kCertificate,
    kConfinementLost,
    kAuditDiffers,
};

/// By kind.
constexpr std::array<std::string_view, 25> kAlarmNames = {
    "fenced",           "on-trial",        "checkpoint",      "checkpoint-fetch", "image-fetch",
    "disk-full",        "output-log",      "server-frozen",   "server-stalled",   "clocks",
    "disowned",         "clients-refused", "clients-wait",    "no-primary",       "no-quorum",
    "peer-down",        "server-down",     "server-restarts", "port-not-served",  "diverged",
    "schedule-differs", "settings-differ", "certificate",     "confinement-lost", "audit-differs",
};
static_assert(kAlarmNames.size() == static_cast<size_t>(AlarmKind::kAuditDiffers) + 1);

constexpr std::string_view alarm_name(AlarmKind kind) {
    return kAlarmNames[static_cast<size_t>(kind)];
}

struct Alarm {
    AlarmKind kind;
    std::string text;
};
using Alarms = std::vector<Alarm>;

inline std::vector<std::string> alarm_texts(const Alarms& alarms) {
    std::vector<std::string> out;
    for (const Alarm& one : alarms) out.push_back(one.text);
    return out;
}
inline std::vector<std::string_view> alarm_names(const Alarms& alarms) {
    std::vector<std::string_view> out;
    for (const Alarm& one : alarms) out.push_back(alarm_name(one.kind));
    return out;
}

}  // namespace crane::proxy
