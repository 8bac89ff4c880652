// What craned believes of its server: records that are well formed, of a server in an attacker's hands.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "proxy/attached_clients.hpp"
#include "proxy/carrier.hpp"
#include "proxy/first_difference.hpp"
#include "proxy/impossible_output.hpp"
#include "proxy/ingress.hpp"
#include "proxy/live_server.hpp"
#include "targets.hpp"
#include "timebubble/batch.hpp"

namespace crane::fuzz {

using namespace crane::timebubble;
using namespace crane::proxy;

namespace {

constexpr uint32_t kSelf = 1;
constexpr uint64_t kStockBytes = 1 << 20;
constexpr size_t kMostClients = 32;

// A client of this replica: what is sent to it waits until it takes it.
struct Reader final : Endpoint {
    EndpointUser* user = nullptr;
    bool allowed = false;
    uint64_t untaken = 0;

    void set_user(EndpointUser* now) override { user = now; }
    void allow_input(bool yes) override { allowed = yes; }
    void send(std::string_view bytes) override { untaken += bytes.size(); }
    void probe(const ProbeRecord&) override {}
    void finish() override {}
    void close() override { let_go(); }
    void reset() override { let_go(); }
    void let_go() {
        user = nullptr;
        untaken = 0;  // what lingers is bounded by the pool
    }
    void speak() {
        if (user && allowed && user->input_room() != 0)
            user->on_input(std::string(std::min<uint64_t>(user->input_room(), 5000), 'x'));
    }
    void take(uint64_t bytes) {
        const uint64_t now = std::min(bytes, untaken);
        untaken -= now;
        if (user && now != 0) user->on_taken(now);
    }
};

// A primary with its domain's records, as Replica wires it.
class Primary {
  public:
    Primary()
        : account_(kStockBytes),
          clients_(kSelf, true, [] { return false; }),
          carrier_(kSelf, clients_, [](uint32_t, const std::string&) { return true; }),
          ingress_({kSelf, kStockBytes, 10}, batcher_, account_,
                   [this](uint32_t replica) { return carrier_.reply_to(replica); }) {
        carrier_.set_ingress(&ingress_);
        carrier_.set_view(1, kSelf);
        ingress_.lead(account_.table(), 0);
        ingress_.settle();
    }

    void come() {
        if (readers_.size() == kMostClients) return;
        readers_.push_back(std::make_unique<Reader>());
        ConnectPayload from{};
        from.listen_port = 80;
        clients_.attach(readers_.back().get(), from, 1000);
    }
    Reader* reader(uint8_t which) {
        return readers_.empty() ? nullptr : readers_[which % readers_.size()].get();
    }
    void decide() {
        const std::string batch = batcher_.take(++now_, 1);
        BatchDecoder decoder;
        must(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()), "a batch is none");
        for (Call call; decoder.next(call);) {
            account_.decided(call);
            clients_.on_decided(call);
        }
    }
    void record(const OutputHeader& header, std::string_view payload) {
        account_.on_output(header, payload);
        ports_.on_output(header, payload);
        clients_.on_output(header, payload);
        ingress_.on_output(header, payload);
    }
    void check() {
        carrier_.end_turn();
        uint64_t untaken = 0;
        for (const auto& one : readers_) {
            must(one->untaken <= kLargestWindowBytes, "more waits for a client than any window allows");
            untaken += one->untaken;
        }
        must(untaken <= kStockBytes + readers_.size() * kFirstWindowBytes,
             "more waits than the stock allows");
        must(ports_.records().size() <= kMaxListeners + kMaxDatagramSockets, "ports without bound");
        must(account_.connections() <= kMostClients && ingress_.size() <= kMostClients,
             "connections that nobody has opened");
        must(batcher_.bytes() < kMostClients * (kStockBytes + 4096), "calls without bound");
    }

  private:
    Batcher batcher_;
    DomainAccount account_;
    std::vector<std::unique_ptr<Reader>> readers_;  // outlive those who use them
    AttachedClients clients_;
    Carrier carrier_;
    Ingress ingress_;
    ServerPorts ports_;
    uint64_t now_ = 0;
};

// A payload as its kind has it; bytes for the client are many, whatever the input's length.
std::string payload_of(OutputKind kind, Input& in) {
    const auto filled = [&](size_t size) {
        std::string out(in.take(std::min<size_t>(size, in.number<uint8_t>())));
        out.resize(size);
        return out;
    };
    switch (kind) {
        case OutputKind::kSend:
            return std::string(in.number<uint16_t>() % (kMaxOutputPayload + 1), 'y');
        case OutputKind::kConsumed:
            return filled(sizeof(uint64_t));
        case OutputKind::kListen:
        case OutputKind::kUnlisten:
        case OutputKind::kDatagramPort:
        case OutputKind::kDatagramPortEnd:
            return filled(sizeof(ListenRecord));
        case OutputKind::kProbes:
            return filled(sizeof(ProbeRecord));
        default:
            return {};
    }
}

}  // namespace

void fuzz_outputs(std::string_view bytes) {
    Input in(bytes);
    Primary primary;
    for (int step = 0; !in.empty() && step < 2048; ++step) {
        const uint8_t what = in.number<uint8_t>();
        Reader* const reader = primary.reader(what >> 3);
        switch (what & 7) {
            case 0:
                primary.come();
                break;
            case 1:
                primary.decide();
                break;
            case 2:
                if (reader) reader->speak();
                break;
            case 3:
                if (reader) reader->take(in.number<uint16_t>() * uint64_t{16});
                break;
            default: {
                const auto kind = static_cast<OutputKind>(in.number<uint8_t>() % 12);
                if (kind == OutputKind::kAdmitted || kind == OutputKind::kExit) break;
                const std::string payload = payload_of(kind, in);
                const OutputHeader header{
                    static_cast<uint32_t>(payload.size()),       kind, static_cast<uint16_t>(what >> 7),
                    connection_id(kSelf, (what >> 3 & 15u) + 1), 1,    1};
                try {
                    primary.record(header, payload);
                } catch (const ImpossibleOutput&) {
                    primary.check();
                    return;  // the domain is ended for it
                }
            }
        }
        primary.check();
    }
}

/// The first two bytes say how long the first side is; what follows it is the second one's.
void fuzz_sides(std::string_view bytes) {
    Input in(bytes);
    const std::string_view one = in.take(in.number<uint16_t>());
    const std::vector<TailRecord> first = decode_tail(one), second = decode_tail(in.rest());
    const std::string again = encode_tail(first);
    must(again.size() <= one.size() && decode_tail(again).size() == first.size(),
         "records encode to others than were decoded");
    FirstDifference difference;
    difference.heard(1, 1, first, 0);
    difference.heard(1, 2, second, 0);
    const nlohmann::json shown = difference.json();
    if (shown["record"].is_null()) {
        must(shown["sides"].empty(), "sides of no record");
        return;
    }
    must(shown["sides"].size() <= 2, "a side too many");
    for (const nlohmann::json& side : shown["sides"])
        must(side.value("excerpt", "").size() <= 4 * FirstDifference::kExcerptBytes, "a long excerpt");
    (void)shown.dump();  // throws on what is no UTF-8
}

}  // namespace crane::fuzz
