// Administration from elsewhere: who may do what, and that one who does not read its answers is let go.
#include <event2/event.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "proxy/admin_server.hpp"
#include "proxy/tool/tools.hpp"
#include "tests/unit/test_paxos_directory.hpp"
#include "tests/unit/test_paxos_node.hpp"

using namespace crane::proxy;
using crane::paxos::Identity;
using crane::paxos::OperatorRole;
using crane::paxos::PemPair;
using crane::paxos::testing::TemporaryDirectory;
using nlohmann::json;

namespace {

constexpr char kCluster[] = "ab12";

/// An authority's files, and an AdminServer on a loop of its own.
struct Administered {
    TemporaryDirectory dir;
    crane::paxos::Validity valid{time(nullptr) - 1000, time(nullptr) + 1'000'000};
    PemPair authority = crane::paxos::make_authority(kCluster, valid);
    std::string address = "127.0.0.1:" + std::to_string(crane::paxos::testing::free_port());
    std::atomic<int> orders = 0;
    std::atomic<bool> ended = false;
    std::thread loop;

    Administered() {
        write("ca.crt", authority.certificate);
        write_pair("replica", crane::paxos::issue_certificate(authority, 1, valid));
        write_pair("reader",
                   crane::paxos::issue_operator_certificate(authority, OperatorRole::kRead, "ann", valid));
        write_pair("operator",
                   crane::paxos::issue_operator_certificate(authority, OperatorRole::kOperate, "bob", valid));
        std::atomic<bool> up = false;
        loop = std::thread([this, &up] {
            event_base* base = event_base_new();
            {
                const Identity self{kCluster, 1};
                const crane::paxos::TlsFiles files{dir.path + "/ca.crt", dir.path + "/replica.crt",
                                                   dir.path + "/replica.key", nullptr};
                AdminServer server(
                    base, address, std::make_shared<crane::paxos::TlsContext>(files, self), self,
                    [this](const json& request) -> json {
                        if (request["cmd"] == "fail") throw std::runtime_error("it failed");
                        if (request["cmd"] != "status") ++orders;
                        return {{"replica", 1}, {"text", std::string(request.value("bytes", 0u), 'x')}};
                    });
                up = true;
                const timeval tick{0, 10'000};
                while (!ended) {
                    event_base_loopexit(base, &tick);
                    event_base_dispatch(base);
                }
            }
            event_base_free(base);
        });
        while (!up) std::this_thread::yield();
    }
    ~Administered() {
        ended = true;
        loop.join();
    }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(dir.path + "/" + name) << text;
        chmod((dir.path + "/" + name).c_str(), 0600);
    }
    void write_pair(const std::string& name, const PemPair& pair) const {
        write(name + ".crt", pair.certificate);
        write(name + ".key", pair.key);
    }
    void speak_as(const std::string& name) const {
        use_credentials({dir.path + "/" + name + ".crt", dir.path + "/" + name + ".key", ""});
    }
    json ask(const json& request) const { return ask_remote(remote_place(address), request, 5000); }
    std::string why_not(const std::string& name) const {
        speak_as(name);
        try {
            return ask({{"cmd", "status"}}).dump();
        } catch (const std::runtime_error& error) {
            return error.what();
        }
    }
};

}  // namespace

TEST_CASE("admin: who may read asks, who may operate does all, and so does a replica", "[admin]") {
    Administered craned;
    craned.speak_as("reader");
    CHECK(craned.ask({{"cmd", "status"}})["replica"] == 1);
    for (const char* order : {"transfer", "restart", "stop", "audit", "member", "anything"})
        CHECK(craned.ask({{"cmd", order}})["error"].get<std::string>().find("needs the role operate") !=
              std::string::npos);
    CHECK(craned.orders == 0);
    for (const char* name : {"operator", "replica"}) {
        craned.speak_as(name);
        CHECK(craned.ask({{"cmd", "transfer"}})["replica"] == 1);
    }
    CHECK(craned.orders == 2);
    CHECK(craned.ask({{"cmd", "fail"}})["error"] == "it failed");
    CHECK(craned.ask({{"no", "cmd"}}).contains("error"));
    CHECK(craned.ask({{"cmd", "status"}, {"bytes", 1 << 20}})["text"].get<std::string>().size() == 1 << 20);
}

TEST_CASE("admin: other authorities, other clusters and certificates that have ended are refused",
          "[admin]") {
    Administered craned;
    const PemPair other = crane::paxos::make_authority(kCluster, craned.valid);
    craned.write_pair("other", crane::paxos::issue_operator_certificate(other, OperatorRole::kOperate, "eve",
                                                                        craned.valid));
    CHECK(craned.why_not("other").find("it refuses") != std::string::npos);
    const crane::paxos::Validity past{1'000'000'000, 1'100'000'000};
    craned.write_pair("old", crane::paxos::issue_operator_certificate(craned.authority,
                                                                      OperatorRole::kOperate, "old", past));
    CHECK(craned.why_not("old").find("it refuses") != std::string::npos);
    CHECK(craned.orders == 0);
    CHECK(craned.why_not("operator").find("replica") != std::string::npos);
    CHECK(role_of({"cd34", 1}, kCluster) == OperatorRole::kNone);
    CHECK(role_of({"cd34", 0, OperatorRole::kOperate, "eve"}, kCluster) == OperatorRole::kNone);
    CHECK(role_of({}, kCluster) == OperatorRole::kNone);
    CHECK(role_of({kCluster}, kCluster) == OperatorRole::kNone);  // the authority itself
}

TEST_CASE("admin: operators' names in certificates are read as they are written, and none is a replica's",
          "[admin]") {
    for (const Identity& one : {Identity{kCluster, 0, OperatorRole::kRead, "ann"},
                                Identity{kCluster, 0, OperatorRole::kOperate, "b.o-b_7"}}) {
        Identity read;
        CHECK(crane::paxos::parse_uri(to_uri(one), read));
        CHECK(read == one);
        CHECK(read.replica == crane::paxos::kNoReplica);
    }
    Identity unchanged{"x", 5};
    for (const char* bad :
         {"crane://ab12/read/", "crane://ab12/write/ann", "crane://ab12/read", "crane://ab12/read/a/b",
          "crane://ab12/read/a b", "crane://ab12//ann", "crane://ab12/5/ann"})
        CHECK_FALSE(crane::paxos::parse_uri(bad, unchanged));
    CHECK(unchanged == Identity{"x", 5});
    const TemporaryDirectory dir;
    const crane::paxos::Validity valid{1000, 2'000'000'000};
    const PemPair authority = crane::paxos::make_authority(kCluster, valid);
    CHECK_THROWS(crane::paxos::issue_operator_certificate(authority, OperatorRole::kNone, "ann", valid));
    CHECK_THROWS(crane::paxos::issue_operator_certificate(authority, OperatorRole::kRead, "", valid));
}
