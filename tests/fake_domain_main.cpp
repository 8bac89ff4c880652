// fake-domain: speaks the segment's protocol as a domain would, without shim or server, so that craned can be
// tested alone. One logical clock per thing done, so that all replicas do the same. It serves one port (its
// argument).
//
// A connection's first bytes, up to a newline, say what it does:
//   echo (or anything else)  sends back all it gets, the first line included
//   blast N                  sends N bytes of a pattern, then closes
//   work N                   is busy for N clocks, then says "done"
//   deaf                     never reads again
//   differ                   says its pid: the replicas diverge
//   odd N                    says "odd" at replica N and "ok!" at the others: that one diverges
//   quit N                   ends the domain by its own deed, with status N
//   reset                    closes with RST
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "timebubble/batch.hpp"
#include "timebubble/inherited.hpp"
#include "timebubble/limits.hpp"
#include "timebubble/transport.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>

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

class FakeDomain {
  public:
    FakeDomain(uint16_t port, uint64_t tick_ms) : port_(port), tick_ms_(tick_ms) {
        if (!map_transport(kTransportFd, view_) || view_.control->magic != kTransportMagic) {
            perror("fake-domain: transport");
            exit(2);
        }
        status().server_pid = static_cast<uint32_t>(getpid());
        status().attachment = static_cast<uint32_t>(Attachment::kAttached);
    }

    void run() {
        for (;;) {
            admit_next();
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
        Ring& ring = view_.control->output;
        const size_t need = sizeof(OutputHeader) + padded(bytes);
        const uint64_t head = ring.head;
        while (head + need - ring.tail > kOutputRingBytes) {
            ring.producer_waiting = 1;
            bell();
            if (head + need - ring.tail <= kOutputRingBytes) break;
            syscall(SYS_futex, &ring.producer_waiting, FUTEX_WAIT, 1, nullptr, nullptr, 0);
        }
        const OutputHeader header{static_cast<uint32_t>(bytes), kind, flags, connection, clock_, hash_};
        uint8_t* at = view_.output + head % kOutputRingBytes;
        memcpy(at, &header, sizeof(header));
        memcpy(at + sizeof(header), data, bytes);
        ring.head = head + need;
    }

    void bell() {
        Ring& ring = view_.control->output;
        if (!ring.waiting.exchange(0)) return;
        ++status().doorbells;
        if (write(kDoorbellFd, "x", 1) != 1 && errno != EAGAIN) perror("fake-domain: doorbell");
    }

    void wait_for_batch(bool quiescent) {
        Ring& ring = view_.control->input;
        if (ring.head != ring.tail) return;
        if (quiescent) {
            status().deadline_ns = genesis_seen_ && tick_ms_ ? now_ns_ + tick_ms_ * 1'000'000 : 0;
            status().quiescent = 1;
        } else {
            status().asks = 1;
        }
        bell();
        while (ring.head == ring.tail) {
            const uint32_t seen = ring.doorbell;
            ring.waiting = 1;
            if (ring.head == ring.tail)
                syscall(SYS_futex, &ring.doorbell, FUTEX_WAIT, seen, nullptr, nullptr, 0);
        }
        ring.waiting = 0;
    }

    void admit_next() {
        wait_for_batch(work_ == 0);
        status().quiescent = 0;
        Ring& ring = view_.control->input;
        const uint8_t* at = view_.input + ring.tail % kInputRingBytes;
        InputHeader header;
        memcpy(&header, at, sizeof(header));
        BatchDecoder batch;
        if (!batch.open(at + sizeof(header), header.bytes)) abort();
        tick();
        now_ns_ = std::max(now_ns_ + 1, batch.header().timestamp_ns);
        grant_end_ = clock_ + batch.header().grant_clocks;
        status().grant_end = grant_end_;
        status().asks = 0;
        status().admitted_index = header.index;
        if (batch.header().calls == 0) ++status().bubbles;
        const AdmittedRecord admitted{header.index, clock_};
        emit(OutputKind::kAdmitted, 0, 0, &admitted, sizeof(admitted));
        for (Call call; batch.next(call);) apply(call);
        ring.tail = ring.tail + sizeof(header) + padded(header.bytes);
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
            const std::string mine = "/r" + std::to_string(number) + "/";
            one.out = strstr(getenv("CRANE_TRANSPORT"), mine.c_str()) ? "odd\n" : "ok!\n";
        } else if (line == "reset") {
            emit(OutputKind::kClose, 1, id, nullptr, 0);
            all_.erase(id);
        } else if (line.starts_with("quit")) {
            const ExitRecord record{2, static_cast<int32_t>(number << 8), 1, 0};
            emit(OutputKind::kExit, 0, 0, &record, sizeof(record));
            bell();
            _exit(static_cast<int>(number));
        } else {
            one.out = one.line;
        }
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
        bell();
    }

    /// Busy until the grant's end, then the next batch must come.
    void work_on() {
        while (work_ > 0 && clock_ < grant_end_) {
            tick();
            --work_;
        }
        if (work_ > 0) {
            admit_next();
            return;
        }
        if (const auto found = all_.find(worker_); found != all_.end()) found->second.out = "done\n";
        serve();
    }

    uint16_t port_;
    uint64_t tick_ms_;
    TransportView view_{};
    uint64_t clock_ = 0;
    uint64_t hash_ = 1;
    uint64_t now_ns_ = 0;
    uint64_t grant_end_ = 0;
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
