// craned.log: what anybody can have said again and again takes a bounded part of it.
#include <catch2/catch.hpp>
#include <string>

#include "proxy/log_limit.hpp"

using crane::proxy::LogLimit;

namespace {

constexpr uint64_t kStartNs = 1'000'000'000;
constexpr uint64_t kMsNs = 1'000'000;

std::string listening(uint64_t port) {
    return "clients reach the server's port " + std::to_string(port) + " at 10.0.0.1";
}

}  // namespace

TEST_CASE("log limit: of one kind so many a minute, and then how many more there were", "[proxy]") {
    LogLimit limit;
    uint64_t written = 0;
    for (uint64_t i = 0; i < 50'000; ++i) written += limit.admits(listening(i), kStartNs + i * kMsNs);
    CHECK(written == LogLimit::kMost);
    CHECK(limit.take_summaries().empty());
    // Another kind is not kept silent by it.
    CHECK(limit.admits("DIVERGENCE at log index 7", kStartNs + 50'000 * kMsNs));
    CHECK(limit.admits(listening(1), kStartNs + LogLimit::kWindowNs));
    CHECK(limit.take_summaries() ==
          std::vector<std::string>{"49900 more lines like this were left out: " + listening(100)});
    CHECK(limit.take_summaries().empty());
    // And again in the next minute.
    CHECK(limit.admits(listening(2), kStartNs + LogLimit::kWindowNs + 1));
    CHECK(limit.admits(listening(3), kStartNs + 2 * LogLimit::kWindowNs));
    CHECK(limit.take_summaries().empty());
}

TEST_CASE("log limit: who makes up new kinds of lines is bounded, too", "[proxy]") {
    LogLimit limit;
    uint64_t written = 0;
    for (int i = 0; i < 200'000; ++i) {
        std::string name;
        for (int rest = i; rest != 0; rest /= 26) name += static_cast<char>('a' + rest % 26);
        written += limit.admits(name + " is refused", kStartNs);
    }
    CHECK(written <= LogLimit::kPlaces * LogLimit::kMost);
    limit.admits("a line", kStartNs + LogLimit::kWindowNs);
    CHECK(limit.take_summaries().size() <= LogLimit::kPlaces);
    const std::string long_line(100'000, 'x');
    for (uint64_t i = 0; i <= LogLimit::kMost; ++i) limit.admits(long_line, kStartNs + LogLimit::kWindowNs);
    limit.admits("a line", kStartNs + 2 * LogLimit::kWindowNs);
    REQUIRE(limit.take_summaries().size() == 1);
}
