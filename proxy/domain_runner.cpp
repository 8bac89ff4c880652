#include "proxy/domain_runner.hpp"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "base/clock.hpp"
#include "base/reserved_descriptors.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/domain_files.hpp"
#include "checkpoint/fail_point.hpp"
#include "proxy/call_dispatch.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kHandshakeNs = 10ULL * 1'000'000'000;
constexpr timeval kPoll{0, 10'000};
constexpr char kProgramAdvice[] =
    " on this host since the server was started that this log is of, so it is not run here. Put back what "
    "was "
    "there, and it goes on by itself; or, where the others have the new files too, have them all begin anew "
    "(crane restart); or, where none of them runs, start them with --accept-changes: the log is then "
    "replayed with "
    "what is there now";
constexpr char kImageAdvice[] = "; it goes on by itself when it is there";
/// In the state directory: the base image of the server that the log begins with, when that is not the
/// configured one.
constexpr char kFirstImageFile[] = "/base-image";
/// Of ~DomainRunner: longer than the host takes to end all that can be ended.
constexpr int kEndPatienceMs = 15'000;

checkpoint::DomainSpec domain_spec(const Config& config) {
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
    spec.own_addresses = config.own_addresses;
    spec.machine = ShownMachine::of(config.cpus, config.memory_bytes);
    spec.user = config.user;
    spec.group = config.group;
    spec.confinement = config.confinement;
    spec.hidden = config.hide;
    spec.shown = config.show;
    if (config.tls.configured()) spec.hidden.push_back(config.tls.key);
    spec.disk_quota = config.disk_quota;
    spec.host_network = config.mode == Mode::kProxy;
    if (config.pin_cpu >= 0) spec.first_cpu = static_cast<uint32_t>(config.pin_cpu);
    return spec;
}

std::string first_image(const Config& config) {
    std::ifstream file(config.state_dir + kFirstImageFile);
    std::string text;
    if (config.image_is_accepted() || !std::getline(file, text)) return config.image;
    return checkpoint::image_sum_in(text).value_or("");
}

std::string path_of_image(const Config& config, const std::string& sum) {
    return sum.empty() ? "" : checkpoint::ImageStore(config.image_store).path_of(sum);
}

/// Why the base image cannot be had, in words; "": it can, or none is needed.
std::string why_missing(const checkpoint::DomainSpec& spec, checkpoint::Inventory& inventory) {
    if (spec.image.empty()) return "";
    try {
        inventory.check_image(spec);
        return "";
    } catch (const std::exception& error) {
        return error.what();
    }
}

timebubble::DomainSettings domain_settings(const Config& config, uint64_t files_since_ns) {
    timebubble::DomainSettings out{};
    out.policy = config.policy;
    out.quantum = config.quantum;
    out.bubbles_enabled = config.bubbles;
    out.schedule = config.mode != Mode::kProxy;
    out.virtual_cpus = config.cpus;
    out.pinned_cpu_plus1 = static_cast<uint32_t>(config.pin_cpu + 1);
    out.virtual_memory_bytes = config.memory_bytes;
    out.disturb_seed = config.disturb_seed;
    out.files_since_ns = files_since_ns;
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

DomainRunner::DomainRunner(event_base* base, const Config& config, LossHistory& losses,
                           std::function<void()> woken, Changed changed)
    : base_(base),
      config_(config),
      losses_(losses),
      woken_(std::move(woken)),
      changed_(std::move(changed)),
      segment_(config.state_dir, config.cluster_id, config.replica_id, !config.container),
      host_(std::make_shared<checkpoint::DomainHost>(domain_spec(config))),
      worker_(base, "crane-domain"),
      inventory_(std::make_shared<checkpoint::Inventory>()) {
    make_link(0);
    set_image(first_image(config));
    poll_event_ = event_new(base_, -1, EV_PERSIST, &DomainRunner::on_poll, this);
}

void DomainRunner::make_link(uint64_t files_since_ns) {
    link_ = std::make_unique<DomainLink>(segment_.view());
    link_->prepare(domain_settings(config_, files_since_ns), config_.egress_policy(), config_.backstop,
                   own_addresses_of(config_.own_addresses));
    doorbell_event_ =
        event_new(base_, segment_.doorbell_fd(), EV_READ | EV_PERSIST, &DomainRunner::on_doorbell, this);
    event_add(doorbell_event_, nullptr);
}

/// Throws as the segment does.
void DomainRunner::replace_link() {
    // In a container the times of the files are settled by now.
    const uint64_t files_since_ns = config_.container ? 0 : files_since_ns_;
    event_free(std::exchange(doorbell_event_, nullptr));
    segment_.renew();
    damaged_ = false;
    make_link(files_since_ns);
}

DomainRunner::~DomainRunner() {
    kill();
    // Its thread has to live as long as what it started (see DomainHost), and the next domain needs the
    // place.
    if (!worker_.finish(kEndPatienceMs))
        spdlog::error("the domain is not ended yet; look for uninterruptible I/O");
    if (doorbell_event_) event_free(doorbell_event_);
    event_free(poll_event_);
    forget_exit_fd();
}

/// What came of starting the domain.
struct DomainRunner::Started {
    std::string error;  ///< empty: it runs
    pid_t init_pid = 0;
    int exit_fd = -1;
    bool refused = false;  ///< the image is of no use
    std::string program;
    std::string difference;  ///< of that to what the image is of
    std::string missing;     ///< the base image, in words; "": it is there
    std::vector<std::string> weaknesses;
};

void DomainRunner::start() {
    launch([](checkpoint::DomainHost& host) { host.start(checkpoint::Files::kFresh); });
}

void DomainRunner::restore_image(const Image& image) {
    // What the server has changed and nobody has looked at is as changed from now on.
    timebubble::DomainSettings settings = domain_settings(config_, checkpoint::file_clock_ns());
    DomainWords words = image.words;
    words.files_since_ns = settings.files_since_ns;
    link_->prepare(settings, config_.egress_policy(), config_.backstop);
    link_->prepare_restored(words, image.mark);
    const auto bring = [image](checkpoint::DomainHost& host) {
        const checkpoint::ImageReport report = host.restore_packed(image.archive, image.image);
        spdlog::info("the server was restored: its files in {} ms, its processes in {} ms",
                     report.files_us / 1000, report.wall_us / 1000);
    };
    launch(bring, &image.program);
}

void DomainRunner::take_image(std::function<ImagePlace()> place,
                              std::function<void(const std::string& error, Pack pack)> done) {
    struct Outcome {
        std::string error;
        bool lost = false;
        checkpoint::ImageReport report;
        Pack pack;
    };
    auto outcome = std::make_shared<Outcome>();
    const uint64_t since_ns = files_since_ns_;
    const auto job = [host = host_, place = std::move(place), since_ns, outcome,
                      watched = link_->watched_paths()] {
        try {
            const ImagePlace files = place();
            const std::shared_ptr<checkpoint::TakenImage> image =
                host->take_whole_image(since_ns, files.check, watched);
            outcome->report = image->report();
            outcome->pack = [image, files] { image->pack(files.archive, files.image, files.check); };
        } catch (const checkpoint::CriuError& problem) {
            outcome->error = problem.what();
            outcome->lost = problem.server_lost;
        } catch (const std::exception& problem) {
            outcome->error = problem.what();
        }
    };
    worker_.post(job, [this, outcome, launch = launches_, done = std::move(done)] {
        if (outcome->error.empty())
            spdlog::info(
                "an image of the server was taken; it stood still for {} ms, {} ms of them for its files",
                outcome->report.frozen_us / 1000, outcome->report.files_us / 1000);
        done(outcome->error, std::move(outcome->pack));
        if (outcome->lost && launch == launches_ && !killed_)
            give_up("an image of the server was not finished, and it stands still: " + outcome->error);
    });
}

void DomainRunner::restore(const std::string& archive) {
    auto error = std::make_shared<std::string>();
    const auto job = [host = host_, archive, error] {
        try {
            host->unpack_files(archive);
        } catch (const std::exception& problem) {
            *error = problem.what();
        }
    };
    worker_.post(job, [this, error] {
        if (!killed_ && !error->empty()) give_up(*error);
    });
}

/// Between two servers, in the worker: what the last one left is settled, and kept if it is to be.
struct DomainRunner::Interval {
    bool ended = false;
    std::string error;  ///< the next server cannot begin
    bool kept = false;
    std::string keep_error;

    void work(checkpoint::DomainHost& host, uint64_t files_since_ns, const NextStart& next) {
        ended = host.kill_all(checkpoint::Files::kKept);
        if (!ended) return;
        try {
            if (files_since_ns != 0) host.settle_times(files_since_ns, next.time_ns);
        } catch (const std::exception& problem) {
            error = problem.what();
            return;
        }
        checkpoint::fail_point("restart.settled");
        if (!next.keep) return;
        kept = true;
        try {
            next.keep(host);
            checkpoint::fail_point("restart.kept");
        } catch (const std::exception& problem) {
            keep_error = problem.what();
        }
    }
};

void DomainRunner::start_next(NextStart next) {
    forget_exit_fd();
    gone_ = says_more_ = false;
    event_del(poll_event_);
    init_pid_ = 0;
    ++launches_;
    enter(DomainState::kStarting, "");
    auto interval = std::make_shared<Interval>();
    const uint64_t since_ns = config_.container ? files_since_ns_ : 0;
    const auto job = [host = host_, interval, since_ns, next] { interval->work(*host, since_ns, next); };
    worker_.post(job, [this, interval, next = std::move(next)] {
        if (killed_) return;
        if (!interval->ended) {
            enter(DomainState::kRefused,
                  "processes of the server that ended could not be killed; look for "
                  "uninterruptible I/O");
            return;
        }
        if (interval->kept) next.kept(interval->keep_error);
        if (!interval->error.empty()) {
            give_up(interval->error);
            return;
        }
        try {
            replace_link();
        } catch (const std::exception& error) {
            give_up(error.what());  // and from the log, when there is room
            return;
        }
        if (next.unstarted) {
            gone_ = true;
            enter(DomainState::kRefused, "a majority could not start it, and it was given up");
            return;
        }
        launch([](checkpoint::DomainHost& host) { host.start(checkpoint::Files::kKept); });
    });
}

/// `image_program`: what is brought comes out of an image, and needs no handshake.
void DomainRunner::launch(const Bring& bring, const std::string* image_program) {
    const bool attached = image_program != nullptr;
    const std::string wanted = attached ? *image_program : "";
    auto result = std::make_shared<Started>();
    const std::vector<checkpoint::DomainSpec::Inherited> inherited = {
        {segment_.inherited_transport(), kTransportPlace}, {segment_.inherited_doorbell(), kDoorbellPlace}};
    const auto job = [host = host_, result, inherited, bring, wanted, inventory = inventory_,
                      scheduled = config_.mode != Mode::kProxy, backstop = config_.backstop] {
        try {
            // What a replica can do must not differ from the others' unsaid.
            if (scheduled && backstop && !kernel_dispatches_calls())
                throw std::runtime_error(kNoCallDispatch);
            result->missing = why_missing(host->spec(), *inventory);
            if (!result->missing.empty()) return;
            if (scheduled) result->program = inventory->take(host->spec());
            // An image brings its own shim.
            if (!wanted.empty())
                result->difference = checkpoint::inventory_difference(wanted, result->program, false);
            if (!result->difference.empty()) return;
            host->hand_down(inherited);
            bring(*host);
            result->init_pid = host->init_pid();
            result->weaknesses = host->weaknesses();
            result->exit_fd = fcntl(host->exit_fd(), F_DUPFD_CLOEXEC, 0);
            if (result->exit_fd < 0)
                result->error = std::string("its end could not be watched: ") + strerror(errno);
        } catch (const checkpoint::CriuError& error) {
            result->error = error.what();
            result->refused = true;
        } catch (const std::exception& error) {
            result->error = error.what();
        }
    };
    worker_.post(job, [this, result, attached] { started(*result, attached); });
}

void DomainRunner::started(const Started& result, bool attached) {
    exit_fd_ = result.exit_fd;
    if (killed_) return;  // meanwhile; the worker is at it
    program_ = result.program;
    if (!result.missing.empty()) {
        program_refused_ = true;
        kill();
        enter(DomainState::kRefused, result.missing + kImageAdvice);
        return;
    }
    if (!result.difference.empty()) {
        refuse_program(result.difference);
        return;
    }
    if (!result.error.empty() && attached) {
        image_refused_ = result.refused;
        give_up("the server could not be restored: " + result.error);
        return;
    }
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
    if (attached) {
        enter(DomainState::kAttached, "");
    } else {
        event_add(poll_event_, &kPoll);
    }
}

void DomainRunner::set_image(const std::string& sum) {
    image_ = sum;
    const std::string path = path_of_image(config_, sum);
    worker_.post([host = host_, path, sum] { host->set_image(path, sum); }, nullptr);
}

void DomainRunner::set_first_image(const std::string& sum) {
    const std::string path = config_.state_dir + kFirstImageFile;
    worker_.post(
        [path, sum] {
            try {
                checkpoint::write_synced(path,
                                         sum.empty() ? "none\n" : checkpoint::kImagePrefix + sum + "\n");
            } catch (const std::exception& error) {
                spdlog::error("which base image the log begins with cannot be kept: {}", error.what());
            }
        },
        nullptr);
    set_image(sum);
}

void DomainRunner::look_at_program(const std::string& image, std::function<void()> done) {
    auto found = std::make_shared<std::string>();
    auto trouble = std::make_shared<std::string>();
    const auto job = [host = host_, inventory = inventory_, found, trouble, image,
                      path = path_of_image(config_, image)] {
        try {
            checkpoint::DomainSpec spec = host->spec();
            spec.image = path;
            spec.image_sum = image;
            *found = inventory->take(spec);
        } catch (const std::exception& error) {
            *trouble = error.what();
        }
    };
    worker_.post(job, [this, found, trouble, done = std::move(done)] {
        // It is asked again and again.
        if (!trouble->empty() && *trouble != program_trouble_)
            spdlog::warn("what the server is made of cannot be told: {}", *trouble);
        program_trouble_ = *trouble;
        program_ = *found;
        done();
    });
}

void DomainRunner::refuse_program(const std::string& difference) {
    program_refused_ = true;
    kill();
    enter(DomainState::kRefused, difference + kProgramAdvice);
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
    says_more_ = false;
    init_pid_ = 0;
    if (exit_event_) event_del(exit_event_);
    event_del(poll_event_);
    end_processes(checkpoint::Files::kFresh);
}

void DomainRunner::end_processes(checkpoint::Files files) {
    const auto job = [host = host_, files] {
        if (!host->kill_all(files))
            spdlog::error("processes of the domain could not be killed; look for uninterruptible I/O");
    };
    worker_.post(job, nullptr);
}

void DomainRunner::give_up(const std::string& why) {
    kill();
    enter(DomainState::kLost, why);
}

void DomainRunner::main_exited(int32_t status) {
    end_status_ = status;
    enter(DomainState::kExited, "the server " + wait_status_text(status));
}

void DomainRunner::end_unstarted() {
    constexpr int kCannotBeRun = 127;
    event_del(poll_event_);
    end_status_ = W_EXITCODE(kCannotBeRun, 0);
    enter(DomainState::kExited, "the server could not be started: " + message_);
}

void DomainRunner::end_where_it_stands() {
    end_status_ = W_EXITCODE(0, SIGKILL);
    enter(DomainState::kExited, "the server stood at one place, and was ended there by decision");
}

void DomainRunner::on_doorbell(int fd, short, void* self) {
    // Once: a domain that never stops ringing comes again in the next turn of the loop.
    char bells[4096];
    if (read(fd, bells, sizeof(bells)) < 0) return;
    auto* runner = static_cast<DomainRunner*>(self);
    runner->woken_();
}

void DomainRunner::lose_damaged(uint64_t admitted, const std::string& why) {
    const bool own_deed = config_.mode == Mode::kFull && state_ == DomainState::kAttached &&
                          losses_.lost({admitted, 0, LossHistory::kDamage});
    if (!own_deed) {
        give_up(why + "; the domain is killed and started anew");
        return;
    }
    damaged_ = true;
    end_processes(checkpoint::Files::kKept);
    end_status_ = W_EXITCODE(0, SIGKILL);
    enter(DomainState::kExited, why + ", each time it comes there: it is ended there");
}

void DomainRunner::check_damage(uint64_t admitted) {
    const auto attachment = link_->status().attachment.load(std::memory_order_acquire);
    if (state_ != DomainState::kAttached || gone_ ||
        attachment <= uint32_t(timebubble::Attachment::kAttached))
        return;
    const std::string reason = link_->refusal();
    if (attachment == uint32_t(timebubble::Attachment::kUnfit)) {
        kill();
        enter(DomainState::kRefused, reason);
        return;
    }
    if (attachment == uint32_t(timebubble::Attachment::kStruck)) {
        give_up(reason + "; the domain is killed and started anew");
        return;
    }
    lose_damaged(admitted, "the server is damaged: " + reason);
}

void DomainRunner::on_poll(int, short, void* argument) {
    auto* self = static_cast<DomainRunner*>(argument);
    if (self->says_more_) {
        self->domain_gone(self->gone_how_);
    } else {
        self->poll_attachment();
    }
}

void DomainRunner::on_exit(int, short, void* argument) {
    auto* self = static_cast<DomainRunner*>(argument);
    auto report = std::make_shared<std::optional<checkpoint::ExitReport>>();
    const auto job = [host = self->host_, report] { *report = host->poll_exit(); };
    self->worker_.post(job, [self, report, launch = self->launches_] {
        if (launch == self->launches_) self->domain_gone(*report);
    });
}

void DomainRunner::poll_attachment() {
    using timebubble::Attachment;
    const auto& status = link_->status();
    const auto attachment = static_cast<Attachment>(status.attachment.load(std::memory_order_acquire));
    if (attachment == Attachment::kAttached) {
        event_del(poll_event_);
        enter(DomainState::kAttached, "");
    } else if (attachment != Attachment::kNone) {
        event_del(poll_event_);
        enter(DomainState::kRefused, link_->refusal());
    } else if (monotonic_ns() - started_ns_ > kHandshakeNs) {
        event_del(poll_event_);
        enter(
            DomainState::kRefused,
            "the server did not load the shim within 10 s: is it a static, Go or setuid program, or does its "
            "launcher clear LD_PRELOAD? `crane check -- " +
                config_.server[0] + "` tells; run the program itself instead of its launcher");
    }
}

/// It could not say so any more (an overflown stack, an exit past the C library), but did it with the turn in
/// hand, so at the same place on every replica; or it does so whenever it comes there.
bool DomainRunner::ended_by_its_own_deed(const checkpoint::ExitReport& report) {
    if (config_.mode == Mode::kProxy || state_ != DomainState::kAttached || !report.known) return false;
    if (!report.signaled) return true;
    for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGXCPU, SIGXFSZ})
        if (report.signal == crash) return true;
    const timebubble::DomainStatus& status = link_->status();
    return losses_.lost({status.admitted_index.load(), status.clock.load(), report.signal});
}

void DomainRunner::domain_gone(std::optional<checkpoint::ExitReport> report) {
    if (killed_) return;
    woken_();  // drains what it has still said, so that its own exit record is seen first
    if (killed_) return;
    gone_ = true;
    init_pid_ = 0;
    // More than one turn takes, or held back while the output log is slow: its own exit comes behind that.
    says_more_ = state_ == DomainState::kAttached && !link_->all_drained();
    if (says_more_) {
        gone_how_ = std::move(report);
        event_add(poll_event_, &kPoll);
        return;
    }
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
    if (report && ended_by_its_own_deed(*report)) {
        main_exited(report->signaled ? W_EXITCODE(0, report->signal) : W_EXITCODE(report->code, 0));
        return;
    }
    enter(DomainState::kLost, "the server's processes are gone without having ended by themselves: " + how);
}

void DomainRunner::enter(DomainState state, std::string message) {
    if (state == state_ && message == message_) return;
    state_ = state;
    message_ = std::move(message);
    if (state == DomainState::kAttached) files_since_ns_ = link_->status().files_since_ns.load();
    changed_();
}

}  // namespace crane::proxy
