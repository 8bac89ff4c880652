// A server that was decided on, and that this replica could not start: its program is not there, its base
// image cannot be mounted. Whether one could start it is chance, and may be otherwise at a replay, so the log
// says of which servers nobody is to have seen anything. Pure.
//
// As long as another replica's runs, or anything was decided for it to see, it is that server that has to be
// begun here, too: what its clients were told must not be lost. Only one that nobody has used is given up
// for the next, whose start says so (StartPayload); whose server runs all the same is made anew without it.
#pragma once

#include <cstdint>

#include "timebubble/batch.hpp"

namespace crane::proxy {

struct Unstarted {
    bool others_run = false;  ///< another replica's server has been given its start
    bool used = false;        ///< calls were decided for it
    uint64_t since_tried_ns = 0;
};

enum class UnstartedStep {
    kWait,
    kTryAgain,  ///< the replica is made anew
    kNext,      ///< it may be given up, when the restart policy says so
};

UnstartedStep unstarted_step(const Unstarted& look);

/// Of an entry behind a server's start, before the next one's: whether that server is to see anything of it.
/// An operator's order tells nobody anything, nor do ends of connections of the server before.
bool uses_server(timebubble::CallKind kind);

}  // namespace crane::proxy
