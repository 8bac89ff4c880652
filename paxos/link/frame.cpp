#include "paxos/link/frame.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/check.hpp"
#include "paxos/core/wire.hpp"

namespace crane::paxos {
namespace {

constexpr uint32_t kHelloMagic = 0x504e5243;  // "CRNP"

struct FrameHead {
    uint32_t length;
    uint8_t type;
    uint8_t zero[3];
    uint64_t checksum;
};
static_assert(sizeof(FrameHead) == kFrameHeadBytes);

uint64_t frame_checksum(const FrameHead& head, const char* payload) {
    return XXH64(payload, head.length, head.length | uint64_t{head.type} << 32);
}

}  // namespace

void finish_frame(FrameType type, std::string& frame) {
    CRANE_CHECK(frame.size() >= kFrameHeadBytes && frame.size() - kFrameHeadBytes <= kMaxFrameBytes);
    FrameHead head{};
    head.length = static_cast<uint32_t>(frame.size() - kFrameHeadBytes);
    head.type = static_cast<uint8_t>(type);
    head.checksum = frame_checksum(head, frame.data() + kFrameHeadBytes);
    std::memcpy(frame.data(), &head, sizeof head);
}

std::string make_frame(FrameType type, std::string_view payload) {
    std::string frame = begin_frame();
    frame.append(payload);
    finish_frame(type, frame);
    return frame;
}

FrameStatus parse_frame(std::string_view bytes, size_t max_payload_bytes, FrameType& type,
                        std::string_view& payload, size_t& size_bytes) {
    if (bytes.size() < kFrameHeadBytes) return FrameStatus::kIncomplete;
    FrameHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.length > max_payload_bytes || head.type < static_cast<uint8_t>(FrameType::kHello) ||
        head.type > static_cast<uint8_t>(FrameType::kApp) || head.zero[0] + head.zero[1] + head.zero[2] != 0)
        return FrameStatus::kBad;
    size_bytes = kFrameHeadBytes + head.length;
    if (bytes.size() < size_bytes) return FrameStatus::kIncomplete;
    payload = bytes.substr(kFrameHeadBytes, head.length);
    if (frame_checksum(head, payload.data()) != head.checksum) return FrameStatus::kBad;
    type = static_cast<FrameType>(head.type);
    return FrameStatus::kComplete;
}

std::string encode_hello(const Hello& hello) {
    std::string out;
    put_int(out, kHelloMagic);
    put_int(out, hello.versions.newest);
    put_int(out, hello.from);
    put_int(out, hello.to);
    put_bytes(out, hello.cluster_id);
    put_int(out, hello.versions.oldest);
    return out;
}

bool decode_hello(std::string_view payload, Hello& hello) {
    WireReader in(payload);
    if (in.get_int<uint32_t>() != kHelloMagic) return false;
    hello.versions.newest = in.get_int<uint32_t>();
    hello.from = in.get_int<uint32_t>();
    hello.to = in.get_int<uint32_t>();
    hello.cluster_id = in.get_bytes(kMaxGreetingBytes);
    hello.versions.oldest = in.get_int<uint32_t>();
    return !in.bad() && hello.versions.oldest <= hello.versions.newest;
}

std::string encode_welcome(const Welcome& welcome) {
    std::string out;
    put_int(out, welcome.newest);
    out += welcome.introduction;
    return out;
}

bool decode_welcome(std::string_view payload, Welcome& welcome) {
    WireReader in(payload);
    welcome.newest = in.get_int<uint32_t>();
    if (in.bad()) return false;
    welcome.introduction = payload.substr(sizeof(uint32_t));
    return true;
}

uint32_t common_version(Versions one, Versions other) {
    const uint32_t newest = std::min(one.newest, other.newest);
    return newest >= std::max(one.oldest, other.oldest) ? newest : 0;
}

std::string to_text(Versions versions) {
    const std::string newest = std::to_string(versions.newest);
    return versions.oldest == versions.newest ? newest : std::to_string(versions.oldest) + " to " + newest;
}

}  // namespace crane::paxos
