// The life of the server domain on this replica: segment, start, handshake, end.
//
// It tells apart three ends: the server refuses to run under the shim (kRefused), it has ended by its own
// deed (every replica reaches the same end), and it was taken away (killed, crashed container): only the last
// is a failure of this replica, and only then is a new domain started and the log replayed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/domain_host.hpp"
#include "proxy/config.hpp"
#include "proxy/domain_link.hpp"
#include "proxy/segment.hpp"

struct event;
struct event_base;

namespace crane::proxy {

enum class DomainState { kStarting, kAttached, kRefused, kExited, kLost };

class DomainRunner {
  public:
    using Changed = std::function<void()>;

    /// `woken`: the doorbell rang. `changed`: state() is another.
    DomainRunner(event_base* base, const Config& config, std::function<void()> woken, Changed changed);
    ~DomainRunner();
    DomainRunner(const DomainRunner&) = delete;
    DomainRunner& operator=(const DomainRunner&) = delete;

    /// Starts the server; a failure to do so is a state (kRefused), not an exception.
    void start();
    /// Ends the domain at once. The log holds all that matters.
    void kill();
    /// The shim gave up, because the domain was hurt from outside: ends what is left of it.
    void check_damage();
    /// The output said that the main process ends by its own deed.
    void main_exited(int32_t status);

    DomainState state() const { return state_; }
    const std::string& message() const { return message_; }
    DomainLink& link() { return link_; }
    const DomainLink& link() const { return link_; }
    void trim_output() const { host_.trim_output(); }
    const std::vector<std::string>& weaknesses() const { return host_.weaknesses(); }
    pid_t init_pid() const { return host_.init_pid(); }
    /// The process is gone: what is in the output ring is all there will be.
    bool gone() const { return gone_; }

  private:
    static void on_doorbell(int fd, short what, void* self);
    static void on_poll(int fd, short what, void* self);
    static void on_exit(int fd, short what, void* self);
    void poll_attachment();
    void domain_gone();
    void enter(DomainState state, std::string message);

    event_base* base_;
    const Config& config_;
    std::function<void()> woken_;
    Changed changed_;
    Segment segment_;
    DomainLink link_;
    checkpoint::DomainHost host_;
    DomainState state_ = DomainState::kStarting;
    std::string message_;
    uint64_t started_ns_ = 0;
    bool gone_ = false;
    std::optional<int32_t> main_status_;
    event* doorbell_event_ = nullptr;
    event* poll_event_ = nullptr;
    event* exit_event_ = nullptr;
};

/// "exited with status 3", "was killed by signal 9 (Killed)".
std::string wait_status_text(int32_t status);

}  // namespace crane::proxy
