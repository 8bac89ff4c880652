// The addresses that a server has beside the loopback ones, the same on all hosts: where its clients come to
// is different on each. They stand for all of those: what listens there alone is meant for clients of the
// cluster. One of each family, since libc's look-ups leave out the family that has none: the one that is set
// aside for what needs an address and has none (RFC 7600), and one that nobody is reached at (RFC 6666).
#pragma once

#include <cstdint>

namespace crane {

constexpr uint8_t kOwnAddress[4] = {192, 0, 0, 8};
constexpr uint8_t kOwnAddressSix[16] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8};

}  // namespace crane
