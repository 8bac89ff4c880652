// fake-domain: speaks the segment's protocol as a domain would, without shim or server, so that craned can be
// tested alone. Admission and the rings' ends are the shim's own (timebubble/). One logical clock per thing
// done, so that all replicas do the same. It serves one port (its argument).
//
// A connection's first bytes, up to a newline, say what it does:
//   echo (or anything else)  sends back all it gets, the first line included
//   blast N                  sends N bytes of a pattern, then closes
//   work N                   is busy for N clocks, then says "done"
//   deaf                     never reads again
//   differ                   says its pid: the replicas diverge
//   odd N                    says "odd" at replica N and "ok!" at the others: that one diverges
//   once N                   the same, but not again when its server is made anew
//   overrun N                at replica N, and once: sends more than any window allows; else echoes
//   quit N                   ends the domain by its own deed, with status N
//   stay N                   ends it so, with status 0, but at replica N, which goes on without a word
//   reset                    closes with RST
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "base/reserved_descriptors.hpp"
#include "timebubble/admission.hpp"
#include "timebubble/batch.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/rings.hpp"
#include "timebubble/transport.hpp"

using namespace crane::timebubble;

namespace {

struct Connection {
    std::string line;
    std::string out;
    size_t out_at = 0;  ///< sent so far of `out`
    uint64_t consumed = 0;
    uint64_t sent = 0;
    uint64_t window_end = kFirstWindowBytes;
    bool started = false;
    bool deaf = false;
    bool close_after = false;
};

int reserved(int place) {
    const char* begin = getenv(crane::kReservedVariable);
    return begin ? atoi(begin) + place : -1;
}

class FakeDomain {
  public:
    FakeDomain(uint16_t port, uint64_t tick_ms) : port_(port), tick_ms_(tick_ms) {
        if (!map_transport(reserved(crane::kTransportPlace), view_) ||
            view_.control->magic != kTransportMagic) {
            perror("fake-domain: transport");
            exit(2);
        }
        admission_.bubbles_enabled = view_.control->settings.bubbles_enabled;
        status().server_pid = static_cast<uint32_t>(getpid());
        status().attachment = static_cast<uint32_t>(Attachment::kAttached);
    }

    void run() {
        for (;;) {
            take_input();
            serve();
            while (work_ > 0) work_on();
        }
    }

  private:
    DomainStatus& status() { return view_.control->status; }

    void tick() {
        ++clock_;
        hash_ = hash_ * 0x9e3779b97f4a7c15ULL + clock_;
        status().clock = clock_;
        status().schedule_hash = hash_;
    }

    void emit(OutputKind kind, uint16_t flags, uint64_t connection, const void* data, size_t bytes) {
        uint8_t* place = output_.reserve(bytes);
        if (bytes) memcpy(place, data, bytes);
        output_.commit({static_cast<uint32_t>(bytes), kind, flags, connection, clock_, hash_});
    }

    void wait_for_batch(bool quiescent) {
        if (quiescent) {
            status().deadline_ns = genesis_seen_ && tick_ms_ ? now_ns_ + tick_ms_ * 1'000'000 : 0;
            status().quiescent = 1;
        } else {
            status().asks = 1;
        }
        output_.ring();
        input_.sleep_until_rung();
        status().quiescent = 0;
    }

    /// Takes in what is due. With nothing to do, that is the next batch, whenever it comes.
    void take_input() {
        for (;;) {
            const bool quiescent = work_ == 0;
            const InputHeader* record = input_.front();
            switch (rule_.next(clock_, quiescent, record != nullptr)) {
                case AdmissionStep::kAdmit:
                    admit(*record);
                    if (quiescent) return;
                    break;
                case AdmissionStep::kWait:
                    wait_for_batch(quiescent);
                    break;
                case AdmissionStep::kRun:
                    if (!rule_.should_ask(clock_)) return;
                    admission_.asked = 1;
                    status().asks = record == nullptr;
                    output_.ring();
                    return;
            }
        }
    }

    void admit(const InputHeader& record) {
        BatchDecoder batch;
        if (!batch.open(reinterpret_cast<const uint8_t*>(&record + 1), record.bytes)) abort();
        const uint64_t index = record.index;
        tick();
        now_ns_ = std::max(now_ns_ + 1, batch.header().timestamp_ns);
        rule_.admitted(index, clock_, batch.header().grant_clocks);
        if (batch.header().calls == 0) ++status().bubbles;
        for (Call call; batch.next(call);) apply(call);
        input_.pop();
        const AdmittedRecord admitted{index, admission_.admitted_clock};
        emit(OutputKind::kAdmitted, 0, 0, &admitted, sizeof(admitted));
        status().asks = 0;
        status().grant_end = admission_.grant_end;
        status().admitted_index = index;
    }

    void apply(const Call& call) {
        tick();
        if (call.kind == CallKind::kGenesis) {
            genesis_seen_ = true;
            const ListenRecord listen{2, port_, 0, 0, {}, kMaxBacklog, 0};
            emit(OutputKind::kListen, 0, 0, &listen, sizeof(listen));
        } else if (call.kind == CallKind::kConnect) {
            all_[call.connection];
            emit(OutputKind::kAccept, 0, call.connection, nullptr, 0);
        } else if (call.kind == CallKind::kReset) {
            if (all_.erase(call.connection)) emit(OutputKind::kClose, 1, call.connection, nullptr, 0);
        } else if (const auto found = all_.find(call.connection); found != all_.end()) {
            Connection& one = found->second;
            if (call.kind == CallKind::kWindow) memcpy(&one.window_end, call.payload.data(), 8);
            if (call.kind == CallKind::kShutdown) one.close_after = true;
            if (call.kind == CallKind::kSend && !one.deaf) input(call.connection, one, call.payload);
        }
    }

    void input(uint64_t id, Connection& one, std::string_view bytes) {
        one.consumed += bytes.size();
        emit(OutputKind::kConsumed, 0, id, &one.consumed, sizeof(one.consumed));
        if (one.started) {
            one.out.append(bytes);
            return;
        }
        one.line.append(bytes);
        const size_t end = one.line.find('\n');
        if (end == std::string::npos) return;
        one.started = true;
        command(id, one, one.line.substr(0, end));
    }

    void command(uint64_t id, Connection& one, const std::string& line) {
        const uint64_t number =
            line.find(' ') == std::string::npos ? 0 : strtoull(&line[line.find(' ')], nullptr, 10);
        if (line.starts_with("blast ")) {
            one.out.resize(number);
            for (uint64_t i = 0; i < number; ++i) one.out[i] = static_cast<char>('a' + (i / 7) % 26);
            one.close_after = true;
        } else if (line.starts_with("work ")) {
            work_ = number;
            worker_ = id;
        } else if (line == "deaf") {
            one.deaf = true;
        } else if (line == "differ") {
            one.out = "pid " + std::to_string(getpid()) + "\n";
        } else if (line.starts_with("odd ")) {
            one.out = is_replica(number) ? "odd\n" : "ok!\n";
        } else if (line.starts_with("once ")) {
            one.out = is_replica(number) && first_time(number) ? "odd\n" : "ok!\n";
        } else if (line.starts_with("overrun ") && is_replica(number) && first_time(number)) {
            const std::string piece(kMaxOutputPayload, 'x');
            for (uint64_t sent = 0; sent <= kLargestWindowBytes; sent += piece.size())
                emit(OutputKind::kSend, 0, id, piece.data(), piece.size());
        } else if (line == "reset") {
            emit(OutputKind::kClose, 1, id, nullptr, 0);
            all_.erase(id);
        } else if (line.starts_with("stay ") && is_replica(number)) {
            one.deaf = true;
        } else if (line.starts_with("quit") || line.starts_with("stay ")) {
            end(line.starts_with("quit") ? number : 0);
        } else {
            one.out = one.line;
        }
    }

    void end(uint64_t status) {
        const ExitRecord record{2, static_cast<int32_t>(status << 8), 1, 0};
        emit(OutputKind::kExit, 0, 0, &record, sizeof(record));
        output_.ring();
        _exit(static_cast<int>(status));
    }

    static std::string folder(uint64_t replica) { return "/r" + std::to_string(replica) + "/"; }
    static bool is_replica(uint64_t number) {
        return strstr(getenv("CRANE_TRANSPORT"), folder(number).c_str()) != nullptr;
    }
    /// And not again when the server is made anew.
    static bool first_time(uint64_t replica) {
        const std::string transport = getenv("CRANE_TRANSPORT");
        const std::string mark =
            transport.substr(0, transport.find(folder(replica))) + folder(replica) + "once";
        return open(mark.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
    }

    void serve() {
        for (auto at = all_.begin(); at != all_.end();) {
            Connection& one = at->second;
            while (one.out_at < one.out.size() && one.sent < one.window_end) {
                tick();
                const uint64_t piece =
                    std::min<uint64_t>({one.out.size() - one.out_at, 64 * 1024, one.window_end - one.sent});
                emit(OutputKind::kSend, 0, at->first, one.out.data() + one.out_at, piece);
                one.sent += piece;
                one.out_at += piece;
            }
            if (one.out_at == one.out.size()) {
                one.out.clear();
                one.out_at = 0;
            }
            if (one.close_after && one.out.empty() && work_ == 0) {
                tick();
                emit(OutputKind::kClose, 0, at->first, nullptr, 0);
                at = all_.erase(at);
            } else {
                ++at;
            }
        }
        output_.ring();
    }

    /// One clock of it; when the grant is used up, the next batch comes first.
    void work_on() {
        tick();
        if (--work_ > 0) {
            take_input();
            return;
        }
        if (const auto found = all_.find(worker_); found != all_.end()) found->second.out = "done\n";
        serve();
    }

    uint16_t port_;
    uint64_t tick_ms_;
    TransportView view_{};
    InputRing input_{view_};
    OutputRing output_{view_, reserved(crane::kDoorbellPlace)};
    AdmissionState admission_{};
    AdmissionRule rule_{admission_};
    uint64_t clock_ = 0;
    uint64_t hash_ = 1;
    uint64_t now_ns_ = 0;
    uint64_t work_ = 0;
    uint64_t worker_ = 0;
    bool genesis_seen_ = false;
    std::map<uint64_t, Connection> all_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    if (argc > 2 && strcmp(argv[2], "never") == 0) pause();
    FakeDomain(static_cast<uint16_t>(atoi(argv[1])), argc > 2 ? strtoull(argv[2], nullptr, 10) : 0).run();
}
