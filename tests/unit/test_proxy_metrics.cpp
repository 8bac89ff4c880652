// What craned shows of itself: alarms by name, health, metrics, and a web server that strangers cannot tie
// up.
#include <arpa/inet.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/latency_histogram.hpp"
#include "paxos/link/tls.hpp"
#include "proxy/metrics/conditions.hpp"
#include "proxy/metrics/families.hpp"
#include "proxy/metrics/http_server.hpp"
#include "tests/unit/test_paxos_tls.hpp"
#include "tests/unit/test_proxy_craned.hpp"

using namespace crane::proxy;
using namespace crane::proxy::testing;

namespace {

constexpr int64_t kNow = 1'700'000'000;

/// The primary of three, all well.
json well() {
    json members = json::array(), peers = json::array();
    for (int i : {1, 2, 3}) {
        members.push_back({{"replica", i}, {"voter", true}, {"address", "10.0.0.1:7000"}});
        if (i != 1)
            peers.push_back({{"replica", i}, {"voter", true}, {"connected", true}, {"heard_ms_ago", 20}});
    }
    return {
        {"replica", 1},
        {"cluster", "5f"},
        {"role", "primary"},
        {"ready", true},
        {"view", 4},
        {"leader", 1},
        {"server", "listening"},
        {"message", ""},
        {"fenced", ""},
        {"listen", {{{"port", 80}, {"client", "127.0.0.1:8080"}, {"open", true}}}},
        {"peers", peers},
        {"membership", {{"members", members}}},
        {"alarms", json::array()},
        {"alarm_names", json::array()},
        {"clock_skew", {{"agreed", true}, {"host_s", 0.25}, {"cluster_s", nullptr}}},
        {"counters", {{"calls", 42}}},
        {"divergence", {{"diverged", json::array()}, {"schedule_differences", 0}, {"settings_differ", 0}}}};
}

std::string names(const json& status) {
    std::string out;
    for (const Alarm& one : alarms_in(status, kNow)) out += std::string(alarm_name(one.kind)) + " ";
    return out;
}

bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("alarms: what a replica raises keeps its name, and what its status shows gets one", "[metrics]") {
    CHECK(names(well()).empty());
    json status = well();
    status["alarms"] = {"DISK FULL", "clients wait"};
    status["alarm_names"] = {"disk-full", "clients-wait"};
    CHECK(names(status) == "disk-full clients-wait ");
    status = well();
    status["leader"] = 0;
    status["peers"][0]["connected"] = status["peers"][1]["connected"] = false;
    CHECK(names(status) == "no-primary no-quorum peer-down ");
    status = well();
    status["peers"][0]["connected"] = false;
    CHECK(names(status) == "peer-down ");
    status["peers"][1]["needs_checkpoint"] = true;  // it is heard, and acknowledges nothing
    CHECK(names(status) == "no-quorum peer-down ");
    CHECK(metrics_text(status, kNow).find("\ncrane_voters_in_reach 1\n") != std::string::npos);
    status = well();
    status["server"] = "refused";
    status["restarts_in_vain"] = "lost 6 times";
    status["listen"][0]["error"] = "Address in use";
    CHECK(names(status) == "server-down server-restarts port-not-served ");
    status = well();
    status["divergence"]["diverged"] = {{{"replica", 2}, {"index", 7}}};
    status["divergence"]["schedule_differs"] = {{{"replica", 3}, {"index", 9}}};
    CHECK(names(status) == "diverged schedule-differs ");
    CHECK(alarms_in(status, kNow)[0].text == "replica 2 differs from the majority at log index 7");
    status = well();
    status["divergence"]["schedule_differences"] = 3850;  // that was; the replica has been made anew
    CHECK(names(status).empty());
}

TEST_CASE("alarms: a certificate is told of a month before its end, and none is no alarm", "[metrics]") {
    json status = well();
    status["certificate_ends_s"] = 0;
    CHECK(names(status).empty());
    status["certificate_ends_s"] = kNow + 31 * 86400;
    CHECK(names(status).empty());
    status["certificate_ends_s"] = kNow + 29 * 86400;
    CHECK(names(status) == "certificate ");
    status["certificate_ends_s"] = kNow - 1;
    CHECK(alarms_in(status, kNow)[0].text.find("has expired") != std::string::npos);
    status["certificate_ends_s"] = status["authority_ends_s"] = kNow + 29 * 86400;
    CHECK(alarms_in(status, kNow)[0].text ==
          "the certificate of this replica's authority expires in 29 days");
    status["authority_ends_s"] = kNow + 300 * 86400;
    CHECK(alarms_in(status, kNow)[0].text == "this replica's certificate expires in 29 days");
}

TEST_CASE("alarms: certificate files that cannot be used are told of beside the certificate in use",
          "[metrics]") {
    json status = well();
    status["certificate_ends_s"] = kNow + 300 * 86400;
    status["certificate_problem"] = "tls.key does not belong to it";
    CHECK(names(status) == "certificate ");
    const std::string problem = alarms_in(status, kNow)[0].text;
    CHECK(problem ==
          "the certificate files are not used, and craned does not start with them: tls.key does not belong "
          "to it");
    status["certificate_ends_s"] = kNow + 29 * 86400;
    CHECK(names(status) == "certificate ");
    CHECK(alarms_in(status, kNow)[0].text == "this replica's certificate expires in 29 days; " + problem);
    status["certificate_problem"] = "";
    CHECK(alarms_in(status, kNow)[0].text == "this replica's certificate expires in 29 days");
}

TEST_CASE("alarms: a certificate ends with the authority that signed it, whatever else is trusted",
          "[metrics]") {
    using crane::paxos::kDaySeconds, crane::paxos::PemPair;
    const int64_t now = time(nullptr);
    const crane::paxos::testing::Authority authority;
    const crane::paxos::TlsFiles files = authority.files(1);  // for 365 days
    using Days = std::pair<int64_t, int64_t>;
    const auto days_left = [&](const std::string& authorities) {
        crane::paxos::testing::write_file(authority.ca(), authorities, 0644);
        const crane::paxos::TlsContext context(files, {"unit", 1});
        const crane::paxos::TlsStanding standing = context.standing();
        return Days((standing.ends_s - now) / kDaySeconds, (standing.authority_ends_s - now) / kDaySeconds);
    };
    const std::string own = authority.pair().certificate;
    const PemPair other =
        crane::paxos::make_authority("unit", {now - kDaySeconds, now + 5 * kDaySeconds + 3600});
    CHECK(days_left(own) == Days(365, 1000));
    CHECK(days_left(other.certificate + own) == Days(365, 1000));
    authority.install(
        1, crane::paxos::issue_certificate(other, 1, {now - kDaySeconds, now + 5 * kDaySeconds + 3600}));
    CHECK(days_left(own + other.certificate) == Days(5, 5));
}

TEST_CASE("alarms: what crane audit found is raised until it finds them equal", "[metrics]") {
    json status = well();
    status["audit"] = nullptr;
    CHECK(names(status).empty());
    status["audit"] = {{"told_s", kNow}, {"records", 9}, {"difference", "replica 2 differs"}};
    CHECK(names(status) == "audit-differs ");
    CHECK(alarms_in(status, kNow)[0].text == "crane audit: replica 2 differs");
    CHECK(metrics_text(status, kNow).find("crane_audit_equal_records 9") != std::string::npos);
    status["audit"]["difference"] = "";
    CHECK(names(status).empty());
}

TEST_CASE("health: a backup serves and is no primary, and one that is being stopped is neither",
          "[metrics]") {
    CHECK(why_not_primary(well()).empty());
    json status = well();
    status["ready"] = false;
    CHECK(why_not_primary(status) == "it has not taken over yet");
    status = well();
    status["leader"] = 2;
    CHECK(why_unhealthy(status).empty());
    CHECK(why_not_primary(status) == "it is a backup; the primary is replica 2");
    status = well();
    status["stopping"] = true;
    CHECK(why_unhealthy(status) == "it is being stopped");
}

TEST_CASE("metrics: states and alarms are there whether they hold or not", "[metrics]") {
    json status = well();
    status["alarms"] = {"FENCED: it differs"};
    status["alarm_names"] = {"fenced"};
    const std::string text = metrics_text(status, kNow);
    CHECK(has_line(text, R"(crane_role{role="primary"} 1)"));
    CHECK(has_line(text, R"(crane_role{role="backup"} 0)"));
    CHECK(has_line(text, R"(crane_alarm{alarm="fenced"} 1)"));
    CHECK(has_line(text, R"(crane_alarm{alarm="no-quorum"} 0)"));
    CHECK(has_line(text, R"(crane_peer_connected{replica="3"} 1)"));
    CHECK(has_line(text, "crane_calls_proposed_total 42"));
    CHECK(has_line(text, R"(crane_clock_skew_seconds{clock="host"} 0.25)"));
    CHECK(text.find("clock=\"cluster\"") == std::string::npos);  // not known
    CHECK(text.find("crane_handovers_total") == std::string::npos);
    for (const std::string_view name : kAlarmNames)
        CHECK(text.find("alarm=\"" + std::string(name) + "\"") != std::string::npos);
}

TEST_CASE("metrics: latencies add up from bucket to bucket, in seconds", "[metrics]") {
    crane::LatencyHistogram latency;
    for (const uint64_t took_us : {40, 50, 51, 900, 9'000'000}) latency.observe(took_us);
    json buckets = json::array();
    for (size_t i = 0; i < latency.counts().size(); ++i) {
        const bool last = i == crane::LatencyHistogram::kBoundsUs.size();
        buckets.push_back({last ? json() : json(crane::LatencyHistogram::kBoundsUs[i]), latency.counts()[i]});
    }
    json status = well();
    status["latency"]["sync"] = {
        {"count", latency.count()}, {"sum_us", latency.sum_us()}, {"buckets", buckets}};
    const std::string text = metrics_text(status, kNow);
    const std::string name = "crane_log_sync_duration_seconds";
    CHECK(has_line(text, name + R"(_bucket{le="5e-05"} 2)"));
    CHECK(has_line(text, name + R"(_bucket{le="0.0001"} 3)"));
    CHECK(has_line(text, name + R"(_bucket{le="5"} 4)"));
    CHECK(has_line(text, name + R"(_bucket{le="+Inf"} 5)"));
    CHECK(has_line(text, name + "_count 5"));
    CHECK(text.find(name + "_sum 9.001041") != std::string::npos);
}

namespace {

/// A server on a loop in a thread of its own.
class Served {
  public:
    Served() {
        signal(SIGPIPE, SIG_IGN);
        evthread_use_pthreads();
        base_ = event_base_new();
        server_ = std::make_unique<HttpServer>(base_, "127.0.0.1:" + std::to_string(port_),
                                               [this](std::string_view path) {
                                                   ++asked_;
                                                   HttpAnswer out;
                                                   out.body = std::string(path) + "\n";
                                                   return out;
                                               });
        loop_ = std::thread([this] { event_base_loop(base_, EVLOOP_NO_EXIT_ON_EMPTY); });
    }
    ~Served() {
        event_base_loopexit(base_, nullptr);  // also if the loop is only about to begin
        loop_.join();
        server_.reset();
        event_base_free(base_);
    }
    uint16_t port() const { return port_; }
    int asked() const { return asked_; }

  private:
    uint16_t port_ = free_port();
    std::atomic<int> asked_ = 0;
    event_base* base_;
    std::unique_ptr<HttpServer> server_;
    std::thread loop_;
};

std::string get(uint16_t port, const std::string& request) {
    Client client(port);
    client.say(request);
    return client.hear(1 << 16);
}

}  // namespace

TEST_CASE("metrics server: answers, closes, and refuses what it does not know", "[metrics]") {
    const Served served;
    const std::string answer = get(served.port(), "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(answer.rfind("HTTP/1.1 200", 0) == 0);
    CHECK(answer.find("\r\n\r\n/metrics\n") != std::string::npos);
    const std::string head = get(served.port(), "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(head.rfind("HTTP/1.1 200", 0) == 0);
    CHECK(head.find("\r\n\r\n/metrics") == std::string::npos);
    const int asked = served.asked();
    CHECK(get(served.port(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
              .rfind("HTTP/1.1 501", 0) == 0);
    CHECK(get(served.port(), "GET / HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n")
              .find("HTTP/1.1 200") == std::string::npos);
    CHECK(get(served.port(), "no request\r\n\r\n").find("200") == std::string::npos);
    CHECK(served.asked() == asked);
}

TEST_CASE("metrics server: clients that say little or read nothing keep nobody out, and are closed",
          "[metrics]") {
    const Served served;
    std::vector<std::unique_ptr<Client>> silent;
    for (size_t i = 0; i < 3 * HttpServer::kMaxConnections; ++i) {
        silent.push_back(std::make_unique<Client>(served.port()));
        silent.back()->say("GET /slow HT");
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i)
        CHECK(get(served.port(), "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").find("200") !=
              std::string::npos);
    const auto took = std::chrono::steady_clock::now() - begin;
    CHECK(took <
          std::chrono::nanoseconds(HttpServer::kPatienceNs));    // nobody waited for their time to be over
    for (const auto& one : silent) CHECK(one->hear(1).empty());  // all are closed, in the end
    CHECK(served.asked() == 10);
}

TEST_CASE("metrics server: an address that is taken or none is refused", "[metrics]") {
    const Served served;
    event_base* base = event_base_new();
    const auto handler = [](std::string_view) { return HttpAnswer(); };
    CHECK_THROWS_WITH(HttpServer(base, "127.0.0.1:" + std::to_string(served.port()), handler),
                      Catch::Contains("Address already in use"));
    for (const char* wrong : {"127.0.0.1", "localhost:9464", "127.0.0.1:0", ":9464", ""})
        CHECK_THROWS_WITH(HttpServer(base, wrong, handler), Catch::Contains("no address and port"));
    event_base_free(base);
}
