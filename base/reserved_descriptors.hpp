// Descriptors that belong to Crane in each process of the server. They lie behind all that the program can
// have: RLIMIT_NOFILE ends for it where they begin, and for the kernel behind them.
#pragma once

namespace crane {

constexpr int kReservedFds = 8;
/// As many as the shim has places for. On a host whose hard limit is lower they begin so far below that.
constexpr int kMostProgramFds = 32768;

/// Tells the server's first process where they begin.
constexpr char kReservedVariable[] = "CRANE_RESERVED_FD";

/// What craned hands down, by its place among them: the segment (transport.hpp), and the pipe that wakes
/// craned. CRANE_TRANSPORT in the environment says that they are there.
constexpr int kTransportPlace = 1, kDoorbellPlace = 2;

}  // namespace crane
