#include <catch2/catch.hpp>

#include "proxy/catching_up.hpp"
#include "proxy/standing.hpp"

using crane::proxy::CatchingUp;
using crane::proxy::Standing;

TEST_CASE("proxy standing: a server that replays is far behind until it has nearly caught up") {
    Standing standing;
    CHECK_FALSE(standing.far_behind(0));  // nobody is known
    standing.heard(2, 100'000);
    CHECK(standing.far_behind(0));
    CHECK(standing.far_behind(98'000));
    CHECK_FALSE(standing.far_behind(99'900));
    CHECK_FALSE(standing.far_behind(98'000));  // as under load
}

TEST_CASE("proxy standing: of those that are left the furthest is behind nobody") {
    Standing standing;
    standing.heard(1, 100'000);
    standing.heard(2, 20'000);
    CHECK(standing.far_behind(30'000));
    standing.gone(1);
    CHECK_FALSE(standing.far_behind(30'000));
    CHECK(standing.others() == 20'000);
}

TEST_CASE("proxy standing: a replica whose server begins anew is no longer ahead") {
    Standing standing;
    standing.heard(1, 100'000);
    standing.heard(1, 10);
    CHECK_FALSE(standing.far_behind(50));
}

TEST_CASE(
    "proxy catching up: a server that replays has not come to where the cluster was before it has done it "
    "all") {
    CatchingUp catching_up;
    catching_up.look(0, 0, 5, true);  // nobody has said where the cluster is
    CHECK_FALSE(catching_up.done());
    catching_up.look(100, 0, 0, true);
    CHECK_FALSE(catching_up.done());
    catching_up.look(120, 100, 101, false);  // all is admitted, the last that was not for it, and it is at it
    CHECK_FALSE(catching_up.done());
    catching_up.look(120, 100, 101, true);
    CHECK(catching_up.done());
}

TEST_CASE("proxy catching up: where the cluster goes on, the next entry tells, and it stays told") {
    CatchingUp catching_up;
    catching_up.look(100, 0, 0, false);
    catching_up.look(5000, 101, 0, false);
    CHECK(catching_up.done());
    catching_up.look(9000, 101, 0, false);
    CHECK(catching_up.done());
}

TEST_CASE("proxy standing: who trails is known of those that have said something") {
    Standing standing;
    CHECK_FALSE(standing.trails(2, 100'000));
    standing.heard(2, 100'000 - Standing::kFarBehind);
    CHECK_FALSE(standing.trails(2, 100'000));
    CHECK(standing.trails(2, 100'001));
    standing.heard(2, 0);  // it has no server
    CHECK(standing.trails(2, 1));
    CHECK_FALSE(standing.trails(2, 0));
    standing.gone(2);
    CHECK_FALSE(standing.trails(2, 100'000));
}
