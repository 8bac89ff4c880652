#include "proxy/domain_link.hpp"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "proxy/plain_text.hpp"

namespace crane::proxy {

using namespace timebubble;

namespace {

/// Not the PRIVATE kind: the sleeper is in another process.
void futex_wake(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

constexpr size_t kFreeStepBytes = 1024 * 1024;

[[noreturn]] void overwritten(const std::string& what) {
    throw std::runtime_error("the server has overwritten the memory that it shares with craned (" + what +
                             ")");
}

/// The size that a record of the kind has; nothing where any size is well formed.
std::optional<size_t> payload_bytes(OutputKind kind) {
    switch (kind) {
        case OutputKind::kSend:
        case OutputKind::kMessage:
        case OutputKind::kDatagram:
        case OutputKind::kResolve:
            return std::nullopt;
        case OutputKind::kShutdown:
        case OutputKind::kClose:
        case OutputKind::kAccept:
            return 0;
        case OutputKind::kConsumed:
            return sizeof(uint64_t);
        case OutputKind::kListen:
        case OutputKind::kUnlisten:
        case OutputKind::kDatagramPort:
        case OutputKind::kDatagramPortEnd:
            return sizeof(ListenRecord);
        case OutputKind::kConnect:
            return sizeof(EgressRecord);
        case OutputKind::kAdmitted:
            return sizeof(AdmittedRecord);
        case OutputKind::kExit:
            return sizeof(ExitRecord);
        case OutputKind::kProbes:
            return sizeof(ProbeRecord);
    }
    overwritten("a record is of no known kind");
}

}  // namespace

DomainLink::DomainLink(const TransportView& view)
    : view_(view),
      input_head_(view.control->input.head),
      output_tail_(view.control->output.tail),
      gate_(view.control->gate) {}

void DomainLink::prepare(const DomainSettings& settings, EgressPolicy egress, bool backstop,
                         const OwnAddresses& own_addresses) {
    Control& control = *view_.control;
    control.version = kTransportVersion;
    control.settings = settings;
    control.egress = static_cast<uint32_t>(egress);
    control.backstop = backstop;
    control.own_addresses = own_addresses;
    std::atomic_thread_fence(std::memory_order_release);
    control.magic = kTransportMagic;
}

void DomainLink::prepare_restored(const DomainWords& words, uint32_t image) {
    Control& control = *view_.control;
    DomainStatus& status = control.status;
    status.server_pid = words.server_pid;
    status.processes = words.processes;
    status.admitted_index = words.admitted_index;
    status.grant_end = words.grant_end;
    status.files_since_ns = words.files_since_ns;
    status.attachment = static_cast<uint32_t>(Attachment::kAttached);
    // From 0 on it could be what the sleeper waits to see change, and who does not say that he waits is not
    // woken.
    control.input.doorbell = words.input_rings + 1;
    control.image = image;
}

DomainWords DomainLink::words() const {
    const DomainStatus& now = status();
    return {view_.control->version,
            now.server_pid,
            now.processes,
            now.admitted_index,
            now.grant_end,
            now.files_since_ns,
            view_.control->input.doorbell.load(std::memory_order_relaxed)};
}

bool DomainLink::starved() const {
    return unadmitted_.empty() && view_.control->input.waiting.load(std::memory_order_seq_cst) != 0;
}

bool DomainLink::feed(uint64_t index, std::string_view batch) {
    Ring& ring = view_.control->input;
    const uint64_t unread = input_head_ - ring.tail.load(std::memory_order_acquire);
    const size_t need = sizeof(InputHeader) + padded(batch.size());
    if (unread > kInputRingBytes) overwritten("head and tail of the input ring do not fit together");
    if (kInputRingBytes - unread < need) return false;
    uint8_t* at = view_.input + input_head_ % kInputRingBytes;
    const InputHeader header{static_cast<uint32_t>(batch.size()), 0, index};
    memcpy(at, &header, sizeof(header));
    memcpy(at + sizeof(header), batch.data(), batch.size());
    input_head_ += need;
    ring.head.store(input_head_, std::memory_order_release);
    unadmitted_.push_back(index);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ring.waiting.load(std::memory_order_relaxed) && ring.waiting.exchange(0)) {
        ring.doorbell.fetch_add(1);
        futex_wake(ring.doorbell);
        ++wakeups_;
    }
    return true;
}

void DomainLink::free_output() {
    Ring& ring = view_.control->output;
    ring.tail.store(output_tail_, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (ring.producer_waiting.load(std::memory_order_relaxed)) {
        ring.producer_waiting.store(0);
        futex_wake(ring.producer_waiting);
    }
}

/// How far the output ring is filled, beyond what was drained.
uint64_t DomainLink::published_output() const {
    const uint64_t published = view_.control->output.head.load(std::memory_order_acquire) - output_tail_;
    if (published > kOutputRingBytes) overwritten("head and tail of the output ring do not fit together");
    return published;
}

void DomainLink::check_record(const OutputHeader& header, std::string_view payload) {
    const std::optional<size_t> size = payload_bytes(header.kind);
    if (size && payload.size() != *size) overwritten("a record is not of its kind's size");
    if (header.kind != OutputKind::kAdmitted) return;
    AdmittedRecord admitted;
    memcpy(&admitted, payload.data(), sizeof(admitted));
    if (unadmitted_.empty() || admitted.index != unadmitted_.front())
        overwritten("a batch is said to be admitted that is not the next one");
    unadmitted_.pop_front();
}

size_t DomainLink::drain(const Handler& handler, size_t max_bytes) {
    uint64_t left = published_output();
    size_t records = 0;
    uint64_t done = 0, freed = 0;
    while (left > 0 && done < max_bytes) {
        const uint8_t* at = view_.output + output_tail_ % kOutputRingBytes;
        OutputHeader header;
        memcpy(&header, at, sizeof(header));
        const size_t need = sizeof(header) + padded(header.bytes);
        if (header.bytes > kMaxOutputPayload || left < need) overwritten("an output record is too long");
        record_.assign(reinterpret_cast<const char*>(at + sizeof(header)), header.bytes);
        check_record(header, record_);
        handler(header, record_);
        output_tail_ += need;
        left -= need;
        done += need;
        ++records;
        if (done - freed < kFreeStepBytes) continue;
        free_output();
        freed = done;
    }
    if (freed != done) free_output();
    return records;
}

bool DomainLink::prepare_sleep() {
    Ring& ring = view_.control->output;
    ring.waiting.store(1, std::memory_order_seq_cst);
    return all_drained();
}

bool DomainLink::all_drained() const {
    return view_.control->output.head.load(std::memory_order_seq_cst) == output_tail_;
}

bool DomainLink::at_rest() const {
    return view_.control->status.quiescent.load(std::memory_order_seq_cst) && all_drained();
}

bool DomainLink::at_standstill() const {
    return starved() && all_drained();
}

std::vector<std::string> DomainLink::watched_paths() const {
    const timebubble::WatchedPaths& watched = view_.control->watched;
    const size_t bytes =
        std::min<size_t>(watched.bytes.load(std::memory_order_acquire), sizeof(watched.text));
    std::vector<std::string> paths;
    std::istringstream text(std::string(watched.text, bytes));
    for (std::string path; std::getline(text, path, '\0');)
        if (path.starts_with('/')) paths.push_back(path);
    return paths;
}

void DomainLink::awake() {
    view_.control->output.waiting.store(0, std::memory_order_relaxed);
}

std::string DomainLink::refusal() const {
    char text[sizeof(DomainStatus::refusal)];
    memcpy(text, view_.control->status.refusal, sizeof(text));
    return one_line({text, strnlen(text, sizeof(text))});
}

}  // namespace crane::proxy
