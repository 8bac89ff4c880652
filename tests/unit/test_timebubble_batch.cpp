// The batch format: what was encoded comes back, and nothing else is accepted or read.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "timebubble/batch.hpp"
#include "timebubble/transport.hpp"

using namespace crane::timebubble;

namespace {

/// Decodes from memory that ends where the bytes end, so that a sanitizer sees any read beyond them.
bool decodes(std::string_view bytes, std::vector<std::string>* payloads = nullptr) {
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
    memcpy(exact.get(), bytes.data(), bytes.size());
    BatchDecoder decoder;
    if (!decoder.open(exact.get(), bytes.size())) return false;
    uint32_t calls = 0;
    for (Call call; decoder.next(call); ++calls) {
        const auto* at = reinterpret_cast<const uint8_t*>(call.payload.data());
        if (at < exact.get() || at + call.payload.size() > exact.get() + bytes.size()) return false;
        std::string copy(call.payload);  // touches each byte
        if (payloads) payloads->push_back(std::move(copy));
    }
    return calls == decoder.header().calls;
}

std::string sample() {
    BatchEncoder encoder;
    encoder.add(CallKind::kGenesis, 0, std::string(32, 's'));
    encoder.add(CallKind::kConnect, 5, std::string(sizeof(ConnectPayload), 'c'));
    encoder.add(CallKind::kSend, 5, "GET / HTTP/1.0\r\n\r\n");
    encoder.add(CallKind::kShutdown, 5, "");
    encoder.add(CallKind::kSend, 6, "1234567");
    encoder.add(CallKind::kSignal, 0, std::string(4, '\x0f'));
    return encoder.finish(123, 456);
}

}  // namespace

TEST_CASE("batch: calls of every size come back as they went in", "[timebubble]") {
    BatchEncoder encoder;
    std::vector<std::string> sent, got;
    for (size_t size = 0; size < 40; ++size) {
        sent.emplace_back(size, static_cast<char>('a' + size % 26));
        REQUIRE(encoder.add(CallKind::kSend, size, sent.back()));
    }
    REQUIRE(encoder.calls() == 40);
    const std::string bytes = encoder.finish(1, 2);
    CHECK(bytes.size() % 8 == 0);
    REQUIRE(decodes(bytes, &got));
    CHECK(got == sent);
    CHECK(encoder.calls() == 0);
    got.clear();
    REQUIRE(decodes(encoder.finish(3, 4), &got));  // a bubble
    CHECK(got.empty());
}

TEST_CASE("batch: one that would grow too large refuses the call and stays whole", "[timebubble]") {
    BatchEncoder encoder;
    const size_t room = kMaxBatchBytes - sizeof(BatchHeader) - sizeof(CallHeader);
    CHECK_FALSE(encoder.add(CallKind::kSend, 1, std::string(room + 1, 'x')));
    CHECK(encoder.calls() == 0);
    REQUIRE(encoder.add(CallKind::kSend, 1, std::string(room, 'x')));
    CHECK_FALSE(encoder.add(CallKind::kShutdown, 1, ""));
    const std::string bytes = encoder.finish(1, 1);
    CHECK(bytes.size() == kMaxBatchBytes);
    CHECK(decodes(bytes));
    CHECK_FALSE(decodes(bytes + std::string(8, '\0')));
}

TEST_CASE("batch: bytes that mean nothing have to be zero", "[timebubble]") {
    BatchEncoder encoder;
    encoder.add(CallKind::kSend, 1, "x");
    const std::string good = encoder.finish(1, 2);
    REQUIRE(decodes(good));
    std::string padding = good, reserved = good;
    padding.back() = 1;
    reserved[sizeof(BatchHeader) + offsetof(CallHeader, reserved)] = 1;
    CHECK_FALSE(decodes(padding));
    CHECK_FALSE(decodes(reserved));
}

TEST_CASE("batch: a part of one, and one with something behind it, is refused", "[timebubble]") {
    const std::string whole = sample();
    REQUIRE(decodes(whole));
    for (size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        CHECK_FALSE(decodes(whole.substr(0, size)));
    }
    for (size_t more = 1; more <= 64; ++more) CHECK_FALSE(decodes(whole + std::string(more, '\0')));
}

TEST_CASE("batch: lengths, counts and kinds that lie are refused", "[timebubble]") {
    const auto with = [](size_t offset, uint64_t value, size_t bytes) {
        std::string damaged = sample();
        memcpy(damaged.data() + offset, &value, bytes);
        return decodes(damaged);
    };
    const size_t first = sizeof(BatchHeader);
    CHECK_FALSE(with(offsetof(BatchHeader, magic), 1, 4));
    for (const uint64_t calls : {0ULL, 5ULL, 7ULL, 0xffff'ffffULL}) {
        CHECK_FALSE(with(offsetof(BatchHeader, calls), calls, 4));
    }
    for (const uint64_t size : {0ULL, 40ULL, 0x7fff'ffffULL, 0xffff'fff8ULL, 0xffff'ffffULL}) {
        CHECK_FALSE(with(first + offsetof(CallHeader, bytes), size, 4));
    }
    for (const uint64_t kind :
         {uint64_t{0}, static_cast<uint64_t>(CallKind::kResolved) + 1, uint64_t{0xffff}}) {
        CHECK_FALSE(with(first + offsetof(CallHeader, kind), kind, 2));
    }
}

TEST_CASE("batch: random damage is never read out of bounds", "[timebubble]") {
    std::mt19937_64 random(7);
    int accepted = 0, refused = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string bytes = sample();
        for (uint64_t n = 1 + random() % 4; n > 0; --n) {
            bytes[random() % bytes.size()] = static_cast<char>(random() % 3 ? random() : random() % 9);
        }
        if (random() % 4 == 0) bytes.resize(random() % bytes.size());
        ++(decodes(bytes) ? accepted : refused);
    }
    CHECK(accepted > 100);  // damage in a payload is not the format's to see: the log's checksum sees it
    CHECK(refused > 100);
}
