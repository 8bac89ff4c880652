#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "proxy/log_words.hpp"
#include "timebubble/batch.hpp"

using namespace crane;
using proxy::entry_json;

TEST_CASE("log words: an entry's calls are told in pieces, without a gap", "[proxy]") {
    timebubble::BatchEncoder encoder;
    for (uint64_t n = 1; n <= 5; ++n) REQUIRE(encoder.add(timebubble::CallKind::kSend, n, "bytes"));
    paxos::Entry entry;
    entry.index = 7;
    entry.kind = paxos::EntryKind::kValue;
    entry.value = std::make_shared<const std::string>(encoder.finish(0, 0));
    const auto whole = entry_json(entry);
    REQUIRE(whole["calls"].size() == 5);
    CHECK_FALSE(whole.contains("calls_left_out"));
    auto pieces = nlohmann::json::array();
    for (const size_t left : {3, 1, 0}) {
        const auto piece = entry_json(entry, 2, pieces.size());
        CHECK(piece.value("calls_left_out", 0u) == left);
        for (const auto& call : piece["calls"]) pieces.push_back(call);
    }
    CHECK(pieces == whole["calls"]);
    CHECK(entry_json(entry, 2, 9)["calls"].empty());
    CHECK_FALSE(entry_json(entry, 2, 9).contains("calls_left_out"));
}
