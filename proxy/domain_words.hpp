#pragma once

#include <cstdint>

namespace crane::proxy {

/// Of the shim's status block: what it does not write again by itself.
struct DomainWords {
    /// An earlier version did not tell it. It never came so far.
    static constexpr uint32_t kUnknownRings = 0x8000'0000;

    uint32_t transport_version = 0;  ///< that the shim speaks
    uint32_t server_pid = 0;
    uint32_t processes = 0;
    uint64_t admitted_index = 0;
    uint64_t grant_end = 0;
    uint64_t files_since_ns = 0;
    /// Of the input ring's doorbell. A thread of the image sleeps until it is another one.
    uint32_t input_rings = kUnknownRings;
};

}  // namespace crane::proxy
