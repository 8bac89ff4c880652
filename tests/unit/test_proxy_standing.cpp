#include <catch2/catch.hpp>

#include "proxy/standing.hpp"

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
