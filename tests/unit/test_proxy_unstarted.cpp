// What becomes of a server that was decided on and cannot be started.
#include <catch2/catch.hpp>

#include "proxy/unstarted.hpp"

using crane::proxy::Unstarted;
using crane::proxy::unstarted_step;
using crane::proxy::UnstartedStep;
using crane::proxy::uses_server;
using crane::timebubble::CallKind;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("unstarted: only a server that nobody runs and nobody has used is given up", "[proxy]") {
    CHECK(unstarted_step({false, false, 0}) == UnstartedStep::kNext);
    CHECK(unstarted_step({false, false, 60 * kSecond}) == UnstartedStep::kNext);
    for (const bool others_run : {false, true}) {
        CHECK(unstarted_step({others_run, !others_run, 0}) == UnstartedStep::kWait);
        CHECK(unstarted_step({others_run, !others_run, 60 * kSecond}) == UnstartedStep::kTryAgain);
    }
    CHECK(unstarted_step({true, true, 3 * kSecond}) == UnstartedStep::kTryAgain);
    CHECK(unstarted_step({false, true, 3 * kSecond}) == UnstartedStep::kWait);
}

TEST_CASE("unstarted: what a server is made of is not its use", "[proxy]") {
    for (const CallKind kind : {CallKind::kGenesis, CallKind::kStart, CallKind::kStop, CallKind::kProgram,
                                CallKind::kSignal, CallKind::kReset})
        CHECK_FALSE(uses_server(kind));
    for (const CallKind kind : {CallKind::kConnect, CallKind::kSend, CallKind::kDatagram,
                                CallKind::kConnected, CallKind::kResolved})
        CHECK(uses_server(kind));
}
