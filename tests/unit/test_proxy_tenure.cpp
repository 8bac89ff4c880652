#include <catch2/catch.hpp>

#include "proxy/tenure.hpp"

using crane::proxy::Tenure;

TEST_CASE("proxy tenure: it begins with the view, and nobody's is told where nobody is known", "[proxy]") {
    Tenure tenure;
    CHECK(tenure.since_s() == 0);
    tenure.observe(1, 0, 90);
    CHECK(tenure.since_s() == 0);
    tenure.observe(1, 2, 100);
    tenure.observe(1, 2, 150);  // its role changed, not who leads
    CHECK(tenure.since_s() == 100);
    tenure.observe(2, 0, 200);
    CHECK(tenure.since_s() == 0);
    tenure.observe(2, 2, 210);  // the same one, elected anew
    CHECK(tenure.since_s() == 210);
    tenure.observe(3, 1, 220);
    CHECK(tenure.since_s() == 220);
}

TEST_CASE("proxy tenure: a replica that is made anew in the same view still knows", "[proxy]") {
    Tenure tenure;
    tenure.observe(7, 3, 100);
    tenure.observe(7, 0, 500);
    CHECK(tenure.since_s() == 0);
    tenure.observe(7, 3, 501);
    CHECK(tenure.since_s() == 100);
}
