// The limit of files' sizes (RLIMIT_FSIZE). The kernel sends SIGXFSZ to who would pass it, past masks and
// handlers, which are the schedule's: so that one is ignored, and the schedule sends its own.
#pragma once

namespace crane::interpose {

/// Hands on the result of a call that may have met the limit, and sends the signal if it has. Outside a turn.
long after_growth(long result);

}  // namespace crane::interpose
