// Where the server's first process finds what it inherits from craned: the segment (transport.hpp), and the
// pipe that wakes craned. CRANE_TRANSPORT in its environment says that they are there.
#pragma once

namespace crane::timebubble {

constexpr int kTransportFd = 1001;
constexpr int kDoorbellFd = 1002;

}  // namespace crane::timebubble
