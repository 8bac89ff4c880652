#include "proxy/domain_runner.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/clock.hpp"
#include "timebubble/inherited.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kHandshakeNs = 10ULL * 1'000'000'000;
constexpr timeval kPoll{0, 10'000};

checkpoint::DomainSpec domain_spec(const Config& config, const Segment& segment) {
    checkpoint::DomainSpec spec;
    spec.name = "crane-" + config.cluster_id + "-" + std::to_string(config.replica_id);
    spec.state_dir = config.state_dir;
    spec.argv = config.server;
    spec.cwd = config.cwd;
    spec.environment = config.environment;
    // Its children cannot be kept from closing what they inherit, and then do without the shim.
    if (config.mode == Mode::kProxy) spec.environment.emplace_back("CRANE_UNSCHEDULED=1");
    spec.shim_path = config.shim;
    spec.init_path = config.init;
    spec.isolation = config.container ? checkpoint::Isolation::lxc : checkpoint::Isolation::none;
    spec.hostname = config.hostname;
    spec.inherited = {{segment.inherited_transport(), timebubble::kTransportFd},
                      {segment.inherited_doorbell(), timebubble::kDoorbellFd}};
    spec.user = config.user;
    spec.group = config.group;
    spec.confinement = config.confinement;
    spec.hidden = config.hide;
    spec.shown = config.show;
    if (config.tls.configured()) spec.hidden.push_back(config.tls.key);
    spec.disk_quota_bytes = config.disk_quota_bytes;
    spec.host_network = config.mode == Mode::kProxy;
    if (config.pin_cpu >= 0) spec.first_cpu = static_cast<uint32_t>(config.pin_cpu);
    return spec;
}

timebubble::DomainSettings domain_settings(const Config& config) {
    timebubble::DomainSettings out{};
    out.policy = config.policy;
    out.quantum = config.quantum;
    out.bubbles_enabled = config.bubbles;
    out.schedule = config.mode != Mode::kProxy;
    out.virtual_cpus = config.cpus;
    out.pinned_cpu_plus1 = static_cast<uint32_t>(config.pin_cpu + 1);
    out.virtual_memory_bytes = config.memory_bytes;
    out.disturb_seed = config.disturb_seed;
    strncpy(out.hostname, config.hostname.c_str(), sizeof(out.hostname) - 1);
    return out;
}

}  // namespace

std::string wait_status_text(int32_t status) {
    if (WIFSIGNALED(status)) {
        return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
               strsignal(WTERMSIG(status)) + ")";
    }
    return "exited with status " + std::to_string(WEXITSTATUS(status));
}

DomainRunner::DomainRunner(event_base* base, const Config& config, std::function<void()> woken,
                           Changed changed)
    : base_(base),
      config_(config),
      woken_(std::move(woken)),
      changed_(std::move(changed)),
      segment_(config.state_dir, config.cluster_id, config.replica_id, !config.container),
      link_(segment_.view()),
      host_(domain_spec(config, segment_)) {
    link_.prepare(domain_settings(config));
    doorbell_event_ =
        event_new(base_, segment_.doorbell_fd(), EV_READ | EV_PERSIST, &DomainRunner::on_doorbell, this);
    poll_event_ = event_new(base_, -1, EV_PERSIST, &DomainRunner::on_poll, this);
    event_add(doorbell_event_, nullptr);
}

DomainRunner::~DomainRunner() {
    kill();
    event_free(doorbell_event_);
    event_free(poll_event_);
    if (exit_event_) event_free(exit_event_);
}

void DomainRunner::start() {
    started_ns_ = monotonic_ns();
    try {
        host_.start();
    } catch (const std::exception& error) {
        gone_ = true;
        enter(DomainState::kRefused, error.what());
        return;
    }
    spdlog::info("the server {} was started, host pid of its container's init {}", config_.server[0],
                 host_.init_pid());
    for (const std::string& one : host_.weaknesses()) spdlog::warn("confinement: {}", one);
    exit_event_ = event_new(base_, host_.exit_fd(), EV_READ, &DomainRunner::on_exit, this);
    event_add(exit_event_, nullptr);
    event_add(poll_event_, &kPoll);
}

void DomainRunner::kill() {
    if (exit_event_) event_del(exit_event_);
    event_del(poll_event_);
    if (!host_.kill_all())
        spdlog::error("processes of the domain could not be killed; look for uninterruptible I/O");
    gone_ = true;
}

void DomainRunner::main_exited(int32_t status) {
    main_status_ = status;
    enter(DomainState::kExited, "the server " + wait_status_text(status));
}

void DomainRunner::on_doorbell(int fd, short, void* self) {
    // Once: a domain that never stops ringing comes again in the next turn of the loop.
    char bells[4096];
    if (read(fd, bells, sizeof(bells)) < 0) return;
    auto* runner = static_cast<DomainRunner*>(self);
    runner->woken_();
}

void DomainRunner::check_damage() {
    const auto attachment = link_.status().attachment.load(std::memory_order_acquire);
    if (state_ != DomainState::kAttached || gone_ ||
        attachment <= uint32_t(timebubble::Attachment::kAttached))
        return;
    const std::string reason = link_.refusal();
    kill();
    if (attachment == uint32_t(timebubble::Attachment::kUnfit)) {
        enter(DomainState::kRefused, reason);
        return;
    }
    enter(DomainState::kLost, "the server is damaged: " + reason + "; its other processes are ended");
}

void DomainRunner::on_poll(int, short, void* self) {
    static_cast<DomainRunner*>(self)->poll_attachment();
}
void DomainRunner::on_exit(int, short, void* self) {
    static_cast<DomainRunner*>(self)->domain_gone();
}

void DomainRunner::poll_attachment() {
    using timebubble::Attachment;
    const auto& status = link_.status();
    const auto attachment = static_cast<Attachment>(status.attachment.load(std::memory_order_acquire));
    if (attachment == Attachment::kAttached) {
        event_del(poll_event_);
        enter(DomainState::kAttached, "");
    } else if (attachment != Attachment::kNone) {
        event_del(poll_event_);
        enter(DomainState::kRefused, link_.refusal());
    } else if (monotonic_ns() - started_ns_ > kHandshakeNs) {
        event_del(poll_event_);
        enter(
            DomainState::kRefused,
            "the server did not load the shim within 10 s: is it a static, Go or setuid program, or does its "
            "launcher clear LD_PRELOAD? `crane check -- " +
                config_.server[0] + "` tells; run the program itself instead of its launcher");
    }
}

void DomainRunner::domain_gone() {
    woken_();  // drains what it has still said, so that its own exit record is seen first
    gone_ = true;
    event_del(poll_event_);
    const auto report = host_.poll_exit();
    const std::string how = report ? report->text : "ended";
    if (state_ == DomainState::kExited) {
        changed_();
        return;
    }
    if (state_ == DomainState::kStarting || state_ == DomainState::kRefused) {
        if (state_ == DomainState::kStarting) poll_attachment();
        if (state_ == DomainState::kStarting) {
            enter(DomainState::kRefused, "the server ended before the shim had attached: " + how +
                                             "; look at " + config_.state_dir + "/stderr");
        }
        if (state_ != DomainState::kAttached) return;
    }
    enter(DomainState::kLost, "the server's processes are gone without having ended by themselves: " + how);
}

void DomainRunner::enter(DomainState state, std::string message) {
    if (state == state_ && message == message_) return;
    state_ = state;
    message_ = std::move(message);
    changed_();
}

}  // namespace crane::proxy
