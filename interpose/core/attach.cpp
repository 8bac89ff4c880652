// How a process comes under the shim: the first one makes the domain, one fresh from exec finds itself in it.
#include <linux/memfd.h>
#include <sched.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/reserved_descriptors.hpp"
#include "interpose/core/backstop.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/entropy.hpp"
#include "interpose/core/environment.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/file_times.hpp"
#include "interpose/core/pauses.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "interpose/core/sockets.hpp"
#include "interpose/core/stream_buffers.hpp"
#include "interpose/core/threads.hpp"
#include "interpose/core/trace.hpp"
#include "interpose/core/tsc.hpp"
#include "interpose/core/vdso.hpp"

namespace crane::interpose {

namespace {

constexpr uint64_t kDomainMagic = 0x6e69'616d'6f64'7263ULL;

/// What Boost.Interprocess wants of something that can be mapped.
class DescriptorMapping {
  public:
    explicit DescriptorMapping(int fd) : fd_(fd) {}
    boost::interprocess::mapping_handle_t get_mapping_handle() const {
        return boost::interprocess::ipcdetail::mapping_handle_from_file_handle(fd_);
    }
    boost::interprocess::mode_t get_mode() const { return boost::interprocess::read_write; }

  private:
    int fd_;
};

DomainState* map_domain(int fd) noexcept {
    try {
        // The mapping lives as long as the process: the region is never destroyed.
        using Region = boost::interprocess::mapped_region;
        alignas(Region) static char keeper[sizeof(Region)];
        auto* region = new (keeper)
            Region(DescriptorMapping(fd), boost::interprocess::read_write, 0, sizeof(DomainState));
        return static_cast<DomainState*>(region->get_address());
    } catch (const boost::interprocess::interprocess_exception&) {
        return nullptr;
    }
}

int move_to_reserved(long fd, int place) {
    if (fd < 0) return -1;
    const int wanted = reserved_fd(place);
    if (raw(SYS_dup3, fd, wanted, 0) != wanted) return -1;
    raw(SYS_close, fd);
    return wanted;
}

/// What a process of the domain lacks, after an exec, costs that process alone: its parent sees it fail.
[[noreturn]] void refuse_process(const char* why) {
    for (const char* text : {"crane: ", why, "\n"}) raw(SYS_write, 2, text, strlen(text));
    raw(SYS_exit_group, 127);
    __builtin_unreachable();
}

bool inherited(int fd) {
    return raw(SYS_fcntl, fd, F_GETFD) >= 0;
}

/// True for a program that a process of the domain has become: that one has told it.
bool find_reserved(char** environment) {
    const char* joined = find_variable(environment, "CRANE_DOMAIN_FD");
    const char* told = joined ? joined : find_variable(environment, kReservedVariable);
    runtime.reserved_fds = told ? atoi(told) : kMostProgramFds;
    return joined != nullptr;
}

/// False where the program runs unscheduled and its parent has closed what craned gave it.
bool take_inherited(char** environment) {
    runtime.transport_fd = reserved_fd(kTransportPlace);
    runtime.doorbell_fd = reserved_fd(kDoorbellPlace);
    if (inherited(runtime.transport_fd) && inherited(runtime.doorbell_fd)) return true;
    if (find_variable(environment, "CRANE_UNSCHEDULED")) return false;
    refuse_domain("the memory shared with craned was not handed down: who started this program closed it");
}

void map_transport_or_refuse(bool first) {
    if (!timebubble::map_transport(runtime.transport_fd, runtime.view)) {
        runtime.view = {};
        if (!first) refuse_process("cannot map the segment shared with craned (a limit on memory?)");
        refuse_domain("cannot map the segment shared with craned");
    }
    const timebubble::Control& control = *runtime.view.control;
    if (control.magic != timebubble::kTransportMagic || control.version != timebubble::kTransportVersion) {
        runtime.view = {};
        refuse_domain("craned and libcrane.so are of different versions: install both from one build");
    }
}

void make_placeholder() {
    runtime.placeholder_fd = reserved_fd(kPlaceholderPlace);
    // Kept over the exec: a low limit on descriptors forbids another.
    if (inherited(runtime.placeholder_fd)) return;
    runtime.placeholder_fd =
        move_to_reserved(raw(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), kPlaceholderPlace);
    if (runtime.placeholder_fd < 0)
        refuse_domain("cannot make the socket that stands behind virtual descriptors");
}

void pin_to_cpu(uint32_t cpu_plus1) {
    if (cpu_plus1 == 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu_plus1 - 1, &set);
    raw(SYS_sched_setaffinity, 0, sizeof(set), &set);
}

void make_domain() {
    runtime.domain_fd =
        move_to_reserved(raw(SYS_memfd_create, "crane-domain", MFD_ALLOW_SEALING), kDomainPlace);
    // Who maps a file that another one shrinks is ended by SIGBUS.
    if (runtime.domain_fd < 0 || raw(SYS_ftruncate, runtime.domain_fd, sizeof(DomainState)) != 0 ||
        raw(SYS_fcntl, runtime.domain_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        refuse_domain("cannot make the domain's memory (memfd_create, ftruncate, F_ADD_SEALS)");
    }
    runtime.domain = map_domain(runtime.domain_fd);
    if (!runtime.domain) refuse_domain("cannot map the domain's memory");
    DomainState& d = *runtime.domain;
    const timebubble::DomainSettings& settings = runtime.view.control->settings;
    d.magic = kDomainMagic;
    raw(SYS_sched_getaffinity, 0, sizeof(d.given_cpus), &d.given_cpus);
    remember_real_start();
    d.admission.bubbles_enabled = settings.bubbles_enabled;
    const auto policy =
        settings.policy == timebubble::Policy::kParallel ? dmt::Policy::kParallel : dmt::Policy::kSerial;
    // A serial domain keeps to one core, where spinning only delays the partner.
    constexpr uint32_t kSpinRounds = 2000;
    dmt::Scheduler::format(d.scheduler, policy, settings.quantum,
                           policy == dmt::Policy::kParallel ? kSpinRounds : 0);
    d.scheduler.disturb = settings.disturb_seed;
    runtime.scheduler = dmt::Scheduler(&d.scheduler, scheduler_hooks());
    runtime.process_index = 0;
    runtime.process = &d.processes[0];
    Process& p = *runtime.process;
    p.state = ProcessState::kLive;
    p.parent = kNone;
    p.pid = static_cast<int32_t>(raw(SYS_getpid));
    p.is_main = 1;
    constexpr int kContained = 2;  // crane-init is 1; without a container that is a thread of the kernel's
    d.numbers_its_own = p.pid == kContained;
    d.processes_high = 1;
    p.main_slot = runtime.scheduler.create(0, true);
    pin_to_cpu(settings.pinned_cpu_plus1);
}

/// The handshake: craned learns that the server did load the shim.
void announce_attachment() {
    timebubble::DomainStatus& status = runtime.view.control->status;
    status.server_pid.store(static_cast<uint32_t>(raw(SYS_getpid)), std::memory_order_relaxed);
    status.processes.store(1, std::memory_order_relaxed);
    status.attachment.store(static_cast<uint32_t>(timebubble::Attachment::kAttached),
                            std::memory_order_release);
    timebubble::OutputRing(runtime.view, runtime.doorbell_fd).ring();
}

/// Nothing is shared with other processes then. Each program that a process of the server executes comes
/// here, under whatever limits and user: the first one is the server.
void attach_unscheduled() {
    const timebubble::Control& control = *runtime.view.control;
    if (control.status.attachment != static_cast<uint32_t>(timebubble::Attachment::kNone)) return;
    pin_to_cpu(control.settings.pinned_cpu_plus1);
    announce_attachment();
}

void drop_descriptors_closed_by_exec() {
    for (size_t fd = 0; fd < runtime.process->fds_end; ++fd) {
        FdEntry& entry = runtime.process->fds[fd];
        if (entry.kind == FdKind::kUnknown) continue;
        if (raw(SYS_fcntl, fd, F_GETFD) == -EBADF) drop_entry(entry);
    }
}

/// False if this process is not one that the domain knows: it came by a way that the shim did not see.
bool join_domain(int fd) {
    runtime.domain_fd = fd;
    runtime.domain = map_domain(fd);
    if (!runtime.domain) refuse_process("cannot map the domain's memory (a limit on memory?)");
    if (runtime.domain->magic != kDomainMagic) return false;
    runtime.scheduler = dmt::Scheduler(&runtime.domain->scheduler, scheduler_hooks());
    const uint32_t index = find_process(static_cast<int>(raw(SYS_getpid)));
    if (index == kNone) return false;
    runtime.process_index = index;
    runtime.process = &domain().processes[index];
    return true;
}

void activate() {
    self.slot = runtime.process->main_slot;
    self.generation = scheduler().slot(self.slot).generation;
    self.active = true;
    scheduler().slot(self.slot).tid = static_cast<uint32_t>(raw(SYS_gettid));
}

void after_exec() {
    drop_other_threads();
    drop_descriptors_closed_by_exec();
    reset_handlers_after_exec();
    runtime.process->end_signal = SIGCHLD;
    release_maker(runtime.process_index);
    // The kernel gives up what the threads of the program before held of these.
    scheduler().signal_set(robust_bit());
}

/// The last of the exit handlers, since it is registered before all others.
void at_process_exit(int code, void*) {
    if (!self.active) return;
    fcloseall();  // flushes without the streams' locks, as exit() does: a thread may be in a read with one
    leave(code);
}

}  // namespace

bool is_reserved_fd(int fd) {
    return fd >= reserved_fd(0) && fd < reserved_fd(kReservedFds) && runtime.domain != nullptr;
}

void hold_reserved() {
    for (int place = 0; place < kReservedFds; ++place)
        if (!inherited(reserved_fd(place)))
            raw(SYS_dup3, runtime.placeholder_fd, reserved_fd(place), O_CLOEXEC);
}

void (*take_over_alarm)() = nullptr;

void attach(char** environment) {
    if (!find_variable(environment, "CRANE_TRANSPORT")) return;
    const bool first = !find_reserved(environment);
    if (!take_inherited(environment)) return;
    remember_environment(environment);
    if (first) {
        map_transport_or_refuse(true);
        if (!runtime.view.control->settings.schedule) {
            attach_unscheduled();
            return;
        }
        make_domain();
        choose_tsc(environment);
        choose_pauses(environment);
    } else {
        map_transport_or_refuse(false);
        if (!join_domain(reserved_fd(kDomainPlace))) {
            refuse_process("a process entered the domain by a way that Crane does not see");
        }
    }
    open_trace(environment);
    runtime.scheduled = true;
    make_placeholder();
    hold_reserved();
    activate();
    if (first) {
        scheduler().start(self.slot);
        announce_attachment();
    } else {
        after_exec();
    }
    register_main_thread();
    adopt_orphans();
    install_fault_handlers();
    install_tsc_trap();
    trap_pauses();
    if (first) choose_backstop();  // the standard streams go by it
    give_buffer(stdin);
    give_buffer(stdout);
    for (int fd = 0; fd <= 2; ++fd)
        if (fd_entry(fd)) serve_standard_entry(fd);
    on_exit(at_process_exit, nullptr);
    {
        // Takes in the first batch, or what came while this program was being loaded.
        Operation turn(Op::kAttach, process_key(runtime.process->pid));
        replace_auxiliary_random();
        start_backstop();
        lead_kernel_functions();
    }
    if (runtime.process->alarm_ns != 0) take_over_alarm();
}

namespace {

__attribute__((constructor)) void on_load(int, char**, char** environment) {
    resolve_real();
    attach(environment);
    errno = 0;  // as a program finds it
}

}  // namespace

}  // namespace crane::interpose
