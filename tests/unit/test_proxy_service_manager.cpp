// What systemd is told, at a socket as it would have it.
#include <event2/event.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "proxy/service_manager.hpp"

using crane::proxy::ServiceManager;

namespace {

/// systemd's end. An abstract name, as in containers, or a path.
class Manager {
  public:
    explicit Manager(bool abstract) {
        const std::string name = "crane-unit-notify-" + std::to_string(getpid());
        address_.sun_family = AF_UNIX;
        const std::string path = abstract ? std::string(1, '\0') + name : "/tmp/" + name;
        memcpy(address_.sun_path, path.data(), path.size());
        if (!abstract) unlink(path.c_str());
        fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
        REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address_), length) == 0);
        name_ = abstract ? "@" + name : path;
        setenv("NOTIFY_SOCKET", name_.c_str(), 1);
    }
    const std::string& name() const { return name_; }
    ~Manager() {
        close(fd_);
        if (address_.sun_path[0]) unlink(address_.sun_path);
    }
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;

    /// "" when nothing came.
    std::string heard() const {
        char words[512];
        const ssize_t bytes = recv(fd_, words, sizeof words, 0);
        return bytes < 0 ? "" : std::string(words, static_cast<size_t>(bytes));
    }

  private:
    int fd_ = -1;
    sockaddr_un address_{};
    std::string name_;
};

struct Base {
    event_base* base = event_base_new();
    ~Base() { event_base_free(base); }
};

}  // namespace

TEST_CASE("service manager: is told of the start, of what changes, and of the end", "[proxy]") {
    Base loop;
    const Manager manager(GENERATE(false, true));
    setenv("WATCHDOG_USEC", "20000", 1);
    setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
    std::string doing = "backup\nREADY=0";
    ServiceManager service(loop.base, [&] { return doing; });
    CHECK(getenv("NOTIFY_SOCKET") == nullptr);
    CHECK(getenv("WATCHDOG_USEC") == nullptr);
    CHECK(manager.heard().empty());
    service.ready();
    CHECK(manager.heard() == "READY=1\nSTATUS=backup?READY=0");
    event_base_loop(loop.base, EVLOOP_ONCE);
    CHECK(manager.heard() == "WATCHDOG=1");
    doing = "primary";
    event_base_loop(loop.base, EVLOOP_ONCE);
    CHECK(manager.heard() == "WATCHDOG=1\nSTATUS=primary");
    service.stopping("SIGTERM");
    CHECK(manager.heard() == "STOPPING=1\nSTATUS=stopping: SIGTERM");
}

TEST_CASE("service manager: what holds the loop up, and goes on, is given its time", "[proxy]") {
    Base loop;
    const Manager manager(true);
    setenv("WATCHDOG_USEC", "20000", 1);
    setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
    {
        ServiceManager service(loop.base, [] { return "starting"; });
        service.working();
        CHECK(manager.heard() == "EXTEND_TIMEOUT_USEC=900000000");
        service.working();  // in the same second
        CHECK(manager.heard().empty());
    }
    setenv("NOTIFY_SOCKET", manager.name().c_str(), 1);
    setenv("WATCHDOG_USEC", "20000", 1);
    setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
    ServiceManager service(loop.base, [] { return "backup"; });
    service.ready();
    manager.heard();
    service.working();
    CHECK(manager.heard() == "WATCHDOG=1");
}

TEST_CASE("service manager: another process's watchdog is not fed", "[proxy]") {
    Base loop;
    const Manager manager(true);
    setenv("WATCHDOG_USEC", "20000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    std::string doing = "backup";
    ServiceManager service(loop.base, [&] { return doing; });
    service.ready();
    manager.heard();
    doing = "primary";
    event_base_loop(loop.base, EVLOOP_ONCE);
    CHECK(manager.heard() == "STATUS=primary");
}

TEST_CASE("service manager: nobody is told where nobody asks", "[proxy]") {
    Base loop;
    unsetenv("NOTIFY_SOCKET");
    const char* bad = GENERATE("", "relative");
    if (*bad) setenv("NOTIFY_SOCKET", bad, 1);
    ServiceManager service(loop.base, []() -> std::string { throw std::runtime_error("asked"); });
    service.ready();
    service.stopping("SIGTERM");
    CHECK(event_base_get_num_events(loop.base, EVENT_BASE_COUNT_ADDED) == 0);
}
