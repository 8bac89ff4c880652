#include "proxy/unstarted.hpp"

namespace crane::proxy {

using timebubble::CallKind;

namespace {

/// What another has been given, it may still fail at.
constexpr uint64_t kOthersRunNs = 2'000'000'000;
/// To find that a program is not there yet costs a replay.
constexpr uint64_t kNobodyRunsNs = 20'000'000'000;

}  // namespace

UnstartedStep unstarted_step(const Unstarted& look) {
    if (!look.others_run && !look.used) return UnstartedStep::kNext;
    const uint64_t pause_ns = look.others_run ? kOthersRunNs : kNobodyRunsNs;
    return look.since_tried_ns > pause_ns ? UnstartedStep::kTryAgain : UnstartedStep::kWait;
}

bool uses_server(CallKind kind) {
    switch (kind) {
        case CallKind::kConnect:
        case CallKind::kSend:
        case CallKind::kDatagram:
        case CallKind::kConnected:
        case CallKind::kResolved:
            return true;
        default:
            return false;
    }
}

}  // namespace crane::proxy
