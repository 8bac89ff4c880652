// What systemd is told of a unit with Type=notify: that craned is up, what it is doing, that its loop turns,
// and that it ends. By the datagrams of sd_notify(3); where nobody asks for them (NOTIFY_SOCKET) nothing is
// done.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

struct event;
struct event_base;

namespace crane::proxy {

class ServiceManager {
  public:
    /// `doing`: one line for `systemctl status`; asked for once a second, and sent when it is another one.
    ServiceManager(event_base* base, std::function<std::string()> doing);
    ~ServiceManager();
    ServiceManager(const ServiceManager&) = delete;
    ServiceManager& operator=(const ServiceManager&) = delete;

    /// Up: the control socket answers. From now on a loop that does not turn is noticed (WatchdogSec=).
    void ready();
    void stopping(const std::string& why);
    /// The loop is held up, and goes on: neither the start nor the loop is given up for it. Called again and
    /// again meanwhile.
    void working();

  private:
    void tick();
    void send(const std::string& words) const;

    std::string path_;  ///< as an address: an abstract name begins with a zero byte
    int fd_ = -1;
    uint64_t watchdog_us_ = 0;  ///< 0: nobody watches
    std::function<std::string()> doing_;
    std::string told_;
    event* timer_ = nullptr;
    bool ready_ = false;
    uint64_t worked_ns_ = 0;  ///< when it was last said that it is at work
};

}  // namespace crane::proxy
