// What the server listens on, and what of it clients are shown.
#include <arpa/inet.h>
#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>

#include "proxy/listeners.hpp"

using namespace crane::proxy;
using crane::timebubble::ListenRecord;

namespace {

using Base = std::unique_ptr<event_base, decltype(&event_base_free)>;

ListenRecord record_of(int family, const char* address, uint16_t port) {
    ListenRecord out{};
    out.family = static_cast<uint16_t>(family);
    out.port = port;
    REQUIRE(inet_pton(family, address, out.address) == 1);
    return out;
}

/// A port that nobody has at the moment.
uint16_t free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
    socklen_t length = sizeof(address);
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

}  // namespace

TEST_CASE("listeners: a port for the server's own host alone is not shown to other hosts", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    // 192.0.2.1 is nobody's: opening it fails, and is tried again, but it counts as shown.
    Listeners abroad(base.get(), "192.0.2.1", {{7001, 7101}}, [](int, uint16_t, const Listeners::Place&) {});
    abroad.listen(record_of(AF_INET, "127.0.0.1", 7000));
    abroad.listen(record_of(AF_INET6, "::1", 7002));
    abroad.unlisten(record_of(AF_INET, "127.0.0.1", 7000));
    CHECK(abroad.states().empty());
    abroad.listen(record_of(AF_INET, "127.0.0.1", 7001));  // the operator asked for it
    abroad.listen(record_of(AF_INET, "0.0.0.0", 7003));
    REQUIRE(abroad.states().size() == 2);
    CHECK(abroad.states()[0].client_port == 7101);
    CHECK(abroad.states()[1].port == 7003);
    // One private and one public listener on a port: it stays until the public one goes.
    abroad.listen(record_of(AF_INET, "127.0.0.1", 7003));
    abroad.unlisten(record_of(AF_INET, "127.0.0.1", 7003));
    CHECK(abroad.states().size() == 2);
    abroad.unlisten(record_of(AF_INET, "0.0.0.0", 7003));
    CHECK(abroad.states().size() == 1);
}

TEST_CASE("listeners: clients on this host reach what the server has on its loopback", "[proxy]") {
    const Base base(event_base_new(), event_base_free);
    const uint16_t port = free_port();
    Listeners here(base.get(), "127.0.0.1", {}, [](int, uint16_t, const Listeners::Place&) {});
    ListenRecord record = record_of(AF_INET, "127.0.0.1", port);
    here.listen(record);
    REQUIRE(here.states().size() == 1);
    CHECK(here.states()[0].open);
    record.defer_accept_s = 30;
    here.change(record);
    here.unlisten(record);
    CHECK(here.states().empty());
}
