// What is done about a replica that differs: once at each place, and no more.
#include <catch2/catch.hpp>

#include "proxy/repairs.hpp"

using crane::proxy::Repairs;
using Step = crane::proxy::Repairs::Step;

TEST_CASE("repairs: one that differs is made anew from its own, then from another's, then left", "[proxy]") {
    Repairs repairs;
    CHECK_FALSE(repairs.on_trial());
    CHECK(repairs.differs(100) == Step::kFromOwn);
    CHECK(repairs.on_trial());
    CHECK(repairs.differs(150) == Step::kFromOthers);
    CHECK(repairs.differs(120) == Step::kNone);
    CHECK(repairs.differs(120) == Step::kNone);
    CHECK(repairs.on_trial());
    CHECK(repairs.count() == 2);
    repairs.again();  // the operator has put something right, or thinks so
    CHECK(repairs.on_trial());
    CHECK(repairs.differs(120) == Step::kFromOthers);
    CHECK(repairs.differs(120) == Step::kNone);
    CHECK(repairs.count() == 3);
}

TEST_CASE("repairs: one that was left as it is is on trial when it is made anew by hand", "[proxy]") {
    Repairs repairs;
    repairs.left(70);
    repairs.again();
    CHECK(repairs.on_trial());
    CHECK(repairs.count() == 0);
    repairs.agrees(70);
    CHECK_FALSE(repairs.on_trial());
}

TEST_CASE("repairs: found equal behind the place it is trusted, and another place is another matter",
          "[proxy]") {
    Repairs repairs;
    repairs.agrees(50);
    CHECK(repairs.differs(100) == Step::kFromOwn);
    repairs.agrees(99);
    CHECK(repairs.on_trial());
    repairs.agrees(100);
    CHECK_FALSE(repairs.on_trial());
    CHECK(repairs.differs(101) == Step::kFromOwn);
    CHECK(repairs.on_trial());
    repairs.agrees(200);
    // At the place where it was found equal: what says so is about an earlier one, or it has gone back.
    CHECK(repairs.differs(101) == Step::kFromOthers);
    CHECK(repairs.on_trial());
    repairs.acquit();
    CHECK_FALSE(repairs.on_trial());
    CHECK(repairs.count() == 3);
}

TEST_CASE("repairs: where another state counts from now on, what was wrong with this one is of no account",
          "[proxy]") {
    Repairs repairs;
    CHECK(repairs.differs(100) == Step::kFromOwn);
    CHECK(repairs.differs(100) == Step::kFromOthers);
    repairs.forget();
    CHECK_FALSE(repairs.on_trial());
    CHECK(repairs.place() == 0);
    CHECK(repairs.differs(90) == Step::kFromOwn);
    CHECK(repairs.count() == 3);
}
