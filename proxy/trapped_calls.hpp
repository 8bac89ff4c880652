// System calls that the shim has trapped (interpose/core/backstop.hpp), as the status shows them: which ones,
// and where in the server's code they are made most.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "timebubble/transport.hpp"

namespace crane::proxy {

/// What stands there may be anybody's work: it is shown, and nothing more is made of it.
nlohmann::json trapped_calls_json(const timebubble::TrappedCalls& trapped);

}  // namespace crane::proxy
