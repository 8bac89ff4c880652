// The end of a process, in the tables: what others see of it, whose its children become, who has the turn.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <csignal>
#include <cstring>

#include "dmt_scheduler/queues.hpp"
#include "interpose/core/deaths.hpp"
#include "interpose/core/fds.hpp"
#include "interpose/core/processes.hpp"
#include "interpose/core/signals.hpp"
#include "test_interpose_sockets.hpp"

using namespace crane::interpose;
using namespace crane::interpose::testing;
using crane::dmt::SlotId;
using crane::dmt::SlotState;
using crane::dmt::State;
using crane::timebubble::OutputKind;

namespace {

/// A real child that ends as told and is not reaped; the domain's tables know nothing of it yet.
int dead_child(int exit_code, int signal = 0) {
    const int pid = fork();
    if (pid == 0) {
        if (signal) {
            std::signal(signal, SIG_DFL);  // this program catches some, and would call it a failed test
            raise(signal);
        }
        _exit(exit_code);
    }
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    return pid;
}

std::vector<crane::timebubble::ExitRecord> exits(PlainDomain& domain) {
    std::vector<crane::timebubble::ExitRecord> all;
    for (const Said& one : domain.said()) {
        if (one.kind != OutputKind::kExit) continue;
        crane::timebubble::ExitRecord& record = all.emplace_back();
        REQUIRE(one.payload.size() == sizeof(record));
        std::memcpy(&record, one.payload.data(), sizeof(record));
    }
    return all;
}

/// The child's thread was given the turn, and this one is behind it in the queue.
void give_turn(PlainDomain& domain, uint32_t process) {
    State& s = domain.state().scheduler;
    const SlotId slot = domain.state().processes[process].main_slot;
    unlink(s, s.run_queue, slot);
    s.slots[slot].has_turn = 1;
    s.slots[slot].state = SlotState::kRunning;
    s.holder = slot;
    s.slots[self.slot].has_turn = 0;
    s.slots[self.slot].state = SlotState::kRunnable;
    push_tail(s, s.run_queue, self.slot);
}

/// The signal that is taken; 0: none.
int taken(uint64_t set) {
    SignalInfo info;
    return take_pending(set, info) ? info.signal : 0;
}

/// How a process of the domain ends that hears of the death of the one that `die` makes.
template <typename Die>
int end_of_who_hears(Die die) {
    const int pid = fork();
    if (pid == 0) {
        die();
        close(STDERR_FILENO);
        on_child(SIGCHLD, nullptr, nullptr);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("deaths: a process that died with the turn is buried, and the turn goes on", "[interpose]") {
    const int status = GENERATE(exited_status(3), SIGKILL);
    PlainDomain domain;
    const uint32_t socket = new_socket(AF_INET, false);
    const int pid = dead_child(status >> 8, status & 0x7f);
    const uint32_t child = domain.process(pid);
    domain.act_as(child);
    set_entry(5000, FdKind::kSocket, socket);
    domain.act_as(0);
    give_turn(domain, child);
    on_child(SIGCHLD, nullptr, nullptr);
    REQUIRE(domain.state().scheduler.holder == self.slot);
    scheduler().get_turn(self.slot);
    CHECK(domain.state().processes[child].state == ProcessState::kExited);
    CHECK(domain.state().processes[child].status == status);
    CHECK(domain.state().sockets[socket].state == SocketState::kFree);
    const auto said = exits(domain);
    REQUIRE(said.size() == 1);
    CHECK(said[0].pid == static_cast<uint32_t>(pid));
    CHECK(said[0].status == status);
    on_child(SIGCHLD, nullptr, nullptr);  // told again: nothing is left to do
    CHECK(exits(domain).empty());
    CHECK(waitpid(pid, nullptr, WNOHANG) == pid);  // left to the program's own wait
}

TEST_CASE("deaths: a process killed while it waited ends the domain, and says why", "[interpose]") {
    PlainDomain domain;
    CHECK(end_of_who_hears([&] { domain.process(dead_child(0, SIGKILL)); }) == 125);
    CHECK(domain.status().attachment == static_cast<uint32_t>(crane::timebubble::Attachment::kRefused));
    CHECK(std::string(domain.status().refusal).find("SIGKILL") != std::string::npos);
}

// It waits for input on behalf of all, say. It was taken for a deed of its own, and buried in the midst of
// it.
TEST_CASE("deaths: a process killed from outside in the midst of an operation ends the domain, too",
          "[interpose]") {
    const int signal = GENERATE(SIGKILL, SIGTERM);
    PlainDomain domain;
    const auto die = [&] {
        give_turn(domain, domain.process(dead_child(0, signal)));
        runtime.view.control->gate.working = 1;
    };
    CHECK(end_of_who_hears(die) == 125);
    CHECK(std::string(domain.status().refusal).find(signal == SIGKILL ? "SIGKILL" : "SIGTERM") !=
          std::string::npos);
}

TEST_CASE("deaths: one process kills another in the schedule, and its parent is told", "[interpose]") {
    PlainDomain domain;
    const int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    const uint32_t child = domain.process(pid);
    const SlotId waiter = domain.thread([] {
        Operation turn(Op::kWaitChild, own_key());
        turn.wait(make_key(ObjectKind::kChild, 0));
    });
    for (const SlotId slot : {self.slot, waiter}) domain.state().threads[slot].mask = signal_bit(SIGCHLD);
    domain.settle();
    REQUIRE(post_signal(child, SIGTERM, crane::dmt::kNoSlot) == 0);
    CHECK(domain.state().processes[child].state == ProcessState::kExited);
    CHECK(domain.state().processes[child].status == SIGTERM);
    CHECK(taken(~uint64_t{0}) == SIGCHLD);
    domain.settle();
    CHECK_FALSE(domain.waits(waiter));
    int status = 0;
    REQUIRE(waitpid(pid, &status, WNOHANG) == pid);  // it was waited for until dead
    CHECK(WTERMSIG(status) == SIGKILL);
}

// It ended at once.
TEST_CASE("deaths: what would end a stopped process does when it goes on", "[interpose]") {
    const bool for_thread = GENERATE(false, true);
    PlainDomain domain;
    domain.state().threads[self.slot].mask = signal_bit(SIGCHLD);
    const int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    const uint32_t child = domain.process(pid);
    crane::interpose::Process& p = domain.state().processes[child];
    domain.settle();
    REQUIRE(post_signal(child, SIGSTOP, crane::dmt::kNoSlot) == 0);
    REQUIRE(post_signal(child, SIGTERM, for_thread ? p.main_slot : crane::dmt::kNoSlot) == 0);
    CHECK(p.state == ProcessState::kLive);
    CHECK(waitpid(pid, nullptr, WNOHANG) == 0);
    REQUIRE(post_signal(child, SIGCONT, crane::dmt::kNoSlot) == 0);
    CHECK(p.state == ProcessState::kExited);
    CHECK(p.status == SIGTERM);
    CHECK(waitpid(pid, nullptr, WNOHANG) == pid);
}

TEST_CASE("deaths: children go to the nearest ancestor that asked for orphans", "[interpose]") {
    const bool asked = GENERATE(false, true);
    PlainDomain domain;
    Process* processes = domain.state().processes;
    processes[0].subreaper = asked;
    domain.state().threads[self.slot].mask = ~uint64_t{0};
    const uint32_t parent = domain.process(100'001);
    domain.act_as(parent);
    const uint32_t alive = domain.process(100'002), dead = domain.process(100'003);
    domain.state().threads[processes[alive].main_slot].mask = ~uint64_t{0};
    processes[alive].death_signal = SIGUSR1;
    domain.act_as(0);
    bury_process(dead, 0);
    CHECK(processes[dead].state == ProcessState::kExited);
    bury_process(parent, exited_status(7));
    CHECK(processes[parent].state == ProcessState::kExited);
    CHECK(processes[parent].status == exited_status(7));
    CHECK(processes[alive].parent == (asked ? 0 : kNone));
    CHECK(processes[alive].pending.set == signal_bit(SIGUSR1));
    // Nobody would ever wait for it.
    CHECK(processes[dead].state == (asked ? ProcessState::kExited : ProcessState::kFree));
    bury_process(alive, 0);
    CHECK(processes[alive].state == (asked ? ProcessState::kExited : ProcessState::kFree));
    CHECK(domain.state().orphans == (asked ? 0 : 2));
}

TEST_CASE("deaths: an orphan that has ended is reaped once, and its number can be another process's",
          "[interpose]") {
    PlainDomain domain;
    const int pid = dead_child(0);
    CHECK_FALSE(is_ended_orphan(pid));
    note_orphan(pid);
    CHECK(is_ended_orphan(pid));
    on_child(SIGCHLD, nullptr, nullptr);
    CHECK(waitpid(pid, nullptr, WNOHANG) == -1);
    CHECK_FALSE(is_ended_orphan(pid));
    // As many as there is room for, all gone, and one more.
    for (uint32_t i = 0; i < kMaxOrphans; ++i) note_orphan(pid);
    const int next = dead_child(0);
    note_orphan(next);
    CHECK(is_ended_orphan(next));
    forget_orphan(next);
    CHECK_FALSE(is_ended_orphan(next));
    CHECK(waitpid(next, nullptr, WNOHANG) == next);
}

TEST_CASE("deaths: a parent that waits for nobody is noted with the child", "[interpose]") {
    PlainDomain domain;
    runtime.process->actions[SIGCHLD].handler = reinterpret_cast<uint64_t>(SIG_IGN);
    const uint32_t child = domain.process(100'001);
    bury_process(child, 0);
    CHECK(domain.state().processes[child].unseen == 1);
    CHECK(runtime.process->pending.set == 0);
}
