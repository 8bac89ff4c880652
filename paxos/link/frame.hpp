// Framing between replicas: what travels on a connection, and the greeting that opens it.
//
//   frame   length u32 (of the payload) | type u8 | 0 u8 u16 | checksum u64 | payload
//           checksum = XXH64(payload), seeded with length and type
//   hello   magic u32 | newest version u32 | from u32 | to u32 | cluster id (u32 length, bytes) |
//           oldest version u32
//   welcome newest version u32 | introduction (opaque here)
//
// A connection carries frames in one direction: from the replica that opened it. It says Hello; the other
// answers Welcome, or Refused with a reason for people, and sends nothing else. On it the newest version is
// spoken that both know, so that replicas of one Crane and the next work together while they are replaced
// one by one. Bytes behind a greeting's last field are of later versions, and passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "paxos/core/types.hpp"

namespace crane::paxos {

/// At least the version before this one is spoken, too.
constexpr uint32_t kProtocolVersion = 7, kOldestProtocolVersion = 5;
constexpr size_t kFrameHeadBytes = 16;
constexpr size_t kMaxIntroductionBytes = 8192;  ///< of a replica to whoever greets it
constexpr size_t kMaxGreetingBytes = kMaxIntroductionBytes + sizeof(uint32_t);
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

/// Those that a replica speaks, both included.
struct Versions {
    uint32_t oldest = kOldestProtocolVersion, newest = kProtocolVersion;
};
/// What two replicas speak with each other; 0: nothing.
uint32_t common_version(Versions one, Versions other);
std::string to_text(Versions versions);

struct Hello {
    Versions versions;
    ReplicaId from = kNoReplica;
    ReplicaId to = kNoReplica;
    std::string cluster_id;
};
std::string encode_hello(const Hello& hello);
bool decode_hello(std::string_view payload, Hello& hello);

struct Welcome {
    uint32_t newest = kProtocolVersion;
    std::string_view introduction;
};
std::string encode_welcome(const Welcome& welcome);
bool decode_welcome(std::string_view payload, Welcome& welcome);

}  // namespace crane::paxos
