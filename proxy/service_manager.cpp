#include "proxy/service_manager.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "proxy/plain_text.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLookUs = 1'000'000;
constexpr uint64_t kWorkingNs = 1'000'000'000;
/// For what follows at the start, from when it was last said: as the unit has it.
constexpr uint64_t kLongerUs = 900'000'000;

/// Whoever is started from here is not to speak in this process's name.
std::string take_variable(const char* name) {
    const char* value = getenv(name);
    std::string out = value ? value : "";
    unsetenv(name);
    return out;
}

std::string as_address(std::string path) {
    if (!path.empty() && path.front() == '@') path.front() = '\0';
    const bool usable = !path.empty() && (path.front() == '/' || path.front() == '\0') &&
                        path.size() < sizeof(sockaddr_un::sun_path);
    if (!path.empty() && !usable) spdlog::warn("NOTIFY_SOCKET is no address of a socket; nobody is told");
    return usable ? path : "";
}

uint64_t watchdog_us() {
    const std::string whom = take_variable("WATCHDOG_PID");
    const std::string interval = take_variable("WATCHDOG_USEC");
    if (!whom.empty() && strtol(whom.c_str(), nullptr, 10) != getpid()) return 0;
    return strtoull(interval.c_str(), nullptr, 10);
}

}  // namespace

ServiceManager::ServiceManager(event_base* base, std::function<std::string()> doing)
    : path_(as_address(take_variable("NOTIFY_SOCKET"))),
      watchdog_us_(watchdog_us()),
      doing_(std::move(doing)) {
    if (path_.empty()) return;
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    timer_ = event_new(
        base, -1, EV_PERSIST, [](int, short, void* self) { static_cast<ServiceManager*>(self)->tick(); },
        this);
}

ServiceManager::~ServiceManager() {
    if (timer_) event_free(timer_);
    if (fd_ >= 0) close(fd_);
}

void ServiceManager::ready() {
    if (!timer_) return;
    ready_ = true;
    told_ = one_line(doing_());
    send("READY=1\nSTATUS=" + told_);
    const uint64_t every_us = watchdog_us_ == 0 ? kLookUs : std::min(kLookUs, watchdog_us_ / 2);
    const timeval every{static_cast<time_t>(every_us / 1'000'000),
                        static_cast<suseconds_t>(every_us % 1'000'000)};
    event_add(timer_, &every);
}

void ServiceManager::stopping(const std::string& why) {
    told_ = one_line("stopping: " + why);
    send("STOPPING=1\nSTATUS=" + told_);
}

void ServiceManager::working() {
    const uint64_t now_ns = monotonic_ns();
    if (worked_ns_ != 0 && now_ns - worked_ns_ < kWorkingNs) return;
    worked_ns_ = now_ns;
    if (!ready_) {
        send("EXTEND_TIMEOUT_USEC=" + std::to_string(kLongerUs));
    } else if (watchdog_us_ != 0) {
        send("WATCHDOG=1");
    }
}

void ServiceManager::tick() {
    std::string words = watchdog_us_ == 0 ? "" : "WATCHDOG=1";
    const std::string doing = one_line(doing_());
    if (doing != told_) words += (words.empty() ? "STATUS=" : "\nSTATUS=") + doing;
    told_ = doing;
    if (!words.empty()) send(words);
}

/// A manager that does not take it now is asked again at the next tick, or not at all: craned waits for
/// nobody.
void ServiceManager::send(const std::string& words) const {
    if (fd_ < 0) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path_.data(), path_.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
    if (sendto(fd_, words.data(), words.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
               length) < 0)
        spdlog::debug("the service manager was not told: {}", strerror(errno));
}

}  // namespace crane::proxy
