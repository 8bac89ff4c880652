// What is to be a trap, found in an object that tells of hardly any function.
#include <catch2/catch.hpp>
#include <cstring>
#include <ctime>
#include <vector>

#include "interpose/core/trap_sites.hpp"

using namespace crane::interpose;

namespace {

constexpr uint8_t kNop = 0x90;

/// An object in memory: its table tells of one function at the begin of its code, and of nothing behind it.
class Bare {
  public:
    static constexpr size_t kFunctionBytes = 16;

    explicit Bare(size_t code_bytes) : bytes_(kCodeAt + code_bytes, kNop) {
        const uint8_t head[] = {1, 0x1b, 0x03, 0x3b};
        std::memcpy(bytes_.data(), head, sizeof(head));
        put(8, 1);  // one row
        put(12, kCodeAt);
        put(16, kEntryAt);
        const uint8_t common[] = {1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b};
        put(kCommonAt, 4 + sizeof(common));
        put(kCommonAt + 4, 0);
        std::memcpy(bytes_.data() + kCommonAt + 8, common, sizeof(common));
        put(kEntryAt, 12);
        put(kEntryAt + 4, kEntryAt + 4 - kCommonAt);
        put(kEntryAt + 8, kCodeAt - (kEntryAt + 8));
        put(kEntryAt + 12, kFunctionBytes);
    }

    FunctionTable functions() const { return FunctionTable(bytes_.data()); }
    uint8_t* code() { return bytes_.data() + kCodeAt; }
    CodeRange range() {
        return {reinterpret_cast<uint64_t>(code()),
                reinterpret_cast<uint64_t>(bytes_.data() + bytes_.size())};
    }

  private:
    static constexpr uint32_t kCommonAt = 32, kEntryAt = 64, kCodeAt = 128;

    void put(size_t at, uint32_t value) { std::memcpy(bytes_.data() + at, &value, sizeof(value)); }

    std::vector<uint8_t> bytes_;
};

template <size_t kBytes>
void write(uint8_t* at, const uint8_t (&code)[kBytes]) {
    std::memcpy(at, code, kBytes);
}

constexpr uint8_t kPause[] = {0xf3, 0x90};
constexpr uint8_t kNumberLikePause[] = {0xb8, 0x12, 0xf3, 0x90, 0x12};  // mov $0x1290f312,%eax
constexpr uint8_t kWideRandom[] = {0x48, 0x0f, 0xc7, 0xf0};             // rdrand %rax
constexpr uint8_t kNothing[] = {0x06};

}  // namespace

TEST_CASE("trap sites: a stretch of megabytes is not walked through anew for each of them") {
    constexpr size_t kBytes = 4 << 20, kEach = 2048;
    static PauseSites pauses;
    const auto cost = [](Bare& object) {
        const clock_t begin = clock();
        find_pauses(object.range(), object.functions(), pauses);
        return clock() - begin;
    };
    Bare object(kBytes);
    write(object.code() + kBytes / 2, kPause);
    const clock_t once = cost(object);
    for (size_t at = kEach; at < kBytes; at += kEach) {
        write(object.code() + at, kPause);
        write(object.code() + at + 100, kNumberLikePause);
    }
    // Of four thousand candidates; the walk itself is twice as long, at most.
    pauses.count = 0;
    CHECK(cost(object) < 100 * once);
    REQUIRE(pauses.count == kBytes / kEach - 1);
    for (size_t i = 0; i < pauses.count; ++i)
        REQUIRE(pauses.all[i].at == object.range().begin + (i + 1) * kEach);
}

TEST_CASE("trap sites: those next to each other, with prefixes and without, are told apart") {
    Bare object(4096);
    uint8_t* const far = object.code() + 1000;
    write(far, kWideRandom);
    write(far + 4, kPause);
    write(far + 6, kPause);
    write(far + 8, kWideRandom);
    write(object.code() + 2, kPause);  // in the function
    static PauseSites pauses;
    static RandomSites randoms;
    find_pauses(object.range(), object.functions(), pauses);
    find_randoms(object.range(), object.functions(), randoms);
    REQUIRE(pauses.count == 3);
    CHECK(pauses.all[0].at == object.range().begin + 2);
    CHECK(pauses.all[1].at == object.range().begin + 1004);
    CHECK(pauses.all[2].at == object.range().begin + 1006);
    REQUIRE(randoms.count == 2);
    CHECK(randoms.all[0].at == object.range().begin + 1000);
    CHECK(randoms.all[1].at == object.range().begin + 1008);
}

TEST_CASE("trap sites: where a walk does not come to the end nothing is a trap") {
    Bare object(4096);
    write(object.code() + 2, kPause);
    write(object.code() + 1000, kPause);
    write(object.code() + 2000, kNothing);
    static PauseSites pauses;
    find_pauses(object.range(), object.functions(), pauses);
    REQUIRE(pauses.count == 1);
    CHECK(pauses.all[0].at == object.range().begin + 2);
}
