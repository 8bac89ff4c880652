// Names of peers are looked up beside the event loop.
#include "paxos/link/lookup.hpp"

#include <event2/event.h>
#include <netdb.h>

#include <catch2/catch.hpp>

#include "test_paxos_name_server.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

TEST_CASE("paxos lookup: a name that nobody answers for holds nothing up") {
    name_server().fall_silent();
    event_base* const base = event_base_new();
    {
        std::string slow_error;
        bool found = false;
        const Lookup slow(base, {1, kSlowName, 7000},
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
    std::make_unique<Lookup>(base, PeerAddress{1, kSlowName, 7000}, [&](const AddressInfo&) {
        called = true;
    }).reset();
    name_server().answer();
    event_base_loop(base, EVLOOP_NONBLOCK);
    REQUIRE(!called);
    event_base_free(base);
}
