// Which checkpoint a replica fetches, and what it says where there is none.
#include <catch2/catch.hpp>

#include "proxy/checkpoint_choice.hpp"

using crane::proxy::CheckpointChoice;
using crane::proxy::Offer;

namespace {

Offer offer(uint64_t index, const char* id) {
    return {{index, id}, 100, 1000};
}

}  // namespace

TEST_CASE("checkpoint choice: where only refused ones are offered, a new one is what is wanted", "[proxy]") {
    CheckpointChoice choice;
    const auto ask = [&](const std::vector<Offer>& second, const std::vector<Offer>& third) {
        choice.begin_round();
        for (const uint32_t peer : {2U, 3U}) choice.asked(peer);
        choice.answered(2, second);
        CHECK_FALSE(choice.complete());
        choice.answered(3, third);
        CHECK(choice.complete());
        return choice.choose(10, 2, 0);
    };
    const auto says = [&](const char* words) {
        return choice.why_none(10, "a checkpoint", "crane verify").find(words) != std::string::npos;
    };
    choice.set_refused({"bad", "worse"});
    CHECK_FALSE(ask({offer(12, "bad")}, {offer(13, "worse"), offer(9, "old")}));
    CHECK(choice.only_refused(10));
    CHECK(says("the primary is asked to have a new one taken"));
    CHECK_FALSE(ask({offer(9, "old")}, {}));
    CHECK_FALSE(choice.only_refused(10));
    CHECK(says("no replica that can be reached has a checkpoint"));
    const auto chosen = ask({offer(12, "bad")}, {offer(13, "worse"), offer(20, "new")});
    REQUIRE(chosen);
    CHECK(chosen->source == 3);
    CHECK(chosen->offer.name.id == "new");
    CHECK_FALSE(choice.only_refused(10));
}
