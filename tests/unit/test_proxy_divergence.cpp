// Whose output differs, as far as those who vote can tell.
#include <catch2/catch.hpp>
#include <set>

#include "proxy/divergence.hpp"

using namespace crane::proxy;

namespace {

Admission at(uint64_t index, uint64_t output) {
    return {index, {output, 0}, index};
}

AdmissionHistory history_of(uint64_t last, uint64_t odd_from = UINT64_MAX) {
    AdmissionHistory out;
    for (uint64_t i = 1; i <= last; ++i) out.add(at(i, i >= odd_from ? 1000 + i : i));
    return out;
}

}  // namespace

TEST_CASE("divergence: equal reports are counted as compared, missing ones as unchecked", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    AdmissionHistory own = history_of(10);
    check.report(2, at(7, 7), own);
    check.report(3, at(9, 9), own);
    CHECK(check.compared() == 2);
    check.report(2, at(15, 15), own);  // ahead of us: compared when we get there
    check.report(2, at(16, 16), own);  // and this one is not kept
    CHECK(check.compared() == 2);
    CHECK(check.unchecked() == 1);
    for (uint64_t i = 11; i <= 15; ++i) own.add(at(i, i));
    check.own(own);
    CHECK(check.compared() == 3);
    AdmissionHistory later;
    later.add(at(5000, 1));
    check.report(3, at(4000, 1), later);  // ours is gone: nothing is claimed
    CHECK(check.unchecked() == 2);
    CHECK(check.diverged().empty());
    CHECK_FALSE(check.take_query());
}

TEST_CASE("divergence: a quorum names the replica and the first index", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    const AdmissionHistory own = history_of(20);
    const AdmissionHistory odd = history_of(20, 13);
    check.report(3, at(10, 10), own);
    check.report(3, *odd.last(), own);
    const auto query = check.take_query();
    REQUIRE(query);
    CHECK(query->first == 10);
    CHECK(query->last == 20);
    check.evidence(3, odd.range(query->first, query->last), own);
    CHECK(check.take_findings().empty());  // one against one: nobody is accused
    check.evidence(2, own.range(query->first, query->last), own);
    const auto findings = check.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].replica == 3);
    CHECK(findings[0].index == 13);
    CHECK(findings[0].exact);
}

TEST_CASE("divergence: the leader itself may be the odd one", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    const AdmissionHistory own = history_of(20, 5);
    const AdmissionHistory good = history_of(20);
    check.report(2, *good.last(), own);
    check.evidence(2, good.range(1, 20), own);
    check.evidence(3, good.range(1, 20), own);
    const auto findings = check.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].replica == 1);
    CHECK(findings[0].index == 5);
}

TEST_CASE("divergence: with one of three down nobody knows who is right, and that is said", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    check.set_reachable(2);
    const AdmissionHistory own = history_of(20);
    const AdmissionHistory odd = history_of(20, 13);
    check.report(2, *odd.last(), own);
    REQUIRE(check.take_query());
    check.evidence(2, odd.range(1, 20), own);
    auto findings = check.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].replica == 0);
    CHECK(findings[0].index == 13);
    check.evidence(2, odd.range(1, 20), own);
    CHECK(check.take_findings().empty());  // said once
    // The third one is back, and says what this one says.
    check.set_reachable(3);
    check.report(3, *own.last(), own);
    REQUIRE(check.take_query());
    check.evidence(3, own.range(1, 20), own);
    check.evidence(2, odd.range(1, 20), own);
    findings = check.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].replica == 2);
    CHECK(check.diverged().count(0) == 0);
}

TEST_CASE("divergence: one that is known to differ has no say in whether the others do", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    const AdmissionHistory own = history_of(30);
    const AdmissionHistory odd = history_of(30, 13);
    check.report(3, *odd.find(20), own);
    REQUIRE(check.take_query());
    check.evidence(3, odd.range(1, 20), own);
    check.evidence(2, own.range(1, 20), own);
    REQUIRE(check.take_findings().size() == 1);
    AdmissionHistory other = history_of(24);
    for (uint64_t i = 25; i <= 30; ++i) other.add(at(i, 5000 + i));
    check.report(2, *other.last(), own);
    const auto query = check.take_query();
    REQUIRE(query);
    check.evidence(3, odd.range(query->first, query->last), own);
    CHECK(check.take_findings().empty());
    check.evidence(2, other.range(query->first, query->last), own);
    const auto findings = check.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].replica == 0);
    CHECK(findings[0].index == 25);
    CHECK(check.diverged().count(3) == 1);
}

TEST_CASE("divergence: where a base was decided nothing from before it is of account", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    AdmissionHistory own = history_of(20);
    const AdmissionHistory odd = history_of(20, 13);
    check.set_reachable(2);
    check.report(2, *odd.last(), own);
    check.evidence(2, odd.range(1, 20), own);
    REQUIRE(check.diverged().count(0) == 1);
    check.begin_at(21);
    CHECK(check.diverged().empty());
    CHECK(check.take_findings().empty());
    check.report(2, *odd.last(), own);  // of one that has not begun from the base yet
    check.evidence(2, odd.range(1, 20), own);
    CHECK_FALSE(check.take_query());
    CHECK(check.diverged().empty());
    for (uint64_t i = 22; i <= 30; ++i) own.add(at(i, i));
    check.report(2, at(25, 25), own);
    CHECK_FALSE(check.take_query());
    check.report(2, at(30, 31), own);
    CHECK(check.take_query());
}

TEST_CASE("divergence: a schedule that differs while the output does not is told of, by replica", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    const AdmissionHistory own = history_of(10);
    Admission theirs = at(6, 6);
    theirs.schedule_hash = 77;
    check.report(3, theirs, own);
    check.report(2, at(6, 6), own);
    REQUIRE(check.schedule_differs().size() == 1);
    CHECK(check.schedule_differs().at(3) == 6);
    CHECK(check.diverged().empty());
    check.began_anew(3);  // it was repaired: what was counted stays, and nobody differs any more
    CHECK(check.schedule_differs().empty());
    CHECK(check.schedule_differences() == 1);
    check.report(3, at(6, 6), own);
    CHECK(check.schedule_differs().empty());
}

TEST_CASE("divergence: learners that say the same as each other outvote no majority of those who vote",
          "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});  // 4, 5 and 6 learn
    const AdmissionHistory own = history_of(20);
    const AdmissionHistory odd = history_of(20, 13);
    for (const uint32_t learner : {4, 5, 6}) check.report(learner, *odd.last(), own);
    REQUIRE(check.take_query());
    for (const uint32_t learner : {4, 5, 6}) check.evidence(learner, odd.range(1, 20), own);
    CHECK(check.take_findings().empty());  // neither them, nor that all have answered
    for (const uint32_t voter : {2, 3}) check.evidence(voter, own.range(1, 20), own);
    std::set<uint32_t> found;
    for (const auto& finding : check.take_findings()) found.insert(finding.replica);
    CHECK(found == std::set<uint32_t>{4, 5, 6});
}

TEST_CASE("divergence: a learner that answers does not stand for a voter that has not", "[proxy]") {
    DivergenceCheck check(1, {1, 2, 3});
    const AdmissionHistory own = history_of(20);
    const AdmissionHistory odd = history_of(20, 13);
    check.report(2, *odd.last(), own);
    REQUIRE(check.take_query());
    check.evidence(2, odd.range(1, 20), own);
    check.evidence(4, own.range(1, 20), own);
    CHECK(check.take_findings().empty());
    check.evidence(3, own.range(1, 20), own);
    const auto findings = check.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].replica == 2);
}

TEST_CASE("divergence: admissions survive the wire", "[proxy]") {
    const auto sent = history_of(5).range(2, 4);
    const auto got = decode_admissions(encode_admissions(sent));
    REQUIRE(got.size() == 3);
    CHECK(got[2].index == 4);
    CHECK(got[2].output == sent[2].output);
}
