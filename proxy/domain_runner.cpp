#include "proxy/domain_runner.hpp"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
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
/// Of ~DomainRunner: longer than the host takes to end all that can be ended.
constexpr int kEndPatienceMs = 15'000;

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
    spec.isolation = config.container ? checkpoint::Isolation::kLxc : checkpoint::Isolation::kNone;
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
      host_(std::make_shared<checkpoint::DomainHost>(domain_spec(config, segment_))),
      worker_(base, "crane-domain") {
    link_.prepare(domain_settings(config));
    doorbell_event_ =
        event_new(base_, segment_.doorbell_fd(), EV_READ | EV_PERSIST, &DomainRunner::on_doorbell, this);
    poll_event_ = event_new(base_, -1, EV_PERSIST, &DomainRunner::on_poll, this);
    event_add(doorbell_event_, nullptr);
}

DomainRunner::~DomainRunner() {
    kill();
    // Its thread has to live as long as what it started (see DomainHost), and the next domain needs the
    // place.
    if (!worker_.finish(kEndPatienceMs))
        spdlog::error("the domain is not ended yet; look for uninterruptible I/O");
    event_free(doorbell_event_);
    event_free(poll_event_);
    forget_exit_fd();
}

/// What came of starting the domain.
struct DomainRunner::Started {
    std::string error;  ///< empty: it runs
    pid_t init_pid = 0;
    int exit_fd = -1;
    std::vector<std::string> weaknesses;
};

void DomainRunner::start() {
    auto result = std::make_shared<Started>();
    const auto job = [host = host_, result] {
        try {
            host->start();
            result->init_pid = host->init_pid();
            result->weaknesses = host->weaknesses();
            result->exit_fd = fcntl(host->exit_fd(), F_DUPFD_CLOEXEC, 0);
            if (result->exit_fd < 0)
                result->error = std::string("its end could not be watched: ") + strerror(errno);
        } catch (const std::exception& error) {
            result->error = error.what();
        }
    };
    worker_.post(job, [this, result] { started(*result); });
}

void DomainRunner::started(const Started& result) {
    exit_fd_ = result.exit_fd;
    if (killed_) return;  // meanwhile; the worker is at it
    if (!result.error.empty()) {
        gone_ = true;
        enter(DomainState::kRefused, result.error);
        return;
    }
    init_pid_ = result.init_pid;
    started_ns_ = monotonic_ns();
    spdlog::info("the server {} was started, host pid of its container's init {}", config_.server[0],
                 init_pid_);
    weaknesses_ = result.weaknesses;
    for (const std::string& one : weaknesses_) spdlog::warn("confinement: {}", one);
    exit_event_ = event_new(base_, exit_fd_, EV_READ, &DomainRunner::on_exit, this);
    event_add(exit_event_, nullptr);
    event_add(poll_event_, &kPoll);
}

void DomainRunner::forget_exit_fd() {
    if (exit_event_) event_free(exit_event_);
    exit_event_ = nullptr;
    if (exit_fd_ >= 0) close(exit_fd_);
    exit_fd_ = -1;
}

void DomainRunner::kill() {
    if (killed_) return;
    killed_ = gone_ = true;
    init_pid_ = 0;
    if (exit_event_) event_del(exit_event_);
    event_del(poll_event_);
    const auto job = [host = host_] {
        if (!host->kill_all())
            spdlog::error("processes of the domain could not be killed; look for uninterruptible I/O");
    };
    worker_.post(job, nullptr);
}

void DomainRunner::give_up(const std::string& why) {
    kill();
    enter(DomainState::kLost, why);
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
void DomainRunner::on_exit(int, short, void* argument) {
    auto* self = static_cast<DomainRunner*>(argument);
    auto report = std::make_shared<std::optional<checkpoint::ExitReport>>();
    const auto job = [host = self->host_, report] { *report = host->poll_exit(); };
    self->worker_.post(job, [self, report] { self->domain_gone(*report); });
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

void DomainRunner::domain_gone(const std::optional<checkpoint::ExitReport>& report) {
    if (killed_) return;
    woken_();  // drains what it has still said, so that its own exit record is seen first
    if (killed_) return;
    gone_ = true;
    init_pid_ = 0;
    event_del(poll_event_);
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
