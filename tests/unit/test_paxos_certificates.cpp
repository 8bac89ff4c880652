// Certificates: names, making, and what a replica refuses to start with.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "paxos/link/peer_address.hpp"
#include "paxos/link/tls.hpp"
#include "test_paxos_tls.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

TEST_CASE("paxos certificates: a name says cluster and replica, in one way only") {
    Identity identity;
    REQUIRE(parse_uri("crane://5f1c02ab/3", identity));
    REQUIRE(identity == Identity{"5f1c02ab", 3});
    REQUIRE(to_uri(identity) == "crane://5f1c02ab/3");
    REQUIRE(parse_uri("crane://5f1c02ab", identity));
    REQUIRE(identity == Identity{"5f1c02ab", kNoReplica});
    for (const char* bad :
         {"", "crane://", "crane:///3", "crane://a/", "crane://a/0", "crane://a/03", "crane://a/+3",
          "crane://a/3/", "crane://a/3 ", "crane://a/65536", "crane://a b/3", "http://a/3", "CRANE://a/3",
          "crane://a/b/3", "crane://a/99999999999999999999"}) {
        INFO(bad);
        REQUIRE_FALSE(parse_uri(bad, identity));
        REQUIRE(identity == Identity{"5f1c02ab", kNoReplica});
    }
    REQUIRE_FALSE(usable_cluster_name(std::string(65, 'a')));
    REQUIRE_FALSE(usable_cluster_name("a/b"));
}

TEST_CASE("paxos certificates: what is issued names its replica, and does not outlive its authority") {
    const Authority authority;
    const CertificateInfo ca = inspect_certificate(authority.pair().certificate);
    REQUIRE(ca.authority);
    REQUIRE(ca.identity == Identity{"unit", kNoReplica});
    const PemPair pair = authority.issue(2, -1, 100);
    const CertificateInfo info = inspect_certificate(pair.certificate);
    REQUIRE_FALSE(info.authority);
    REQUIRE(info.identity == Identity{"unit", 2});
    REQUIRE(info.validity.not_after_s - info.validity.not_before_s == 101 * kDaySeconds);
    REQUIRE(info.fingerprint != ca.fingerprint);
    REQUIRE(info.fingerprint.size() == 32 * 3 - 1);
    REQUIRE(inspect_certificate(authority.issue(2, -1, 100).certificate).fingerprint != info.fingerprint);
    REQUIRE_THROWS_WITH(authority.issue(2, -1, 2000), Catch::Contains("authority's own certificate ends"));
    REQUIRE_THROWS_WITH(issue_certificate(pair, 3, {0, 1}), Catch::Contains("not one made by crane ca init"));
    REQUIRE_THROWS_WITH(issue_certificate({authority.pair().certificate, pair.key}, 3, {0, 1}),
                        Catch::Contains("does not belong"));
    REQUIRE_THROWS_WITH(authority.issue(0), Catch::Contains("out of range"));
    REQUIRE_THROWS_WITH(inspect_certificate("nonsense"), Catch::Contains("no certificate"));
}

TEST_CASE("paxos tls: files that cannot work are refused with the setting and advice") {
    const Authority authority, stranger;
    const Identity self{"unit", 1};
    TlsFiles files = authority.files(1);
    const auto refused = [&](const std::string& words) {
        REQUIRE_THROWS_WITH(TlsContext(files, self), Catch::Contains(words));
    };
    REQUIRE_NOTHROW(TlsContext(files, self));
    SECTION("a file is not there") {
        files.key += ".none";
        refused("tls.key = \"" + files.key + "\": No such file");
    }
    SECTION("a setting is not there") {
        files.ca.clear();
        refused("tls.ca is missing");
    }
    SECTION("a directory") {
        files.ca = "/tmp";
        refused("is no regular file");
    }
    SECTION("a key that others may read") {
        files = authority.install(1, authority.issue(1), 0640);
        refused("chmod 600");
    }
    SECTION("a key that only its owner may read") {
        files = authority.install(1, authority.issue(1), 0400);
        REQUIRE_NOTHROW(TlsContext(files, self));
    }
    SECTION("a key of another certificate") {
        files = authority.install(1, {authority.issue(1).certificate, authority.issue(1).key});
        refused("does not belong to");
    }
    SECTION("no certificate, no key") {
        files = authority.install(1, {"nonsense", "nonsense"});
        refused("no certificate in PEM");
        files = authority.install(1, {authority.issue(1).certificate, "nonsense"});
        refused("no private key in PEM");
    }
    SECTION("expired") {
        files = authority.install(1, authority.issue(1, -20, -10));
        refused("crane://unit/1 expired on");
        refused("crane ca issue");
    }
    SECTION("not yet valid") {
        files = authority.install(1, authority.issue(1, 10, 20));
        refused("compare the clocks");
    }
    SECTION("of another replica") {
        files = authority.files(2);
        refused("the certificate of replica 2 of cluster unit, where that of replica 1 of cluster unit");
    }
    SECTION("of another cluster") {
        const Authority other("elsewhere");
        files = other.files(1);
        refused("replica 1 of cluster elsewhere");
    }
    SECTION("of another authority") {
        files.ca = stranger.ca();
        refused("is not signed by the authority");
    }
    SECTION("an authority that is none") {
        files.ca = files.certificate;
        refused("not an authority's certificate");
    }
    SECTION("the authority's own certificate in place of a replica's") {
        files = authority.install(1, authority.pair());
        refused("the authority of cluster unit");
    }
}

TEST_CASE("paxos tls: renewed files are taken into use, unusable ones are not") {
    const Authority authority;
    TlsContext context(authority.install(1, authority.issue(1, -1, 10)), {"unit", 1});
    const std::string first = context.own().fingerprint;
    REQUIRE(context.renewal_warning(time(nullptr) + 3600).find("in 9 days") != std::string::npos);
    REQUIRE(context.renewal_warning(time(nullptr) + 11 * kDaySeconds).find("expired on") !=
            std::string::npos);
    LogLines log;
    context.refresh();
    REQUIRE(context.loads() == 1);
    REQUIRE(log.count("expires on") == 1);
    context.refresh();
    REQUIRE(log.count("expires on") == 1);  // once a day

    authority.install(1, authority.issue(1));
    context.refresh();
    REQUIRE(context.loads() == 2);
    REQUIRE(context.own().fingerprint != first);
    REQUIRE(context.renewal_warning(time(nullptr)).empty());

    const std::string second = context.own().fingerprint;
    authority.install(1, authority.issue(1, -20, -10));
    context.refresh();
    context.refresh();
    REQUIRE(context.own().fingerprint == second);
    REQUIRE(log.count("are not used") == 1);
    REQUIRE(log.has("crane://unit/1 expired on"));

    authority.install(1, authority.issue(1));
    context.refresh();
    REQUIRE(context.loads() == 3);
}

TEST_CASE("paxos tls: a renewed certificate that is not valid yet is taken once it is") {
    const Authority authority;
    TlsContext context(authority.files(1), {"unit", 1});
    const int64_t now = time(nullptr);
    LogLines log;
    authority.install(1, issue_certificate(authority.pair(), 1, {now + 3, now + kDaySeconds}));
    const std::string first = context.own().fingerprint;
    context.refresh();
    REQUIRE(context.own().fingerprint == first);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (context.own().fingerprint == first && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // between two looks
        context.refresh();
    }
    CHECK(context.own().fingerprint != first);
    CHECK(context.loads() == 2);
    CHECK(log.count("are not used") == 1);
}

TEST_CASE("paxos tls: what is told is of the certificate in use, not of files that are not") {
    const Authority authority;
    const int64_t now = time(nullptr);
    const TlsFiles files = authority.install(1, authority.issue(1, -1, 10));
    TlsContext context(files, {"unit", 1});
    CHECK(context.standing().problem.empty());
    const PemPair renewed = authority.issue(1);
    for (const std::string& text : {renewed.certificate, std::string("garbage")}) {
        write_file(files.certificate, text, 0644);
        context.refresh();
        CHECK((context.standing().ends_s - now + 60) / kDaySeconds == 10);
        CHECK(context.standing().problem.find(text == "garbage" ? "no certificate in PEM"
                                                                : "does not belong to") != std::string::npos);
    }
    authority.install(1, renewed);
    context.refresh();
    CHECK((context.standing().ends_s - now + 60) / kDaySeconds == 365);
    CHECK(context.standing().problem.empty());
}

TEST_CASE("paxos tls: an authority that ends is told of, and one beside it takes its place") {
    const int64_t now = time(nullptr);
    const Authority authority;
    const PemPair old = make_authority("unit", {now - kDaySeconds, now + 10 * kDaySeconds});
    write_file(authority.ca(), old.certificate, 0644);
    const TlsFiles files =
        authority.install(1, issue_certificate(old, 1, {now - kDaySeconds, now + 10 * kDaySeconds}));
    TlsContext context(files, {"unit", 1});
    const std::string warning = context.renewal_warning(now);
    CHECK(warning.find("the authority's certificate in " + authority.ca() + " expires on") == 0);
    CHECK(warning.find("put a second authority beside it") != std::string::npos);
    CHECK(context.renewal_warning(now + 11 * kDaySeconds).find("expired on") != std::string::npos);
    write_file(authority.ca(), old.certificate + authority.pair().certificate, 0644);
    context.refresh();
    CHECK(context.renewal_warning(now) == warning);  // trusted is the other one, and has not signed this
    authority.install(1, authority.issue(1));
    context.refresh();
    CHECK(context.loads() == 3);
    CHECK(context.renewal_warning(now).empty());
}

TEST_CASE("paxos tls: without certificates only loopback addresses will do") {
    for (const char* near : {"127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "localhost"}) {
        INFO(near);
        REQUIRE(is_loopback(near));
    }
    for (const char* far : {"10.0.0.1", "0.0.0.0", "128.0.0.1", "::", "fe80::1", "::ffff:10.0.0.1",
                            "localhost.example", "127.0.0.1.example", ""}) {
        INFO(far);
        REQUIRE_FALSE(is_loopback(far));
    }
    REQUIRE(plaintext_refusal({{1, "127.0.0.1", 1}, {2, "::1", 2}}, "unit").empty());
    const std::string advice = plaintext_refusal({{1, "127.0.0.1", 1}, {2, "10.0.0.2", 2}}, "5f1c");
    for (const char* words :
         {"replica 2's peer address 10.0.0.2 is not on loopback",
          "crane ca init --dir /root/crane-ca --cluster 5f1c", "--replica 1\n", "--replica 2\n", "[tls]"})
        REQUIRE(advice.find(words) != std::string::npos);
}
