// Framing between replicas: what travels on a connection, and the greeting that opens it.
//
//   frame   length u32 (of the payload) | type u8 | 0 u8 u16 | checksum u64 | payload
//           checksum = XXH64(payload), seeded with length and type
//   hello   magic u32 | protocol version u32 | from u32 | to u32 | cluster id (u32 length, bytes)
//
// A connection carries frames in one direction: from the replica that opened it. It says Hello; the other
// answers Welcome with an introduction (opaque here), or Refused with a reason for people, and sends nothing
// else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "paxos/core/types.hpp"

namespace crane::paxos {

constexpr uint32_t kProtocolVersion = 4;
constexpr size_t kFrameHeadBytes = 16;
constexpr size_t kMaxIntroductionBytes = 8192;  ///< of a replica to whoever greets it
constexpr size_t kMaxGreetingBytes = kMaxIntroductionBytes;
constexpr size_t kMaxReasonBytes = 512;       ///< of a refusal, as it is written to a log
constexpr size_t kMaxFrameBytes = 20u << 20;  ///< the largest value, a batch around it, and room for heads

enum class FrameType : uint8_t {
    kHello = 1,
    kWelcome = 2,
    kRefused = 3,
    kProtocol = 4,  ///< a Message
    kApp = 5,       ///< opaque bytes of the user
};

/// A frame is built in place: begin_frame, append the payload, finish_frame.
inline std::string begin_frame() {
    return std::string(kFrameHeadBytes, '\0');
}
void finish_frame(FrameType type, std::string& frame);
std::string make_frame(FrameType type, std::string_view payload);

enum class FrameStatus { kComplete, kIncomplete, kBad };
/// Looks at the first frame in `bytes`. Complete: type and payload are set, and size_bytes says how much to
/// consume.
FrameStatus parse_frame(std::string_view bytes, size_t max_payload_bytes, FrameType& type,
                        std::string_view& payload, size_t& size_bytes);

struct Hello {
    uint32_t version = kProtocolVersion;
    ReplicaId from = kNoReplica;
    ReplicaId to = kNoReplica;
    std::string cluster_id;
};
std::string encode_hello(const Hello& hello);
bool decode_hello(std::string_view payload, Hello& hello);

}  // namespace crane::paxos
