// crane audit: how far all replicas are found equal, where they differ, and what is stated of it.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "paxos/link/certificate.hpp"
#include "proxy/audit_note.hpp"
#include "proxy/output_log.hpp"
#include "proxy/output_marks.hpp"
#include "proxy/tool/audit_round.hpp"
#include "proxy/tool/audit_statement.hpp"
#include "tests/unit/test_paxos_directory.hpp"

using namespace crane::proxy;
using crane::paxos::testing::TemporaryDirectory;
using crane::timebubble::OutputKind;
using nlohmann::json;
using Verdict = AuditRound::Verdict;

namespace {

/// Replicas whose record n says a word; the chain is all words up to there.
struct Replicas {
    struct Log {
        uint64_t first = 0;
        std::vector<std::string> words;
    };
    std::map<uint32_t, Log> logs;
    size_t questions = 0;

    json mark(uint32_t replica, std::optional<uint64_t> at, bool in_words) {
        ++questions;
        const auto found = logs.find(replica);
        if (found == logs.end()) throw std::runtime_error("not running");
        const Log& log = found->second;
        const uint64_t where = at.value_or(log.words.size());
        if (where < log.first || where > log.words.size()) throw std::runtime_error("not there");
        size_t chain = 1;
        for (uint64_t i = 0; i < where; ++i) chain = chain * 31 + std::hash<std::string>()(log.words[i]);
        json out = {{"at", where},
                    {"records", where},
                    {"first_record", log.first},
                    {"admitted_index", where * 2},
                    {"chain", std::to_string(chain)}};
        if (in_words) out["record"] = where < log.words.size() ? log.words[where] : "";
        return out;
    }
    AuditRound compare(const std::optional<EqualUpTo>& before = std::nullopt,
                       const std::vector<uint32_t>& which = {1, 2, 3}) {
        questions = 0;
        return Auditor([this](uint32_t replica, std::optional<uint64_t> at, bool in_words) {
                   return mark(replica, at, in_words);
               })
            .compare(which, before);
    }
    Replicas(size_t one, size_t two, size_t three) {
        for (const size_t count : {one, two, three}) {
            Log& log = logs[static_cast<uint32_t>(logs.size() + 1)];
            for (size_t i = 0; i < count; ++i) log.words.push_back("word " + std::to_string(i));
        }
    }
};

void write_records(OutputLog& log, int from, int to, int odd = -1) {
    for (int i = from; i < to; ++i) {
        const std::string bytes = i == odd ? "another" : "answer " + std::to_string(i);
        log.append({static_cast<uint32_t>(bytes.size()), OutputKind::kSend, 0, 7, 1, 5}, bytes);
    }
}

Config config_of(uint32_t replica, uint64_t max_bytes = 1 << 30) {
    Config config;
    config.cluster_id = "ab";
    config.replica_id = replica;
    config.log_max_bytes = max_bytes;
    return config;
}

std::string why_bad(const std::string& text, const std::string& authority) {
    try {
        check_statement(text, authority);
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

}  // namespace

TEST_CASE("audit: all are equal as far as the shortest log goes, and what follows is compared from there",
          "[audit]") {
    Replicas all(90, 100, 80);
    const AuditRound first = all.compare();
    REQUIRE(first.verdict == Verdict::kEqual);
    CHECK(first.equal->records == 80);
    CHECK(first.equal->admitted_index == 160);
    all.logs[3].words = all.logs[2].words;
    const AuditRound second = all.compare(first.equal);
    REQUIRE(second.verdict == Verdict::kEqual);
    CHECK(second.equal->records == 90);
    // One that is being made anew is behind what was found, which stays.
    all.logs[1].words.resize(40);
    const AuditRound third = all.compare(second.equal);
    CHECK(third.verdict == Verdict::kEqual);
    CHECK(third.equal == second.equal);
}

TEST_CASE("audit: the first record that differs is found, and whose it is, with few questions", "[audit]") {
    Replicas all(1000, 1000, 1000);
    const uint64_t place = GENERATE(uint64_t{0}, uint64_t{1}, uint64_t{499}, uint64_t{998}, uint64_t{999});
    CAPTURE(place);
    all.logs[2].words[place] = "another";
    const AuditRound round = all.compare();
    REQUIRE(round.verdict == Verdict::kDifferent);
    CHECK(round.first_different == place);
    CHECK(round.difference.find("replica 2 ") != std::string::npos);
    CHECK(round.at_difference.at(2) == "another");
    CHECK(round.at_difference.at(1) == "word " + std::to_string(place));
    CHECK_FALSE(round.equal);
    CHECK(all.questions <= 3 * (2 + 11) + 3);
}

TEST_CASE(
    "audit: a replica that cannot be asked is never called equal, and a difference of the others is found",
    "[audit]") {
    Replicas all(50, 50, 50);
    all.logs.erase(3);
    const AuditRound without = all.compare();
    CHECK(without.verdict == Verdict::kIncomplete);
    CHECK(without.reasons.at(3) == "not running");
    CHECK_FALSE(without.equal);
    all.logs[2].words[7] = "another";
    CHECK(all.compare().verdict == Verdict::kDifferent);
    CHECK(all.compare().first_different == 7);
    CHECK(all.compare().difference ==
          "the outputs of replicas 1, 2 differ, and no majority of them agrees, first in record 7");
    all.logs.erase(2);
    CHECK(all.compare().verdict == Verdict::kIncomplete);
}

TEST_CASE("audit: a log that was made anew must come to what was found equal before", "[audit]") {
    Replicas all(50, 50, 50);
    const std::optional<EqualUpTo> equal = all.compare().equal;
    for (auto& [replica, log] : all.logs) log.words[3] = "another";  // on all of them
    const AuditRound round = all.compare(equal);
    CHECK(round.verdict == Verdict::kDifferent);
    CHECK(round.difference.find("no longer") != std::string::npos);
    CHECK(round.equal == equal);
}

TEST_CASE("audit: logs that have no record in common are not compared, later ones from where both have begun",
          "[audit]") {
    Replicas all(100, 100, 100);
    all.logs[1].first = 60;
    CHECK(all.compare().equal->records == 100);
    all.logs[2].words[80] = "another";
    CHECK(all.compare().first_different == 80);
    all.logs[2].words[80] = all.logs[1].words[80];
    all.logs[2].words[10] = "another";
    const AuditRound early = all.compare();
    CHECK(early.verdict == Verdict::kDifferent);
    CHECK_FALSE(early.first_different);
    all.logs[2].words.resize(30);
    CHECK(all.compare().verdict == Verdict::kIncomplete);
    CHECK(all.compare().reasons.count(2) == 1);
}

TEST_CASE("output marks: they follow a log as it grows and rotates, and read one that was made anew",
          "[audit]") {
    const TemporaryDirectory dir;
    auto log = std::make_unique<OutputLog>(dir.path, config_of(1, 64 * 1024));
    const auto settled = [&] {
        log->flush();
        log->settle(1000);
    };
    settled();
    OutputMarks marks(dir.path);
    int records = 0;
    for (int round = 0; round < 40; ++round) {  // some turns of the files
        CAPTURE(round);
        write_records(*log, records, records + 25);
        records += 25;
        settled();
        const json mark = marks.mark(std::nullopt);
        REQUIRE(mark["records"] == records);
        REQUIRE(mark["chain"] == log->chain().hex());
    }
    const json end = marks.mark(std::nullopt);
    CHECK(marks.mark(records - 10)["chain"] != end["chain"]);
    CHECK(marks.mark(records)["chain"] == end["chain"]);
    CHECK(marks.mark(records - 1, true)["record"].get<std::string>().find("answer 999") != std::string::npos);
    CHECK_THROWS_WITH(marks.mark(records + 1), Catch::Contains("not 1001 yet"));
    log.reset();
    log = std::make_unique<OutputLog>(dir.path, config_of(1, 64 * 1024));  // as by replay
    write_records(*log, 0, 10);
    settled();
    CHECK(marks.mark(std::nullopt)["records"] == 10);
    CHECK(marks.mark(10)["chain"] == log->chain().hex());
    // What is not whole yet may become a record; what is whole and none may not.
    const std::string chain = log->chain().hex();
    log.reset();
    const std::string file = dir.path + "/output.log";
    std::ofstream(file, std::ios::app) << "junk";
    CHECK(marks.mark(std::nullopt)["torn_end"] == true);
    std::ofstream(file, std::ios::app) << std::string(200, 'k');
    CHECK_THROWS_WITH(marks.mark(std::nullopt), Catch::Contains("damaged behind record 10"));
    CHECK(marks.mark(10)["chain"] == chain);
}

TEST_CASE("audit statement: it is good for its own authority, and any change of it is seen", "[audit]") {
    const TemporaryDirectory dir;
    const crane::paxos::Validity valid{1'000'000'000, 1'000'000'000 + 900 * crane::paxos::kDaySeconds};
    const auto authority = crane::paxos::make_authority("ab12", valid);
    const auto pair = crane::paxos::issue_certificate(authority, 2, valid);
    const json stated = {{"cluster", "ab12"}, {"audited_s", 1'000'000'100}, {"equal", {{"records", 7}}}};
    const std::string text = sign_statement(stated, {pair.key, pair.certificate});
    const CheckedStatement checked = check_statement(text, authority.certificate);
    CHECK(checked.signer == "crane://ab12/2");
    CHECK(json::parse(checked.statement) == stated);
    std::string changed = text;
    changed.replace(changed.find(":7"), 2, ":8");
    CHECK(why_bad(changed, authority.certificate).find("signature is not good") != std::string::npos);
    const auto other = crane::paxos::make_authority("ab12", valid);
    CHECK(why_bad(text, other.certificate).find("not one of this authority's") != std::string::npos);
    CHECK(why_bad("{}", authority.certificate) == "it is no statement of crane audit");
    // One of this authority's clusters cannot speak for another, nor a certificate that was not valid then.
    json elsewhere = stated;
    elsewhere["cluster"] = "cd34";
    CHECK(why_bad(sign_statement(elsewhere, {pair.key, pair.certificate}), authority.certificate)
              .find("signed by one of cluster ab12") != std::string::npos);
    json late = stated;
    late["audited_s"] = valid.not_after_s + 1;
    CHECK(
        why_bad(sign_statement(late, {pair.key, pair.certificate}), authority.certificate).find("expired") !=
        std::string::npos);

    // Without certificates: a key of its own, made once.
    Config config;
    const SigningKey own = signing_key(config, dir.path);
    CHECK(signing_key(config, dir.path).key == own.key);
    const std::string open = read_small_file(dir.path + "/audit.pub");
    CHECK(json::parse(check_statement(sign_statement(stated, own), open).statement) == stated);
    CHECK(why_bad(text, open).find("signature is not good") != std::string::npos);
    CHECK((std::filesystem::status(dir.path + "/audit.key").permissions() & std::filesystem::perms::all) ==
          (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
}

TEST_CASE("audit note: what a replica was told is shown, and what is malformed is refused", "[audit]") {
    AuditNote note;
    CHECK(note.json().is_null());
    for (const json& bad : {json{{"records", -1}, {"difference", ""}}, json{{"records", 1u}}, json::object(),
                            json{{"records", 1u}, {"difference", 5}}})
        CHECK_FALSE(note.take(bad, 100).empty());
    CHECK(note.json().is_null());
    CHECK(note.take({{"records", 5u}, {"difference", std::string(10'000, 'x') + "\n"}}, 100).empty());
    CHECK(note.json()["difference"].get<std::string>().size() == AuditNote::kMaxTextBytes);
    CHECK(note.take({{"records", 6u}, {"difference", ""}}, 101).empty());
    CHECK(note.json() == json{{"told_s", 101}, {"records", 6}, {"difference", ""}});
}
