// The proxy's pure parts: batching, bubble sizes, configuration.
#include <catch2/catch.hpp>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/own_address.hpp"
#include "proxy/batcher.hpp"
#include "proxy/carriage.hpp"
#include "proxy/config.hpp"
#include "proxy/disk_watch.hpp"
#include "proxy/operator_mail.hpp"
#include "proxy/settings_hash.hpp"
#include "timebubble/bubble_sizer.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

std::vector<Call> calls_of(const std::string& batch, BatchHeader& header) {
    BatchDecoder decoder;
    REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()));
    header = decoder.header();
    std::vector<Call> out;
    for (Call call; decoder.next(call);) out.push_back(call);
    return out;
}

}  // namespace

TEST_CASE("batcher: all that waits becomes one batch, in order", "[proxy]") {
    Batcher batcher;
    REQUIRE(batcher.empty());
    batcher.add(CallKind::kConnect, 1, "address");
    batcher.add(CallKind::kSend, 1, "bytes");
    batcher.add(CallKind::kShutdown, 1);
    REQUIRE(batcher.calls() == 3);
    BatchHeader header;
    const std::string batch = batcher.take(1000, 77);
    const auto calls = calls_of(batch, header);
    REQUIRE(calls.size() == 3);
    CHECK(calls[0].kind == CallKind::kConnect);
    CHECK(calls[1].payload == "bytes");
    CHECK(calls[2].kind == CallKind::kShutdown);
    CHECK(header.timestamp_ns == 1000);
    CHECK(header.grant_clocks == 77);
    CHECK(batcher.empty());
}

TEST_CASE("batcher: timestamps rise although the clock stands still or goes back", "[proxy]") {
    Batcher batcher;
    batcher.saw_timestamp(5000);
    BatchHeader header;
    calls_of(batcher.take(10, 1), header);
    CHECK(header.timestamp_ns == 5001);
    calls_of(batcher.take(5001, 1), header);
    CHECK(header.timestamp_ns == 5002);
    calls_of(batcher.take(9000, 1), header);
    CHECK(header.timestamp_ns == 9000);
}

TEST_CASE("batcher: what comes while a batch is being decided shares the next one", "[proxy]") {
    constexpr uint64_t kMs = 1'000'000;
    Batcher batcher;
    CHECK_FALSE(batcher.due(kMs, 0, 0));
    batcher.add(CallKind::kSend, 1, "alone");
    CHECK(batcher.due(kMs, 0, 0));
    batcher.take(kMs, 1);
    batcher.add(CallKind::kSend, 1, "one");
    CHECK_FALSE(batcher.due(kMs + 1, 1, 1));
    CHECK(batcher.due(kMs + 1, 0, 1));  // decided, and not admitted yet
    CHECK(batcher.due(4 * kMs, 1, 1));  // the others are far away
    CHECK_FALSE(batcher.due(4 * kMs, 1, 4));
    CHECK_FALSE(batcher.due(4 * kMs, 0, 4));
    batcher.add(CallKind::kSend, 1, std::string(5 << 20, 'x'));
    CHECK(batcher.due(kMs + 1, 1, 1));  // no room for more in the first
}

TEST_CASE("batcher: long input is split over batches and nothing is lost", "[proxy]") {
    Batcher batcher;
    std::string bytes(5 * 1024 * 1024 + 13, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
    batcher.add(CallKind::kSend, 9, bytes);
    batcher.add(CallKind::kReset, 9);
    std::string got;
    bool reset = false;
    int batches = 0;
    while (!batcher.empty()) {
        BatchHeader header;
        const std::string batch = batcher.take(1, 1);
        CHECK(batch.size() <= kMaxBatchBytes);
        ++batches;
        for (const Call& call : calls_of(batch, header)) {
            REQUIRE_FALSE(reset);
            if (call.kind == CallKind::kSend) got.append(call.payload);
            reset = call.kind == CallKind::kReset;
        }
    }
    CHECK(got == bytes);
    CHECK(reset);
    CHECK(batches >= 6);
    CHECK(batcher.bytes() == 0);
}

TEST_CASE("batcher: the genesis goes first and alone", "[proxy]") {
    Batcher batcher;
    batcher.add(CallKind::kConnect, 1, "early");
    GenesisPayload secret{};
    secret.secret[0] = 7;
    batcher.set_genesis(secret);
    BatchHeader header;
    const std::string first = batcher.take(1, 1);
    const auto calls = calls_of(first, header);
    REQUIRE(calls.size() == 1);
    CHECK(calls[0].kind == CallKind::kGenesis);
    CHECK(calls[0].payload.size() == 32);
    CHECK(calls[0].payload[0] == 7);
    const std::string second = batcher.take(1, 1);
    CHECK(calls_of(second, header)[0].kind == CallKind::kConnect);
    CHECK(batcher.empty());
    batcher.add(CallKind::kReset, 1);
    batcher.clear();
    CHECK(batcher.empty());
}

TEST_CASE("connection ids of different replicas never meet", "[proxy]") {
    CHECK(connection_id(1, 7) != connection_id(2, 7));
    CHECK(attached_replica(connection_id(kMaxReplicaId, 1)) == kMaxReplicaId);
    CHECK(connection_number(connection_id(kMaxReplicaId, 12345)) == 12345);
}

TEST_CASE("bubble sizer: fixed means fixed", "[timebubble]") {
    BubbleSizer sizer(1234);
    CHECK(sizer.next(0, false) == 1234);
    CHECK(sizer.next(5, true) == 1234);
}

TEST_CASE("bubble sizer: small while clients call, growing while they do not", "[timebubble]") {
    BubbleSizer sizer(0);
    CHECK(sizer.next(3, false) == BubbleSizer::kSmallClocks);
    uint64_t last = 0;
    for (int i = 0; i < 40; ++i) {
        const uint64_t grant = sizer.next(0, false);
        CHECK(grant >= last);
        CHECK(grant <= BubbleSizer::kMaxClocks);
        last = grant;
    }
    CHECK(last == BubbleSizer::kMaxClocks);
    CHECK(sizer.next(1, false) == BubbleSizer::kSmallClocks);
    CHECK(sizer.next(0, false) == BubbleSizer::kSmallClocks);
}

TEST_CASE("bubble sizer: the measured speed bounds a grant to about two milliseconds", "[timebubble]") {
    BubbleSizer sizer(0);
    for (int i = 0; i < 50; ++i) sizer.measured(10'000, 1'000'000);  // ten million a second
    uint64_t last = 0;
    for (int i = 0; i < 30; ++i) last = sizer.next(0, false);
    CHECK(last == 20'000);
    CHECK(sizer.next(1, false) == 2'500);
    sizer.measured(5, 10);  // too short to say anything
    CHECK(sizer.next(1, false) == 2'500);
}

namespace {

const std::string kGood = R"(
cluster_id = "ab12"
replica_id = 2
state_dir = "/tmp/x/r2"
server = ["apache2", "-DFOREGROUND"]
shim = "/s.so"
init = "/i"
[port_map]
"80" = 8080
[tls]
ca = "/etc/crane/ca.crt"
certificate = "/etc/crane/replica.crt"
key = "/etc/crane/replica.key"
[[replica]]
id = 1
peer = "127.0.0.1:7101"
[[replica]]
id = 2
peer = "[::1]:7102"
client_address = "127.0.0.2"
[[replica]]
id = 3
peer = "h:7103"
)";

std::string refusal(const std::string& text) {
    try {
        parse_config(text, "craned.toml");
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

std::string changed(const std::string& from, const std::string& to) {
    std::string text = kGood;
    text.replace(text.find(from), from.size(), to);
    return text;
}

}  // namespace

TEST_CASE("config: metrics are served nowhere by default, and only at an address with a port",
          "[proxy][metrics]") {
    CHECK(parse_config(kGood, "craned.toml").metrics_listen.empty());
    const auto with = [](const std::string& listen) {
        return changed("[port_map]", "[metrics]\nlisten = \"" + listen + "\"\n[port_map]");
    };
    CHECK(parse_config(with("127.0.0.1:9464"), "craned.toml").metrics_listen == "127.0.0.1:9464");
    CHECK(parse_config(with("[::1]:9464"), "craned.toml").metrics_listen == "[::1]:9464");
    for (const char* wrong : {"9464", "127.0.0.1", "host:9464", "127.0.0.1:0", "127.0.0.1:70000"})
        CHECK(refusal(with(wrong)).find("must be an IP address and a port, such as \"127.0.0.1:9464\"") !=
              std::string::npos);
}

TEST_CASE("config: the backstop is on where nothing is said, and logs made without it keep their number",
          "[proxy]") {
    const auto with = [](const char* backstop) {
        return parse_config(
            changed("[port_map]", std::string("[schedule]\nbackstop = ") + backstop + "\n[port_map]"),
            "craned.toml");
    };
    CHECK(parse_config(kGood, "craned.toml").backstop);
    CHECK_FALSE(with("false").backstop);
    CHECK(settings_hash(with("true")) == settings_hash(parse_config(kGood, "craned.toml")));
    CHECK(settings_hash(with("false")) != settings_hash(with("true")));
    CHECK(settings_hash(with("false")) == 0xb41e'69f6'85bf'edd6);  // of craneds that knew no backstop
}

TEST_CASE("config: own addresses are a host's own, and part of what replicas must have equal", "[proxy]") {
    const auto with = [](const std::string& list) {
        return changed("[port_map]", "[machine]\naddresses = " + list + "\n[port_map]");
    };
    const Config as_ever = parse_config(kGood, "craned.toml");
    const Config named = parse_config(with("[\"10.0.0.5/24\", \"2001:db8::5/64\"]"), "craned.toml");
    CHECK(named.own_addresses.size() == 2);
    CHECK(settings_hash(as_ever) != settings_hash(named));
    CHECK(settings_hash(parse_config(with("[]"), "craned.toml")) == settings_hash(as_ever));
    for (const char* wrong :
         {"10.0.0.5", "10.0.0.5/0", "10.0.0.5/33", "10.0.0.5/2x", "127.0.0.1/8", "0.0.0.0/8", "224.0.0.1/4",
          "::1/128", "::/64", "ff02::1/16", "::ffff:10.0.0.5/128", "host/24", "/24"})
        CHECK_THAT(refusal(with("[\"" + std::string(wrong) + "\"]")),
                   Catch::Contains(wrong) && Catch::Contains("10.0.0.5/24"));
    CHECK_THAT(refusal(with("[\"10.0.0.5/24\", \"10.0.0.5/16\"]")), Catch::Contains("named twice"));
    std::string many;
    for (int i = 1; i <= 17; ++i) many += "\"10.0.0." + std::to_string(i) + "/24\", ";
    CHECK_THAT(refusal(with("[" + many + "]")), Catch::Contains("at most 16"));
}

TEST_CASE("own addresses: a family of which none is named has its usual one", "[proxy]") {
    using namespace crane;
    const OwnAddresses four = own_addresses_of({"10.0.0.5/24", "10.0.0.6/24"});
    REQUIRE(four.count == 3);
    CHECK(four.first(AF_INET)->bytes[3] == 5);
    CHECK(four.first(AF_INET6)->is(AF_INET6, kUsualAddressSix.bytes));
    CHECK_FALSE(four.has(AF_INET, kUsualAddress.bytes));
    CHECK(own_addresses_of({}).has(AF_INET, kUsualAddress.bytes));
    CHECK(own_addresses_of(std::vector<std::string>(40, "10.0.0.5/24")).count == kMaxOwnAddresses + 1);
}

TEST_CASE("config: the server is let out only when that is said, and where", "[proxy][egress]") {
    const auto with = [](const std::string& lines) {
        return changed("[port_map]", "[egress]\n" + lines + "\n[port_map]");
    };
    const Config as_ever = parse_config(kGood, "craned.toml");
    CHECK_FALSE(as_ever.egress);
    const Config out = parse_config(
        with("policy = \"primary\"\nallow = [\"10.0.0.0/8:5432\", \"[fd00::/8]:443\"]"), "craned.toml");
    CHECK(out.egress);
    CHECK(out.egress_allow.size() == 2);
    CHECK(settings_hash(as_ever) != settings_hash(out));
    CHECK_THAT(refusal(with("policy = \"all\"")), Catch::Contains("policy"));
    CHECK_THAT(refusal(with("allow = [\"10.0.0.1\"]")), Catch::Contains("write policy = \"primary\""));
    CHECK_THAT(refusal(with("policy = \"primary\"\nallow = [\"db.example\"]")),
               Catch::Contains("\"db.example\" must be an address"));
}

TEST_CASE("config: a good file, with defaults", "[proxy]") {
    const Config config = parse_config(kGood, "craned.toml");
    CHECK(config.mode == Mode::kFull);
    CHECK(config.container);
    CHECK(config.replicas.size() == 3);
    CHECK(config.self().peer_host == "::1");
    CHECK(config.self().peer_port == 7102);
    CHECK(config.self().client_address == "127.0.0.2");
    CHECK(config.self().port_map.at(80) == 8080);
    CHECK(config.heartbeat_ms == 50);
    CHECK(config.log_content == LogContent::kFull);
    CHECK(config.tls.certificate == "/etc/crane/replica.crt");
    CHECK_FALSE(config.rejoin);
    CHECK(config.clock.max_skew_ns == 1'000'000'000);
    CHECK(config.keepalive.idle_s == 60);
    const std::string more =
        "[clock]\nmax_skew_ms = 20\nslew_ppm = 7\n[clients]\nkeepalive_idle_s = 0\n[port_map]";
    const Config other = parse_config(changed("[port_map]", more), "craned.toml");
    CHECK(other.clock.max_skew_ns == 20'000'000);
    CHECK(other.clock.slew_ppm == 7);
    CHECK(other.keepalive.idle_s == 0);
    CHECK(
        parse_config(changed("[port_map]", "[consensus]\nrejoin = true\n[port_map]"), "craned.toml").rejoin);
}

TEST_CASE("config: a replica that lost its database comes back to a cluster of any size", "[proxy]") {
    const std::string four = kGood + "[[replica]]\nid = 4\npeer = \"h:7104\"\n";
    CHECK_THAT(refusal(four), Catch::Contains("there are 4; use 1, 3, 5 or 7"));
    std::string back = four;
    back.replace(back.find("[port_map]"), 10, "[consensus]\nrejoin = true\n[port_map]");
    CHECK(refusal(back) == "accepted");
}

TEST_CASE("config: exceptions from confinement are named and checked", "[proxy]") {
    const auto with = [](const std::string& lines) {
        return changed("[tls]", "[confinement]\n" + lines + "\n[tls]");
    };
    const Config config =
        parse_config(with("user = \"redis\"\ncapabilities = [\"CAP_NET_RAW\"]\nsystem_calls = [\"keyctl\"]\n"
                          "devices = [\"/dev/fuse\"]\nshow = [\"/etc/shadow\"]\ndisk_quota_bytes = 33554432"),
                     "craned.toml");
    CHECK(config.user == "redis");
    CHECK(config.confinement.capabilities == std::vector<std::string>{"CAP_NET_RAW"});
    CHECK_FALSE(config.confinement.new_privileges);
    CHECK(config.disk_quota.bytes == 32 << 20);
    CHECK_THAT(refusal(with("capabilities = [\"CAP_ALL\"]")),
               Catch::Contains("\"CAP_ALL\" is no capability"));
    CHECK_THAT(refusal(with("system_calls = [\"open_all\"]")), Catch::Contains("is no system call"));
    CHECK_THAT(refusal(with("devices = [\"/etc/passwd\"]")), Catch::Contains("must be a path below /dev/"));
    CHECK_THAT(refusal(with("devices = [\"/dev/../etc\"]")), Catch::Contains("without spaces or .."));
    CHECK_THAT(refusal(with("disk_quota_bytes = 5")), Catch::Contains("at least 16777216"));
    const Config xfs =
        parse_config(with("disk_quota_bytes = 400000000\ndisk_format = \"xfs\""), "craned.toml");
    CHECK(xfs.disk_quota.format == crane::checkpoint::DiskQuota::Format::kXfs);
    CHECK_THAT(refusal(with("disk_quota_bytes = 33554432\ndisk_format = \"xfs\"")),
               Catch::Contains("at least 335544320"));
    CHECK_THAT(refusal(with("disk_format = \"xfs\"")), Catch::Contains("set disk_quota_bytes, too"));
    CHECK_THAT(refusal(with("disk_format = \"ntfs\"")), Catch::Contains("disk_format"));
    CHECK_THAT(refusal(with("privileged = true")), Catch::Contains("not a known key"));
    std::string none = with("user = \"redis\"");
    none.insert(0, "isolation = \"none\"\n");
    CHECK(refusal(none) == "accepted");
    none.replace(none.find("user = "), 14, "hide = [\"/srv\"]");
    CHECK_THAT(refusal(none), Catch::Contains("is for containers"));
}

TEST_CASE("config: the example for three hosts is right on each", "[proxy]") {
    std::ifstream in("docs/examples/craned.toml");
    REQUIRE(in);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const std::string first = "replica_id = 1";
    for (uint32_t id = 1; id <= 3; ++id) {
        std::string own = text;
        own.replace(own.find(first), first.size(), "replica_id = " + std::to_string(id));
        const Config config = parse_config(own, "craned.toml");
        CHECK(config.replicas.size() == 3);
        CHECK(config.self().client_address == "10.0.0." + std::to_string(id));
        CHECK(config.self().port_map.at(80) == 8080);
        CHECK(config.tls.configured());
    }
}

TEST_CASE("config: without [tls] every peer has to be on loopback", "[proxy]") {
    using Catch::Matchers::Contains;
    std::string text = kGood;
    text.erase(text.find("[tls]"), text.find("[[replica]]") - text.find("[tls]"));
    CHECK_THAT(refusal(text), Contains("replica 3's peer address h is not on loopback") &&
                                  Contains("crane ca init --dir /root/crane-ca --cluster ab12") &&
                                  Contains("--replica 3"));
    text.replace(text.find("h:7103"), 6, "localhost:7103");
    CHECK(refusal(text) == "accepted");
    text.replace(text.find("127.0.0.1:7101"), 14, "10.0.0.1:7101");
    CHECK_THAT(refusal(text), Contains("replica 1's peer address 10.0.0.1 is not on loopback"));
}

TEST_CASE("config: mistakes are named with file, line and key", "[proxy]") {
    using Catch::Matchers::Contains;
    CHECK_THAT(refusal("cluster_id = "), Contains("craned.toml:1") && Contains("TOML"));
    CHECK_THAT(refusal("sevrer = 1\n" + kGood), Contains("craned.toml:1: sevrer: is not a known key"));
    CHECK_THAT(refusal(changed("\"ab12\"", "\"xyz\"")), Contains("cluster_id") && Contains("hexadecimal"));
    CHECK_THAT(refusal(changed("replica_id = 2", "replica_id = 4")), Contains("no [[replica]] has that id"));
    CHECK_THAT(refusal(changed("id = 3", "id = 1")), Contains("twice"));
    CHECK_THAT(refusal(changed("h:7103", "h")), Contains("address:port"));
    CHECK_THAT(refusal(changed("h:7103", "h:70000")), Contains("65535"));
    CHECK_THAT(refusal(changed("\"80\" = 8080", "\"80\" = 0")), Contains("1 to 65535"));
    CHECK_THAT(refusal(changed("\"/s.so\"", "\"s.so\"")), Contains("absolute"));
    CHECK_THAT(refusal(changed("[port_map]", "[bubble]\nn_clock = -1\n[port_map]")),
               Contains("bubble.n_clock"));
    CHECK_THAT(refusal(changed("[port_map]", "[consensus]\nheartbeat_ms = 400\n[port_map]")),
               Contains("election_timeout_ms") && Contains("three times"));
    CHECK_THAT(refusal(changed("[[replica]]\nid = 3\npeer = \"h:7103\"", "")), Contains("1, 3, 5 or 7"));
    CHECK_THAT(refusal(changed("server = [\"apache2\", \"-DFOREGROUND\"]", "server = []")),
               Contains("server"));
    CHECK_THAT(refusal(changed("key = \"/etc/crane/replica.key\"\n", "")), Contains("tls.key: is missing"));
    CHECK_THAT(refusal(changed("\"/etc/crane/ca.crt\"", "\"ca.crt\"")),
               Contains("tls.ca") && Contains("absolute"));
    CHECK_THAT(refusal("mode = \"both\"\n" + kGood), Contains("\"full\", \"dmt\", \"proxy\""));
}

TEST_CASE("batcher: whose state counts is said in a batch of its own", "[proxy]") {
    Batcher batcher;
    batcher.add(CallKind::kSend, 1, "waits");
    const auto base_in = [](const std::string& batch) {
        BatchDecoder decoder;
        REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()));
        return named_base(decoder);
    };
    BatchHeader header{};
    const std::string batch = batcher.base(7, 100);
    CHECK(calls_of(batch, header).size() == 1);
    CHECK(header.timestamp_ns == 100);
    CHECK(base_in(batch) == 7);
    CHECK(batcher.calls() == 1);
    const std::string next = batcher.take(50, 1);
    CHECK(base_in(next) == 0);
    CHECK(calls_of(next, header)[0].payload == "waits");
    CHECK(header.timestamp_ns > 100);
    BatchEncoder odd;
    odd.add(CallKind::kBase, 0, "short");
    CHECK(base_in(odd.finish(1, 1)) == 0);
}

TEST_CASE("disk watch: input stops before the disk is full, and goes on with some room", "[proxy]") {
    constexpr uint64_t kMiB = 1 << 20;
    DiskWatch disk(64 * kMiB);
    struct {
        DiskWatch& disk;
        uint64_t now_ns = 1;
        // So seldom that nothing falls fast.
        bool observe(uint64_t free, uint64_t total) {
            return disk.observe({free, total}, now_ns += 3'600'000'000'000);
        }
    } slowly{disk};
    CHECK_FALSE(slowly.observe(65 * kMiB, 100'000 * kMiB));
    CHECK(disk.alarm("/x").empty());
    CHECK(slowly.observe(63 * kMiB, 100'000 * kMiB));
    CHECK(disk.low());
    CHECK(disk.alarm("/var/lib/x").find("63 MiB are left where /var/lib/x is") != std::string::npos);
    CHECK_FALSE(disk.critical());
    slowly.observe(31 * kMiB, 100'000 * kMiB);
    CHECK(disk.critical());
    slowly.observe(63 * kMiB, 100'000 * kMiB);
    CHECK(disk.critical());
    slowly.observe(64 * kMiB, 100'000 * kMiB);
    CHECK_FALSE(disk.critical());
    CHECK_FALSE(slowly.observe(70 * kMiB, 100'000 * kMiB));  // not yet: it would stop again at once
    CHECK(slowly.observe(80 * kMiB, 100'000 * kMiB));
    CHECK_FALSE(disk.low());
    CHECK_FALSE(slowly.observe(20 * kMiB, 200 * kMiB));  // a small file system: a twentieth of it
    CHECK(slowly.observe(9 * kMiB, 200 * kMiB));
}

TEST_CASE("disk watch: a disk without inodes is full", "[proxy]") {
    constexpr uint64_t kSecondNs = 1'000'000'000;
    constexpr uint64_t kManyBytes = 1ULL << 40;
    DiskWatch disk(64 << 20);
    uint64_t now_ns = 1;
    const auto observe = [&](uint64_t free, uint64_t total) {
        return disk.observe({kManyBytes, kManyBytes, free, total}, now_ns += 3600 * kSecondNs);
    };
    CHECK_FALSE(observe(1025, 1'000'000));
    CHECK(observe(1023, 1'000'000));
    CHECK(disk.low());
    CHECK_FALSE(disk.critical());
    CHECK(disk.alarm("/x").find("DISK FULL: 1023 more files can be made where /x is") == 0);
    CHECK(disk.alarm("/x").find("MiB") == std::string::npos);
    observe(511, 1'000'000);
    CHECK(disk.critical());
    CHECK_FALSE(observe(1025, 1'000'000));  // not yet: it would stop again at once
    CHECK_FALSE(disk.critical());
    CHECK(observe(1281, 1'000'000));
    CHECK_FALSE(disk.low());
    CHECK_FALSE(observe(101, 2000));  // a small one: a twentieth of it
    CHECK(observe(99, 2000));
    CHECK(observe(kUnboundedFiles, 0));  // nothing to run out of
    CHECK(disk_json(disk, 1)["free_files"].is_null());
    // Near the edge it is looked at often; far from it, or without one, it is not.
    CHECK(disk.next_look_ns() == kSecondNs / 4);
    for (const auto& [free, next_ns] :
         {std::pair{1100, kSecondNs / 100}, std::pair{900'000, kSecondNs / 4}}) {
        DiskWatch another(64 << 20);
        another.observe({kManyBytes, kManyBytes, static_cast<uint64_t>(free), 1'000'000}, 1);
        CHECK(another.next_look_ns() == next_ns);
    }
}

TEST_CASE("disk watch: who fills the disk fast is seen before the reserve is gone", "[proxy]") {
    constexpr uint64_t kMiB = 1 << 20;
    constexpr uint64_t kTotal = 100'000 * kMiB;
    constexpr uint64_t kStepNs = 1'000'000;
    for (const uint64_t mib_per_s : {10U, 100U, 500U, 1000U, 2000U}) {
        for (uint64_t slack = 1; slack < 3000; slack += 61) {  // when it begins, right behind a look
            DiskWatch disk(64 * kMiB);
            uint64_t now_ns = 1, free = (64 + slack) * kMiB;
            REQUIRE_FALSE(disk.observe({free, kTotal}, now_ns));
            for (bool told = false; !told;) {
                for (uint64_t left = disk.next_look_ns(); left != 0; left -= kStepNs)
                    free -= std::min(free, mib_per_s * kMiB / 1000);
                now_ns += disk.next_look_ns();
                told = disk.observe({free, kTotal}, now_ns);
            }
            INFO(mib_per_s << " MiB/s from " << slack << " MiB above the reserve");
            REQUIRE(free >= 32 * kMiB);  // half of the reserve: the others' entries are still taken
            REQUIRE(free <= (64 + 2 * mib_per_s / 10 + 1) * kMiB);
        }
    }
}

TEST_CASE("disk watch: looks come the closer the nearer the edge is, and input goes on", "[proxy]") {
    constexpr uint64_t kMiB = 1 << 20;
    constexpr uint64_t kTotal = 100'000 * kMiB;
    constexpr uint64_t kMsNs = 1'000'000;
    DiskWatch disk(64 * kMiB);
    CHECK_FALSE(disk.observe({2000 * kMiB, kTotal}, 1));
    CHECK(disk.next_look_ns() == 250 * kMsNs);
    // An image of a gigabyte in a second, where there is room for it, is no alarm.
    uint64_t now_ns = 1, free = 1750 * kMiB;
    for (; free > 1000 * kMiB; free -= 250 * kMiB)
        CHECK_FALSE(disk.observe({free, kTotal}, now_ns += 250 * kMsNs));
    CHECK(disk.next_look_ns() > 100 * kMsNs);
    CHECK_FALSE(disk.observe({264 * kMiB, kTotal}, now_ns += 600 * kMsNs));
    CHECK(disk.next_look_ns() < 60 * kMsNs);
    CHECK(disk.observe({64 * kMiB, kTotal}, now_ns += 200 * kMsNs));
    CHECK(disk.alarm("/x").find(" MiB/s less)") != std::string::npos);
    CHECK(disk.next_look_ns() == 10 * kMsNs);  // until half of it is gone
    disk.observe({31 * kMiB, kTotal}, now_ns += 10 * kMsNs);
    CHECK(disk.critical());
    CHECK(disk.next_look_ns() == 250 * kMsNs);
    // There is room again, and it stops falling.
    int looks = 0;
    while (!disk.observe({200 * kMiB, kTotal}, now_ns += disk.next_look_ns())) ++looks;
    CHECK_FALSE(disk.low());
    CHECK(looks < 10);
}

TEST_CASE("operator mail: an order reaches the primary, and its answer comes back once", "[proxy]") {
    std::deque<std::string> wire;
    const auto send = [&wire](uint32_t, const std::string& message) {
        wire.push_back(message);
        return true;
    };
    OperatorMail::Reply later;
    auto primary =
        std::make_unique<OperatorMail>(send, [&](const nlohmann::json& request, OperatorMail::Reply reply) {
            if (request.value("cmd", "") == "output") {
                later = std::move(reply);
                return;
            }
            if (request.value("cmd", "") != "transfer") throw std::runtime_error("no");
            reply({{"ok", true}, {"to", request["to"]}});
        });
    OperatorMail backup(send, nullptr);
    const uint64_t number = backup.ask(1, {{"cmd", "transfer"}, {"to", 3}});
    REQUIRE(number != 0);
    CHECK(backup.answer(number).empty());
    REQUIRE(wire.size() == 1);
    CHECK(wire[0][0] == 'O');
    primary->on_request(2, std::string_view(wire[0]).substr(1));
    REQUIRE(wire.size() == 2);
    CHECK(wire[1][0] == 'A');
    backup.on_answer(std::string_view(wire[1]).substr(1));
    CHECK(nlohmann::json::parse(backup.answer(number))["to"] == 3);
    primary->on_request(2, "short");  // what is malformed is dropped
    backup.on_answer("x");
    CHECK(wire.size() == 2);
    CHECK(backup.answer(number + 1).empty());
    // A reply that takes its time, and one whose replica was made anew meanwhile.
    for (const bool gone : {false, true}) {
        wire.clear();
        const uint64_t read = backup.ask(1, {{"cmd", "output"}});
        primary->on_request(2, std::string_view(wire[0]).substr(1));
        REQUIRE(wire.size() == 1);
        if (gone) primary.reset();
        later({{"records", 5}});
        REQUIRE(wire.size() == (gone ? 1 : 2));
        if (!gone) backup.on_answer(std::string_view(wire[1]).substr(1));
        CHECK(backup.answer(read).empty() == gone);
    }
}
