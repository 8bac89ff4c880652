// Unread input in chunks, against plain deques of bytes.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "interpose/core/chunks.hpp"
#include "test_amount.hpp"
#include "test_dmt_fibers.hpp"

using namespace crane::interpose;
using namespace crane::timebubble;
using crane::dmt::testing::Dice;

namespace {

using Pool = std::unique_ptr<ChunkPool, decltype(&std::free)>;
Pool new_pool() {
    return {static_cast<ChunkPool*>(std::calloc(1, sizeof(ChunkPool))), &std::free};
}

/// Chunks that no stream holds are on the free list, each once.
uint32_t free_chunks(const ChunkPool& pool) {
    uint32_t count = 0;
    for (uint32_t at = pool.free; at != 0 && count <= pool.high; at = pool.next[at - 1]) ++count;
    return count;
}

struct Stream {
    InputQueue queue{};
    std::deque<uint8_t> model;

    uint64_t held() const { return chunks_held(queue.consumed, queue.received); }
    uint64_t common() const {
        return common_chunks(queue.consumed, queue.received, queue.inside ? kOwnPairChunks : kOwnChunks);
    }
};

size_t some_size(Dice& dice) {
    switch (dice.below(4)) {
        case 0:
            return dice.below(4);
        case 1:
            return kInputChunkBytes - 2 + dice.below(5);  // about the end of a chunk
        default:
            return dice.below(3 * kInputChunkBytes);
    }
}

void append(ChunkPool& pool, Stream& stream, Dice& dice) {
    std::vector<uint8_t> bytes(some_size(dice));
    for (uint8_t& one : bytes) one = static_cast<uint8_t>(dice.roll() >> 20);
    const bool fits = bytes.size() <= chunks_room(pool, stream.queue);
    REQUIRE(chunks_append(pool, stream.queue, bytes.data(), bytes.size()) == fits);
    if (fits) stream.model.insert(stream.model.end(), bytes.begin(), bytes.end());
}

void read(ChunkPool& pool, Stream& stream, Dice& dice, bool peek) {
    std::vector<std::vector<uint8_t>> pieces(1 + dice.below(4));
    std::vector<iovec> vector;
    size_t room = 0;
    for (auto& piece : pieces) {
        piece.resize(some_size(dice) / pieces.size());
        vector.push_back({piece.data(), piece.size()});
        room += piece.size();
    }
    const size_t got = chunks_read(pool, stream.queue, vector.data(), static_cast<int>(vector.size()), peek);
    REQUIRE(got == std::min(room, stream.model.size()));
    std::vector<uint8_t> together;
    for (const auto& piece : pieces) together.insert(together.end(), piece.begin(), piece.end());
    REQUIRE(std::equal(together.begin(), together.begin() + static_cast<long>(got), stream.model.begin()));
    if (!peek) stream.model.erase(stream.model.begin(), stream.model.begin() + static_cast<long>(got));
}

}  // namespace

TEST_CASE("chunks: random streams agree with deques, and no chunk is lost", "[interpose]") {
    const uint64_t seed = GENERATE(1, 2, 3);
    CAPTURE(seed);
    Dice dice{seed};
    const Pool pool = new_pool();
    std::vector<Stream> streams(12);
    for (size_t i = 0; i < streams.size(); ++i) streams[i].queue.inside = i % 3 == 0;
    const uint64_t steps = crane::test::rounds(6000, 100'000);
    for (uint64_t step = 0; step < steps; ++step) {
        Stream& stream = streams[dice.below(streams.size())];
        const uint64_t choice = dice.below(40);
        if (choice < 19) append(*pool, stream, dice);
        if (choice >= 19 && choice < 36) read(*pool, stream, dice, false);
        if (choice >= 36 && choice < 39) read(*pool, stream, dice, true);
        if (choice == 39) {
            chunks_drop(*pool, stream.queue);
            stream.model.clear();
        }
        REQUIRE(stream.queue.unread() == stream.model.size());
        uint64_t held = 0, common[2] = {};
        for (const Stream& one : streams) {
            held += one.held();
            common[one.queue.inside] += one.common();
        }
        REQUIRE(pool->common_used[0] == common[0]);
        REQUIRE(pool->common_used[1] == common[1]);
        REQUIRE(held + free_chunks(*pool) == pool->high);
    }
    CHECK(pool->high > streams.size());
    for (Stream& stream : streams) chunks_drop(*pool, stream.queue);
    CHECK(free_chunks(*pool) == pool->high);
}

TEST_CASE("chunks: an append that does not fit leaves the stream as it was", "[interpose]") {
    const Pool pool = new_pool();
    Stream stream;
    stream.queue.inside = 1;
    pool->common_used[1] = kCommonPairChunks - 1;  // others hold it
    const uint64_t room = chunks_room(*pool, stream.queue);
    CHECK(room == (kOwnPairChunks + 1) * kInputChunkBytes);
    const std::vector<uint8_t> much(room + 1, 'x');
    CHECK_FALSE(chunks_append(*pool, stream.queue, much.data(), much.size()));
    CHECK(stream.queue.unread() == 0);
    CHECK(pool->high == 0);
    CHECK(chunks_append(*pool, stream.queue, much.data(), room));
    CHECK(chunks_room(*pool, stream.queue) == 0);
    CHECK_FALSE(chunks_append(*pool, stream.queue, much.data(), 1));
}

TEST_CASE("chunks: a chunk given back is the next one taken", "[interpose]") {
    const Pool pool = new_pool();
    InputQueue first{}, second{}, third{};
    const uint8_t byte = 'b';
    REQUIRE(chunks_append(*pool, first, &byte, 1));
    REQUIRE(chunks_append(*pool, second, &byte, 1));
    const uint32_t place = first.first_plus1;
    chunks_drop(*pool, first);
    REQUIRE(chunks_append(*pool, third, &byte, 1));
    CHECK(third.first_plus1 == place);
    CHECK(pool->high == 2);
}
