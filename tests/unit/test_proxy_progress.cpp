// What takes long says how far it is, to who looks at a terminal.
#include <catch2/catch.hpp>

#include "proxy/tool/progress.hpp"

using namespace crane::proxy;

namespace {

struct Watcher {
    uint64_t now_ns = 5;
    std::vector<std::string> said;
    Progress::Screen screen() {
        return {[this](const std::string& text) { said.push_back(text); }, [this] { return now_ns; }};
    }
};

constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("progress: nothing in the first second, then now and then, and the line goes", "[progress]") {
    Watcher watcher;
    {
        Progress progress("packing", 2'000'000'000, watcher.screen());
        progress.at(1);
        watcher.now_ns += kSecond - 1;
        progress.at(2);
        CHECK(watcher.said.empty());
        watcher.now_ns += 1;
        progress.at(500'000'000);
        REQUIRE(watcher.said.size() == 1);
        CHECK(watcher.said[0] == "\r\033[Kpacking [#######.......................] 25 % of 2.0 GB");
        watcher.now_ns += kSecond / 10;
        progress.at(600'000'000);
        CHECK(watcher.said.size() == 1);
        watcher.now_ns += kSecond / 5;
        progress.at(3'000'000'000);  // more than was told
        REQUIRE(watcher.said.size() == 2);
        CHECK(watcher.said[1] == "\r\033[Kpacking [##############################] 100 % of 2.0 GB");
    }
    CHECK(watcher.said.back() == "\r\033[K");
}

TEST_CASE("progress: what is soon done, of unknown length or seen by nobody says nothing", "[progress]") {
    Watcher watcher;
    { Progress(std::string("soon"), 10, watcher.screen()).at(10); }
    {
        Progress unknown("unknown", 0, watcher.screen());
        watcher.now_ns += 10 * kSecond;
        unknown.at(10);
    }
    Progress::Screen nobody{nullptr, [] { return uint64_t{0}; }};
    Progress("nobody", 10, nobody).at(5);
    CHECK(watcher.said.empty());
}

TEST_CASE("progress: sums count by pieces and are never stopped, programs by what they have written",
          "[progress]") {
    Watcher watcher;
    Progress progress("summing", 4 * crane::checkpoint::kSumPieceBytes, watcher.screen());
    const crane::checkpoint::Stop counting = progress.counting();
    CHECK_FALSE(counting());
    CHECK_FALSE(counting());
    watcher.now_ns += 2 * kSecond;
    CHECK_FALSE(counting());
    CHECK(watcher.said.back().find(" 50 % of 4.2 MB") != std::string::npos);
    watcher.now_ns += kSecond;
    progress.watching([] { return crane::checkpoint::kSumPieceBytes; })();
    CHECK(watcher.said.back().find(" 25 % of ") != std::string::npos);
}
