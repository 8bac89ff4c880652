// Descriptors that belong to Crane in each process of the server: eight near the highest that it may have,
// where programs hardly ever come (docs/design.md).
#pragma once

namespace crane {

constexpr int kReservedFds = 8;
/// As many as the shim has places for.
constexpr int kMostProgramFds = 32768;

/// Tells the server's first process where they begin.
constexpr char kReservedVariable[] = "CRANE_RESERVED_FD";

/// What craned hands down, by its place among them: the segment (transport.hpp), and the pipe that wakes
/// craned. CRANE_TRANSPORT in the environment says that they are there.
constexpr int kTransportPlace = 1, kDoorbellPlace = 2;

}  // namespace crane
