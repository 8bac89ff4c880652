#include "test_interpose_domain.hpp"

#include <sys/mman.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstring>

#include "interpose/core/user_memory.hpp"

namespace crane::interpose::testing {

namespace {

constexpr uint64_t kStartNs = 1'700'000'000 * kNsPerSecond;
/// Operations of the test alone: so many that its own turn ends only where it waits.
constexpr uint32_t kQuantum = 1'000'000;
constexpr uint64_t kSettled = 0x5e77'1ed0;

/// As in a domain: zeroed, and pages that are never used cost nothing.
template <typename T>
T& mapped(int flags) {
    void* memory =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return *static_cast<T*>(memory);
}

}  // namespace

PlainDomain::PlainDomain(uint64_t seed)
    : state_(mapped<DomainState>(MAP_PRIVATE)),
      fibers_(state_.scheduler, dmt::Policy::kSerial, kQuantum, seed),
      output_(timebubble::kOutputRingBytes + sizeof(timebubble::OutputHeader) +
              timebubble::kMaxOutputPayload),
      control_(mapped<timebubble::Control>(MAP_SHARED)) {
    state_.scheduler.now_ns = kStartNs;
    state_.monotonic_offset_ns = kStartNs - kUptimeAtStartNs;
    runtime = {};
    runtime.domain = &state_;
    runtime.view = {&control_, nullptr, output_.data()};
    runtime.scheduler = fibers_.scheduler;
    runtime.placeholder_fd = runtime.domain_fd = runtime.doorbell_fd = -1;
    runtime.scheduled = true;
    Process& first = state_.processes[0];
    first.state = ProcessState::kLive;
    first.parent = kNone;
    first.pid = getpid();
    first.is_main = 1;
    state_.processes_high = 1;
    first.main_slot = scheduler().create(0, true);
    become(first.main_slot);
    scheduler().start(self.slot);
    fibers_.switched = [this](dmt::SlotId slot) { become(slot); };
    fibers_.input = [](bool quiescent) {
        // Nobody can run and the test does not wait for that: it would never end.
        if (quiescent && scheduler().signal(kSettled, 1) == 0) std::abort();
    };
}

PlainDomain::~PlainDomain() {
    munmap(&state_, sizeof(state_));
    munmap(&control_, sizeof(control_));
    runtime = {};
    self = {};
}

void PlainDomain::become(dmt::SlotId slot) {
    const dmt::Slot& s = state_.scheduler.slots[slot];
    self = {};
    self.active = true;
    self.slot = slot;
    self.generation = s.generation;
    act_as(s.process);
}

void PlainDomain::act_as(uint32_t process) {
    runtime.process_index = process;
    runtime.process = &state_.processes[process];
}

dmt::SlotId PlainDomain::thread(std::function<void()> body) {
    const dmt::SlotId slot =
        fibers_.spawn([body = std::move(body)](dmt::SlotId) { body(); }, runtime.process_index);
    REQUIRE(slot != dmt::kNoSlot);
    state_.threads[slot] = {};
    return slot;
}

void PlainDomain::settle() {
    const uint32_t acting = runtime.process_index;
    {
        Operation turn(Op::kOther, own_key());
        turn.wait(kSettled);
    }
    act_as(acting);
}

bool PlainDomain::waits(dmt::SlotId slot) const {
    return state_.scheduler.slots[slot].state == dmt::SlotState::kWaiting;
}

uint32_t PlainDomain::process(int pid) {
    const uint32_t index = state_.processes_high++;
    Process& p = state_.processes[index];
    p.state = ProcessState::kLive;
    p.parent = runtime.process_index;
    p.end_signal = SIGCHLD;
    p.pid = pid;
    const uint32_t acting = runtime.process_index;
    act_as(index);
    p.main_slot = thread([] {
        Operation turn(Op::kOther, own_key());
        turn.wait(own_key());
    });
    act_as(acting);
    return index;
}

void PlainDomain::call(timebubble::CallKind kind, uint64_t connection, std::string_view payload) {
    apply_call(static_cast<uint16_t>(kind), connection, payload.data(), payload.size());
}

std::vector<Said> PlainDomain::said() {
    std::vector<Said> all;
    uint64_t at = 0;
    while (at < control_.output.head) {
        timebubble::OutputHeader header;
        std::memcpy(&header, &output_[at], sizeof(header));
        const auto* payload = reinterpret_cast<const char*>(&output_[at + sizeof(header)]);
        all.push_back({header.kind, header.flags, header.connection, {payload, header.bytes}});
        at += sizeof(header) + timebubble::padded(header.bytes);
    }
    // From the front again: plain memory does not wrap.
    control_.output.head = control_.output.tail = 0;
    return all;
}

void PlainDomain::pass_time(uint64_t ns) {
    scheduler().advance_time(state_.scheduler.now_ns + ns);
    // As at the end of an operation.
    uint64_t& own = state_.scheduler.slots[self.slot].local_now_ns;
    own = std::max(own, state_.scheduler.now_ns);
}

uint64_t PlainDomain::now_ns() const {
    return state_.scheduler.now_ns;
}

BadAddresses::BadAddresses() {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
        if (!leave_bad_copy(*static_cast<ucontext_t*>(context))) std::abort();
    };
    sigaction(SIGSEGV, &action, &before_);
}

BadAddresses::~BadAddresses() {
    sigaction(SIGSEGV, &before_, nullptr);
}

}  // namespace crane::interpose::testing
