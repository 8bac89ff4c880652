// craned.log: where spdlog's lines of this process go, and standard error as well when somebody sits there.
// When it has 32 MiB it becomes craned.log.1, in place of the one before; of one kind of line it takes so
// many a minute (log_limit.hpp), unless debugging is asked for.
#pragma once

#include "proxy/config.hpp"

namespace crane::proxy {

/// Throws std::runtime_error when it cannot be written.
void open_daemon_log(const Config& config);
/// Somebody has moved the file away: goes on in a new one at the old place. What cannot be opened stays as it
/// is.
void reopen_daemon_log();

}  // namespace crane::proxy
