// Quorum arithmetic, the encodings, frames.
#include <catch2/catch.hpp>
#include <random>

#include "paxos/core/message.hpp"
#include "paxos/core/quorum.hpp"
#include "paxos/link/frame.hpp"
#include "paxos/store/record.hpp"

using namespace crane::paxos;

namespace {

Message full_message() {
    Message message;
    message.type = MessageType::kPrepare;
    message.from = 2;
    message.to = 3;
    message.wants_ack = true;
    message.view = make_view(7, 2);
    message.index = 41;
    message.index_view = make_view(3, 1);
    message.chain = 0x1122334455667788;
    message.commit = 40;
    message.promised = message.view;
    message.hint = 12;
    message.report = "report";
    for (uint64_t i = 0; i < 3; ++i) {
        Entry entry;
        entry.index = 42 + i;
        entry.view = i == 0 ? make_view(3, 1) : message.view;
        entry.kind = i == 1 ? EntryKind::kNewView : EntryKind::kValue;
        entry.chain = 99 + i;
        entry.value = std::make_shared<const std::string>(i == 1 ? 0 : 10 * i + 5, 'v');
        message.entries.push_back(entry);
    }
    return message;
}

std::string encoded(const Message& message) {
    std::string bytes;
    encode(message, bytes);
    return bytes;
}

}  // namespace

TEST_CASE("paxos: majorities") {
    REQUIRE(majority(1) == 1);
    REQUIRE(majority(2) == 2);
    REQUIRE(majority(3) == 2);
    REQUIRE(majority(5) == 3);
    REQUIRE(majority(7) == 4);
    REQUIRE(majority_reached({9}) == 9);
    REQUIRE(majority_reached({5, 9, 0}) == 5);
    REQUIRE(majority_reached({9, 9, 0}) == 9);
    REQUIRE(majority_reached({1, 2, 3, 4, 5}) == 3);
    REQUIRE(majority_reached({7, 0, 0, 0, 7}) == 0);
    REQUIRE(majority_reached({4, 3}) == 3);
}

TEST_CASE("paxos: views order by counter, then leader") {
    REQUIRE(make_view(2, 1) > make_view(1, 3));
    REQUIRE(make_view(2, 3) > make_view(2, 1));
    REQUIRE(view_leader(make_view(12, 5)) == 5);
    REQUIRE(view_counter(make_view(12, 5)) == 12);
    REQUIRE(view_name(make_view(12, 5)) == "12.5");
}

TEST_CASE("paxos: messages survive encoding") {
    const Message sent = full_message();
    Message got;
    REQUIRE(decode(encoded(sent), got));
    REQUIRE(encoded(got) == encoded(sent));
    REQUIRE(got.type == sent.type);
    REQUIRE(got.from == 2);
    REQUIRE(got.to == 3);
    REQUIRE(got.wants_ack);
    REQUIRE_FALSE(got.ok);
    REQUIRE(got.report == "report");
    REQUIRE(got.entries.size() == 3);
    REQUIRE(got.entries[2].index == 44);
    REQUIRE(got.entries[1].kind == EntryKind::kNewView);
    REQUIRE(*got.entries[2].value == std::string(25, 'v'));
}

TEST_CASE("paxos: a truncated or overlong message is refused") {
    const std::string bytes = encoded(full_message());
    Message got;
    for (size_t size = 0; size < bytes.size(); ++size) {
        INFO("size " << size);
        REQUIRE_FALSE(decode(std::string_view(bytes).substr(0, size), got));
    }
    REQUIRE_FALSE(decode(bytes + '\0', got));
}

TEST_CASE("paxos: malformed fields are refused") {
    Message got;
    std::string bytes = encoded(full_message());
    SECTION("type 0") {
        bytes[0] = 0;
    }
    SECTION("unknown type") {
        bytes[0] = 10;
    }
    SECTION("unknown flag") {
        bytes[1] = 16;
    }
    SECTION("entries in another message than Prepare") {
        bytes[0] = static_cast<char>(MessageType::kAck);
    }
    SECTION("an entry from after the message's view") {
        Message message = full_message();
        message.entries[2].view = make_view(8, 1);
        bytes = encoded(message);
    }
    SECTION("views that go back") {
        Message message = full_message();
        message.entries[2].view = make_view(3, 1);
        bytes = encoded(message);
    }
    SECTION("a count that the bytes cannot hold") {
        Message message = full_message();
        message.entries.clear();
        bytes = encoded(message);
        bytes[bytes.size() - 2] = 5;
    }
    SECTION("an index about to wrap") {
        Message message = full_message();
        message.index = UINT64_MAX - 1;
        bytes = encoded(message);
    }
    REQUIRE_FALSE(decode(bytes, got));
}

TEST_CASE("paxos: the decoder survives noise") {
    std::mt19937 random(1);
    const std::string bytes = encoded(full_message());
    for (int round = 0; round < 20'000; ++round) {
        std::string noisy = bytes;
        for (unsigned flips = random() % 4 + 1; flips > 0; --flips)
            noisy[random() % noisy.size()] = static_cast<char>(random());
        noisy.resize(noisy.size() - random() % 3);
        Message got;
        if (decode(noisy, got)) REQUIRE(encoded(got) == noisy);
    }
}

TEST_CASE("paxos: frames") {
    const std::string frame = make_frame(FrameType::kApp, "hello");
    FrameType type{};
    std::string_view payload;
    size_t size = 0;
    const std::string stream = frame + "rest";
    REQUIRE(parse_frame(stream, 100, type, payload, size) == FrameStatus::kComplete);
    REQUIRE(type == FrameType::kApp);
    REQUIRE(payload == "hello");
    REQUIRE(size == frame.size());
    for (size_t part = 0; part < frame.size(); ++part)
        REQUIRE(parse_frame(frame.substr(0, part), 100, type, payload, size) == FrameStatus::kIncomplete);
    REQUIRE(parse_frame(frame, 4, type, payload, size) == FrameStatus::kBad);
    for (size_t byte = 0; byte < frame.size(); ++byte) {
        if (byte < 4) continue;  // a wrong length may also look incomplete
        INFO("byte " << byte);
        std::string damaged = frame;
        damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
        REQUIRE(parse_frame(damaged, 100, type, payload, size) == FrameStatus::kBad);
    }
}

TEST_CASE("paxos: greetings") {
    Hello hello{{3, 7}, 1, 2, "cluster"};
    Hello got;
    const std::string bytes = encode_hello(hello);
    REQUIRE(decode_hello(bytes, got));
    REQUIRE(got.from == 1);
    REQUIRE(got.to == 2);
    REQUIRE(got.cluster_id == "cluster");
    REQUIRE(got.versions.oldest == 3);
    REQUIRE(got.versions.newest == 7);
    REQUIRE(decode_hello(bytes + "of a later version", got));
    REQUIRE_FALSE(decode_hello(bytes.substr(0, bytes.size() - 1), got));
    REQUIRE_FALSE(decode_hello(encode_hello({{8, 7}, 1, 2, "cluster"}), got));
    REQUIRE_FALSE(decode_hello(bytes.substr(1), got));
}

TEST_CASE("paxos: stored records carry their checksum and their place") {
    Entry entry = full_message().entries[2];
    std::string bytes;
    encode_entry(entry, bytes);
    Entry got;
    REQUIRE(decode_entry(entry.index, bytes, got));
    REQUIRE(*got.value == *entry.value);
    REQUIRE(got.chain == entry.chain);
    REQUIRE_FALSE(decode_entry(entry.index + 1, bytes, got));
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
        std::string damaged = bytes;
        damaged[byte] = static_cast<char>(damaged[byte] ^ 4);
        REQUIRE_FALSE(decode_entry(entry.index, damaged, got));
    }
    REQUIRE(make_key(2) < make_key(300));
    REQUIRE(key_index(make_key(1ull << 40)) == 1ull << 40);
}

TEST_CASE("paxos: replicas speak the newest version that both know") {
    const auto common = [](Versions one, Versions other) {
        REQUIRE(common_version(one, other) == common_version(other, one));
        return common_version(one, other);
    };
    CHECK(common({5, 5}, {5, 5}) == 5);
    CHECK(common({5, 6}, {6, 7}) == 6);
    CHECK(common({5, 6}, {4, 5}) == 5);
    CHECK(common({6, 7}, {4, 5}) == 0);
    Welcome welcome;
    const std::string bytes = encode_welcome({7, "who we are"});  // which the introduction is a part of
    REQUIRE(decode_welcome(bytes, welcome));
    CHECK(welcome.newest == 7);
    CHECK(welcome.introduction == "who we are");
    CHECK_FALSE(decode_welcome("abc", welcome));
}
