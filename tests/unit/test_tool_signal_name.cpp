// What crane signal takes for a signal.
#include <signal.h>
#include <catch2/catch.hpp>

#include "proxy/tool/signal_name.hpp"

using crane::proxy::signal_number;

TEST_CASE("signal names: a number, and a name in any case, with SIG or without") {
    CHECK(signal_number("15") == SIGTERM);
    CHECK(signal_number("1") == SIGHUP);
    CHECK(signal_number("64") == 64);
    CHECK(signal_number("HUP") == SIGHUP);
    CHECK(signal_number("SIGHUP") == SIGHUP);
    CHECK(signal_number("sighup") == SIGHUP);
    CHECK(signal_number("Usr1") == SIGUSR1);
    CHECK(signal_number("cld") == SIGCHLD);
    CHECK(signal_number("SIGPOLL") == SIGIO);
    CHECK(signal_number("sys") == SIGSYS);
}

TEST_CASE("signal names: realtime signals by their distance") {
    CHECK(signal_number("RTMIN") == static_cast<uint32_t>(SIGRTMIN));
    CHECK(signal_number("SIGRTMIN+3") == static_cast<uint32_t>(SIGRTMIN) + 3);
    CHECK(signal_number("rtmax-1") == static_cast<uint32_t>(SIGRTMAX) - 1);
    CHECK(signal_number("RTMIN+30") == static_cast<uint32_t>(SIGRTMAX));
}

TEST_CASE("signal names: what is none is refused with those that there are") {
    for (const char* wrong : {"", "0", "65", "-1", "9x", "HUPP", "SIG", "SIGSIGHUP", "RTMIN+31", "RTMIN-1",
                              "RTMAX+1", "RTMIN+", "RT", "99999999999999999999"}) {
        CAPTURE(wrong);
        CHECK_THROWS_WITH(signal_number(wrong),
                          Catch::Contains("HUP, INT, QUIT") && Catch::Contains("RTMIN+30"));
    }
}
