// Names of peers are looked up beside the event loop.
#include "paxos/lookup.hpp"

#include <dlfcn.h>
#include <event2/event.h>
#include <netdb.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "test_paxos_node.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

constexpr const char* slow_name = "slow.invalid";

// The name server that does not answer until the test lets it.
struct NameServer {
    std::mutex mutex;
    std::condition_variable changed;
    bool answers = false;
    unsigned asked = 0, answered = 0;

    void ask() {
        std::unique_lock<std::mutex> guard(mutex);
        ++asked;
        changed.notify_all();
        changed.wait(guard, [this] { return answers; });
        ++answered;
        changed.notify_all();
    }
    void answer() {
        std::unique_lock<std::mutex> guard(mutex);
        changed.wait(guard, [this] { return asked > 0; });
        answers = true;
        changed.notify_all();
        changed.wait(guard, [this] { return answered == asked; });
    }
    void fall_silent() {
        const std::lock_guard<std::mutex> guard(mutex);
        answers = false;
        asked = answered = 0;
    }
};

std::atomic<bool> several_addresses = false;  // of localhost

NameServer& name_server() {
    static NameServer server;
    return server;
}

}  // namespace

// Stands before the C library's in this program.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
    using Function = int(const char*, const char*, const addrinfo*, addrinfo**);
    static Function* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "getaddrinfo"));
    if (host != nullptr && several_addresses && std::strcmp(host, "localhost") == 0) {
        const int first = real("127.0.0.2", service, hints, found);
        return first != 0 ? first : real("127.0.0.1", service, hints, &(*found)->ai_next);
    }
    if (host == nullptr || std::strcmp(host, slow_name) != 0) return real(host, service, hints, found);
    name_server().ask();
    return EAI_NONAME;
}

TEST_CASE("paxos lookup: a name that nobody answers for holds nothing up") {
    name_server().fall_silent();
    event_base* const base = event_base_new();
    {
        std::string slow_error;
        bool found = false;
        const Lookup slow(base, {1, slow_name, 7000},
                          [&](const AddressInfo& info) { slow_error = info.error; });
        const Lookup fast(base, {2, "localhost", 7000}, [&](const AddressInfo& info) {
            found = info.error.empty() && info.list != nullptr && is_loopback(info.list->ai_addr);
            event_base_loopbreak(base);
        });
        event_base_dispatch(base);
        REQUIRE(found);
        REQUIRE(slow_error.empty());
        name_server().answer();
        while (slow_error.empty()) event_base_loop(base, EVLOOP_ONCE);
        REQUIRE(slow_error == gai_strerror(EAI_NONAME));
    }
    event_base_free(base);
}

TEST_CASE("paxos lookup: one that is given up answers to nobody") {
    name_server().fall_silent();
    event_base* const base = event_base_new();
    bool called = false;
    std::make_unique<Lookup>(base, PeerAddress{1, slow_name, 7000}, [&](const AddressInfo&) {
        called = true;
    }).reset();
    name_server().answer();
    event_base_loop(base, EVLOOP_NONBLOCK);
    REQUIRE(!called);
    event_base_free(base);
}

TEST_CASE("paxos lookup: replicas that are known by name find each other") {
    NodeCluster cluster(3, [](NodeConfig& config) {
        for (PeerAddress& member : config.members) member.host = "localhost";
    });
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(100, 100));
}

TEST_CASE(
    "paxos lookup: of several addresses the one that answers is used, and a replica listens on all of its "
    "own") {
    several_addresses = true;
    {
        NodeCluster cluster(0);
        NodeConfig config = cluster.config(1);
        for (uint32_t id = 1; id <= 3; ++id) config.members.push_back({id, "localhost", free_port()});
        for (uint32_t id = 1; id <= 3; ++id) {
            NodeConfig own = cluster.config(id);
            own.members = config.members;
            if (id == 1) own.members[0].host = "127.0.0.1";  // the second
            if (id == 2) own.members[1].host = "127.0.0.2";
            cluster.start(own);
        }
        REQUIRE(cluster.await_leader());
        REQUIRE(cluster.run_until([&] { return cluster.linked({1, 2, 3}); }));
        for (const char* address : {"127.0.0.1", "127.0.0.2"}) {
            const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            sockaddr_in to{};
            to.sin_family = AF_INET;
            to.sin_port = htons(config.members[2].port);
            REQUIRE(inet_pton(AF_INET, address, &to.sin_addr) == 1);
            REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
            close(fd);
        }
    }
    several_addresses = false;
}
