// The bounds of memory, over plain memory: what the primary's account lets through always fits into the
// domain's chunks, whatever is read when; windows never promise more than their stock.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "interpose/core/chunks.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/output_windows.hpp"

using namespace crane;
using namespace crane::timebubble;
using crane::interpose::ChunkPool;
using crane::interpose::InputQueue;
using crane::proxy::DomainAccount;
using crane::proxy::OutputWindow;
using crane::proxy::OutputWindows;

namespace {

constexpr uint64_t kAllInput = uint64_t{kCommonChunks} * kInputChunkBytes;

std::string_view bytes_of(const auto& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

void say(DomainAccount& account, OutputKind kind, uint64_t connection, std::string_view payload = {}) {
    account.on_output({static_cast<uint32_t>(payload.size()), kind, 0, connection, 0, 0}, payload);
}

/// Zeroed, and as in a domain, pages that are never used cost nothing.
using Pool = std::unique_ptr<ChunkPool, decltype(&std::free)>;
Pool new_pool() {
    return {static_cast<ChunkPool*>(std::calloc(1, sizeof(ChunkPool))), &std::free};
}

/// The domain's side as the shim keeps it: one queue a connection, consumption reported when it is news.
struct Domain {
    Pool pool = new_pool();
    struct One {
        InputQueue queue{};
        uint64_t reported = 0;
    };
    std::vector<One> all;

    explicit Domain(size_t connections) : all(connections) {}
    bool take(size_t who, const std::string& bytes) {
        return chunks_append(*pool, all[who].queue, reinterpret_cast<const uint8_t*>(bytes.data()),
                             bytes.size());
    }
    std::string read(size_t who, size_t most, DomainAccount& account) {
        std::string out(most, '\0');
        const iovec one{out.data(), most};
        out.resize(chunks_read(*pool, all[who].queue, &one, 1, false));
        One& from = all[who];
        if (consumption_is_news(from.reported, from.queue.consumed, from.queue.received)) {
            from.reported = from.queue.consumed;
            say(account, OutputKind::kConsumed, who, bytes_of(from.queue.consumed));
        }
        return out;
    }
};

}  // namespace

TEST_CASE("memory: what is admitted always fits, and arrives whole", "[memory]") {
    std::mt19937_64 random(GENERATE(1, 2));
    constexpr size_t kConnections = 700;
    Domain domain(kConnections);
    DomainAccount account(kAllInput);
    std::vector<uint64_t> sent(kConnections), got(kConnections);
    const auto byte_at = [](size_t who, uint64_t at) {
        return static_cast<char>(who * 7 + at * 13 + (at >> 9));
    };
    for (size_t who = 0; who < kConnections; ++who) account.proposed_connect(who, 80);
    struct Call {
        size_t who;
        std::string bytes;
    };
    std::deque<Call> under_way;  // proposed, not yet admitted
    for (int step = 0; step < 60'000; ++step) {
        const size_t who = random() % kConnections;
        const uint64_t room = account.input_room(who);
        uint64_t count = std::min<uint64_t>(room, random() % 3 ? random() % 70'000 : random() % 3);
        if (count > 0) {
            std::string bytes(count, '\0');
            for (char& one : bytes) one = byte_at(who, sent[who]++);
            account.proposed_input(who, count);
            under_way.push_back({who, std::move(bytes)});
        }
        while (under_way.size() > 40 || (!under_way.empty() && random() % 4 == 0)) {
            REQUIRE(domain.take(under_way.front().who, under_way.front().bytes));
            under_way.pop_front();
        }
        if (step % 3 == 0) {  // too seldom: the stock is nearly used up most of the time
            const size_t reader = random() % (kConnections / 2);
            const std::string bytes = domain.read(reader, 1 + random() % 20'000, account);
            bool same = true;
            for (char one : bytes) same &= one == byte_at(reader, got[reader]++);
            REQUIRE(same);
        }
    }
    CHECK(account.input_bytes() > kAllInput / 2);
    CHECK(domain.pool->common_used[0] * kInputChunkBytes <= account.input_bytes());
}

TEST_CASE("memory: a connection whose server reads is never starved by those whose does not", "[memory]") {
    constexpr size_t kHogs = 4000;
    Domain domain(kHogs + 1);
    DomainAccount account(kAllInput);
    for (size_t who = 0; who <= kHogs; ++who) account.proposed_connect(who, 80);
    for (int round = 0; round < 40; ++round) {
        for (size_t who = 0; who < kHogs; ++who) {
            const uint64_t room = account.input_room(who);
            account.proposed_input(who, room);
            REQUIRE(domain.take(who, std::string(room, 'x')));
        }
    }
    uint64_t through = 0;
    for (int round = 0; round < 100; ++round) {
        const uint64_t room = account.input_room(kHogs);
        REQUIRE(room >= kInputChunkBytes);
        const uint64_t count = std::min<uint64_t>(room, 4097);
        account.proposed_input(kHogs, count);
        REQUIRE(domain.take(kHogs, std::string(count, 'y')));
        through += domain.read(kHogs, 10'000, account).size();
    }
    CHECK(through >= 100 * kInputChunkBytes);
}

TEST_CASE("memory: one byte of a connection costs one chunk, and it goes back", "[memory]") {
    const Pool pool = new_pool();
    std::vector<InputQueue> all(interpose::kMaxSockets);
    const uint8_t byte = 1;
    for (int more = 0; more < 3; ++more)
        for (InputQueue& one : all) REQUIRE(chunks_append(*pool, one, &byte, 1));
    CHECK(pool->high == all.size());
    for (InputQueue& one : all) chunks_drop(*pool, one);
    for (InputQueue& one : all) REQUIRE(chunks_append(*pool, one, &byte, 1));
    CHECK(pool->high == all.size());
    CHECK(pool->common_used[0] == 0);
}

TEST_CASE("memory: connections inside the domain and clients do not use up each other's chunks", "[memory]") {
    const Pool pool = new_pool();
    const std::string much(1 << 20, 'm');
    const auto* bytes = reinterpret_cast<const uint8_t*>(much.data());
    std::vector<InputQueue> pairs(200);
    for (InputQueue& one : pairs) {
        one.inside = 1;
        const uint64_t room = chunks_room(*pool, one);
        REQUIRE(room >= 1);
        REQUIRE(chunks_append(*pool, one, bytes, std::min<uint64_t>(room, much.size())));
    }
    CHECK_FALSE(chunks_append(*pool, pairs[0], bytes, much.size()));
    InputQueue client{};
    CHECK(chunks_append(*pool, client, bytes, much.size()));
}

TEST_CASE("memory: an input beyond the stock is refused whole, and nothing else changes", "[memory]") {
    const Pool pool = new_pool();
    InputQueue hog{};
    const std::string much(kAllInput + kOwnChunks * kInputChunkBytes, 'h');
    const auto* bytes = reinterpret_cast<const uint8_t*>(much.data());
    REQUIRE(chunks_append(*pool, hog, bytes, much.size() - 1));
    CHECK_FALSE(chunks_append(*pool, hog, bytes, 2));
    CHECK(hog.received == much.size() - 1);
    InputQueue other{};
    CHECK(chunks_append(*pool, other, bytes, kOwnChunks * kInputChunkBytes));
    CHECK_FALSE(chunks_append(*pool, other, bytes, 1));
}

TEST_CASE("account: places at a port are held until the server accepts", "[memory]") {
    DomainAccount account(kAllInput);
    ListenRecord listen{};
    listen.port = 80;
    listen.places = 3;
    say(account, OutputKind::kListen, 0, bytes_of(listen));
    for (uint64_t id = 1; id <= 3; ++id) {
        REQUIRE(account.place_for_client(80));
        account.proposed_connect(id, 80);
    }
    CHECK_FALSE(account.place_for_client(80));
    CHECK(account.place_for_client(81));  // nobody listens there: the domain says so
    say(account, OutputKind::kAccept, 2);
    CHECK(account.place_for_client(80));
    account.proposed_connect(4, 80);
    CHECK_FALSE(account.place_for_client(80));
    say(account, OutputKind::kClose, 2);  // accepted before: frees no place in the queue
    CHECK_FALSE(account.place_for_client(80));
    say(account, OutputKind::kClose, 3);
    CHECK(account.place_for_client(80));
    listen.places = 2;
    say(account, OutputKind::kListen, 0, bytes_of(listen));
    CHECK_FALSE(account.place_for_client(80));
}

TEST_CASE("account: the table of sockets is never promised away", "[memory]") {
    DomainAccount account(kAllInput);
    for (uint64_t id = 1; id <= kMaxClients; ++id) {
        REQUIRE(account.place_for_client(80));
        account.proposed_connect(id, 80);
        say(account, OutputKind::kAccept, id);
    }
    CHECK_FALSE(account.place_for_client(80));
    account.proposed_reset(5);
    CHECK_FALSE(account.place_for_client(80));  // the server still has it
    say(account, OutputKind::kClose, 5);
    CHECK(account.place_for_client(80));
}

TEST_CASE("account: a new primary begins with what its predecessor has left in the domain", "[memory]") {
    const std::string block(64 * 1024, 'b');
    ConnectPayload connect{};
    connect.listen_port = 80;
    DomainAccount account(kAllInput);
    for (uint64_t id = 1; id <= 100; ++id) {  // as a backup sees it
        account.decided({CallKind::kConnect, id, bytes_of(connect)});
        account.decided({CallKind::kSend, id, block});
    }
    const uint64_t left = account.input_bytes();
    CHECK(left == 100 * (block.size() - kOwnChunks * kInputChunkBytes));
    account.proposed_connect(1000, 80);  // as primary
    account.promised_input(1000, 200'000);
    CHECK(account.input_bytes() > left);
    account.proposed_reset(1);
    CHECK(account.input_bytes() < left + 200'000);
    account.forget_proposals();  // and no longer
    CHECK(account.input_bytes() == left);
    CHECK(account.connections() == 100);
    account.decided({CallKind::kReset, 1, {}});
    const uint64_t consumed = block.size();
    say(account, OutputKind::kConsumed, 2, bytes_of(consumed));
    say(account, OutputKind::kClose, 3);
    CHECK(account.input_bytes() == left / 100 * 97);
    account.decided({CallKind::kSend, 3, block});  // was under way when the server closed
    CHECK(account.input_bytes() == left / 100 * 97);
}

TEST_CASE("account: what a new primary proposes for an old connection counts on top of what is decided",
          "[memory]") {
    const std::string block(100'000, 'b');
    ConnectPayload connect{};
    DomainAccount account(kAllInput);
    account.decided({CallKind::kConnect, 1, bytes_of(connect)});
    account.decided({CallKind::kSend, 1, block});
    account.proposed_input(1, block.size());
    CHECK(account.input_bytes() == common_chunks(0, 2 * block.size()) * kInputChunkBytes);
    account.decided({CallKind::kSend, 1, block});
    CHECK(account.input_bytes() == common_chunks(0, 2 * block.size()) * kInputChunkBytes);
    account.promised_input(1, 8192);
    account.forget_proposals();
    account.promised_input(1, 8192);
    account.returned_input(1, ~uint64_t{0});
    CHECK(account.input_bytes() == common_chunks(0, 2 * block.size()) * kInputChunkBytes);
    account.proposed_input(1, 5000);
    CHECK(account.input_bytes() == common_chunks(0, 2 * block.size() + 5000) * kInputChunkBytes);
}

TEST_CASE("account: credit that comes back serves others", "[memory]") {
    DomainAccount account(kAllInput);
    account.proposed_connect(1, 80);
    account.promised_input(1, 100'000);
    account.proposed_input(1, 10'000);
    account.returned_input(1, 90'000 - 8192);
    CHECK(account.input_bytes() == common_chunks(0, 10'000 + 8192) * kInputChunkBytes);
    account.returned_input(1, 1'000'000);  // no more than was promised
    CHECK(account.input_bytes() == common_chunks(0, 10'000) * kInputChunkBytes);
}

TEST_CASE("windows: never more than the stock, and always the first window", "[memory]") {
    std::mt19937_64 random(GENERATE(4, 5));
    constexpr uint64_t kStock = 64 << 20;
    OutputWindows windows(kStock);
    std::vector<OutputWindow> all(3000);
    for (OutputWindow& one : all) windows.open(one);
    CHECK(windows.used() <= kStock);
    for (int step = 0; step < 200'000; ++step) {
        OutputWindow& one = all[random() % all.size()];
        one.sent += random() % 4 ? one.unsent() : random() % (one.unsent() + 1);
        windows.raise(one);
        const bool reads = (&one - all.data()) % 2 == 0;
        if (reads) {
            windows.taken(one, random() % 2 ? one.sent - one.taken : random() % (one.sent - one.taken + 1));
            windows.raise(one);
            if (one.taken == one.sent) REQUIRE(one.unsent() > 0);
        }
        REQUIRE(windows.used() <= kStock);
    }
    uint64_t most = 0;
    for (const OutputWindow& one : all) most += one.end - one.taken;
    CHECK(most <= kStock + all.size() * kFirstWindowBytes);
    for (const OutputWindow& one : all) windows.close(one);
    CHECK(windows.used() == 0);
}

TEST_CASE("windows: one client that reads gets the largest window", "[memory]") {
    OutputWindows windows(512 << 20);
    OutputWindow one;
    CHECK(windows.open(one));
    int raises = 0;
    for (int step = 0; step < 1000; ++step) {
        one.sent += std::min<uint64_t>(one.unsent(), 64 * 1024);
        raises += windows.raise(one);
        windows.taken(one, one.sent - one.taken);
        raises += windows.raise(one);
    }
    CHECK(one.size == kLargestWindowBytes);
    CHECK(one.sent == 1000 * 64 * 1024);  // it never stood still
    CHECK(raises < 60);                   // about one for two megabytes
}
