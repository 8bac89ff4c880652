// Clients of three replicas while leadership moves, links lose messages and replicas die: a client of a
// replica that survives is never reset, each byte of it reaches the server once, and it gets each byte of the
// answer once.
#include <catch2/catch.hpp>

#include <malloc.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "proxy/attached_clients.hpp"
#include "proxy/batcher.hpp"
#include "proxy/carrier.hpp"
#include "proxy/domain_account.hpp"
#include "proxy/ingress.hpp"

using namespace crane::proxy;
using namespace crane::timebubble;

namespace {

constexpr uint32_t kReplicas = 3;
constexpr uint64_t kPatience = 40;

struct TestClient final : Endpoint {
    explicit TestClient(uint32_t replica) : at(replica) {}
    void set_user(EndpointUser* now) override { user = now; }
    void allow_input(bool yes) override { allowed = yes; }
    void send(std::string_view bytes) override { heard.append(bytes); }
    void probe(const crane::timebubble::ProbeRecord&) override {}
    void finish() override {}
    void close() override {
        user = nullptr;
        closed = true;
    }
    void reset() override {
        user = nullptr;
        was_reset = true;
    }

    uint32_t at;
    EndpointUser* user = nullptr;
    bool allowed = false;
    bool closed = false;
    bool was_reset = false;
    bool gone = false;  ///< by its own deed, or with its replica
    bool ended = false;
    std::string text;
    size_t said = 0;
    size_t taken = 0;
    std::string heard;
};

/// The server: sends back what it gets as far as the window lets it, closes after the client's end. Its own
/// pace on each replica.
struct EchoDomain {
    struct One {
        uint64_t input = 0;
        std::string text;  ///< all of it
        uint64_t sent = 0;
        uint64_t window_end = crane::timebubble::kFirstWindowBytes;
        bool ended = false;
    };
    std::map<uint64_t, One> open;
    std::set<uint64_t> ever;

    template <typename Emit>
    void apply(const Call& call, const Emit& emit) {
        const auto record = [&](OutputKind kind, std::string_view payload) {
            emit(OutputHeader{static_cast<uint32_t>(payload.size()), kind, 0, call.connection, 0, 0},
                 payload);
        };
        if (call.kind == CallKind::kConnect) {
            REQUIRE(ever.insert(call.connection).second);  // a connection is decided once
            open[call.connection];
        }
        const auto found = open.find(call.connection);
        if (found == open.end()) return;
        One& one = found->second;
        if (call.kind == CallKind::kSend) {
            one.input += call.payload.size();
            one.text.append(call.payload);
            record(OutputKind::kConsumed, {reinterpret_cast<const char*>(&one.input), 8});
        } else if (call.kind == CallKind::kWindow) {
            uint64_t end = 0;
            REQUIRE(read_number(call.payload, end));
            one.window_end = std::max(one.window_end, end);
        }
        const uint64_t to = std::min<uint64_t>(one.text.size(), one.window_end);
        if (to > one.sent)
            record(OutputKind::kSend, std::string_view(one.text).substr(one.sent, to - one.sent));
        one.sent = to;
        one.ended |= call.kind == CallKind::kShutdown;
        if (call.kind == CallKind::kReset || (one.ended && one.sent == one.text.size())) {
            open.erase(found);
            record(OutputKind::kClose, {});
        }
    }
};

struct Replica {
    uint32_t id;
    Batcher batcher;
    DomainAccount account{1 << 20};
    bool lags = false;
    bool will_stand = false;  ///< its domain
    bool stands = false;
    AttachedClients clients;
    Carrier carrier;
    Ingress ingress;
    EchoDomain domain;
    size_t delivered = 0;  ///< log entries seen as decided
    size_t executed = 0;   ///< of them, by the domain

    Replica(uint32_t self, Carrier::Send send)
        : id(self),
          clients(self, true, [this] { return lags; }),
          carrier(self, clients, std::move(send)),
          ingress({self, 1 << 20, kPatience}, batcher, account,
                  [this](uint32_t to) { return carrier.reply_to(to); }) {
        carrier.set_ingress(&ingress);
    }
};

class World {
  public:
    explicit World(uint64_t seed) : random_(seed) {
        for (uint32_t id = 1; id <= kReplicas; ++id) start(id);
        elect();
    }

    void step() {
        ++now_;
        if (one_in(60)) elect();
        if (one_in(150)) cut(1 + random_() % kReplicas, 1 + random_() % kReplicas);
        if (one_in(400)) kill_one();
        if (one_in(80)) lose_message();
        if (one_in(4) && clients_.size() < 60) arrive();
        if (one_in(40)) {
            Replica& one = at(1 + random_() % kReplicas);
            one.stands = !one.stands;
        }
        for (auto& client : clients_) act(*client);
        turn();
    }

    void settle() {
        for (int i = 0; i < 400; ++i) {
            ++now_;
            for (auto& client : clients_) {
                finish_ = true;
                act(*client);
            }
            if (i % 100 == 0) elect();
            turn();
        }
    }

    void check() {
        for (const auto& client : clients_) {
            if (client->gone) continue;
            CHECK_FALSE(client->was_reset);
            CHECK(client->closed);
            CHECK(client->heard == client->text);
        }
        for (uint32_t id = 1; id <= kReplicas; ++id) {
            CHECK(at(id).account.open().empty());
            CHECK(at(id).domain.open.empty());
            CHECK(at(id).clients.size() == 0);
            CHECK(at(id).clients.held_bytes() == 0);
        }
        CHECK(at(leader_).ingress.size() == 0);
        CHECK(at(leader_).ingress.held_back() == 0);
        CHECK(at(leader_).ingress.output_bytes() == 0);
        CHECK(at(leader_).account.connections() == 0);
        CHECK(at(leader_).account.input_bytes() == 0);
    }

    /// Of a replica that does not lead, some that have been served before, and some that have just come.
    bool serves_while_standing() {
        Replica& stands = at(leader_ % kReplicas + 1);
        for (int i = 0; i < 10; ++i) come_to(stands.id);
        for (int i = 0; i < 30; ++i) {
            for (auto& client : clients_) act(*client);
            turn();
        }
        stands.will_stand = true;
        stands.clients.want_copies(true);
        for (int i = 0; i < 200 && !stands.clients.copies_joined(); ++i) turn();
        if (!stands.clients.copies_joined()) return false;
        stands.stands = true;
        come_to(stands.id);
        const size_t executed = stands.executed;
        for (int i = 0; i < 400; ++i) {
            for (auto& client : clients_) act(*client);
            turn();
        }
        const bool served = stands.executed == executed && std::ranges::all_of(clients_, [](const auto& c) {
                                return c->gone || (c->closed && c->heard == c->text);
                            });
        stands.will_stand = false;
        settle();
        check();
        return served && stands.executed > executed;
    }

    uint64_t finished() const {
        return static_cast<uint64_t>(
            std::count_if(clients_.begin(), clients_.end(), [](const auto& c) { return c->closed; }));
    }

  private:
    struct Message {
        uint32_t from, to;
        std::string bytes;
    };

    bool one_in(uint64_t n) { return random_() % n == 0; }
    Replica& at(uint32_t id) { return *replicas_.at(id); }

    void start(uint32_t id) {
        replicas_[id] = std::make_unique<Replica>(id, [this, id](uint32_t to, std::string bytes) {
            if (one_in(10)) return false;  // full just now
            wire_.push_back({id, to, std::move(bytes)});
            return true;
        });
        for (uint32_t other = 1; other <= kReplicas; ++other) {
            if (other == id || !replicas_.count(other)) continue;
            link(id, other, true);
        }
    }

    void link(uint32_t a, uint32_t b, bool up) {
        std::erase_if(wire_, [&](const Message& m) {
            return (m.from == a && m.to == b) || (m.from == b && m.to == a);
        });
        for (const auto& [x, y] : {std::pair{a, b}, {b, a}}) {
            at(x).carrier.on_link(y, up);
            at(x).ingress.on_link(y, up, now_);
        }
    }

    void cut(uint32_t a, uint32_t b) {
        if (a == b) return;
        link(a, b, false);
        link(a, b, true);
    }

    void lose_message() {
        if (!wire_.empty()) wire_.erase(wire_.begin() + static_cast<ptrdiff_t>(random_() % wire_.size()));
    }

    /// Some of what the old leader has proposed is decided after all; the rest never will be.
    void elect() {
        if (leader_ != 0) {
            Replica& old = at(leader_);
            if (one_in(2)) propose(old);
            old.ingress.stop();
            old.batcher.clear();
            old.account.forget_proposals();
        }
        ++view_;
        leader_ = static_cast<uint32_t>(1 + random_() % kReplicas);
        std::vector<uint32_t> order = {1, 2, 3};
        std::shuffle(order.begin(), order.end(), random_);
        for (uint32_t id : order) {
            if (id == leader_) become_leader();
            // Some hear of it before the welcome, some after.
            if (!one_in(3)) at(id).carrier.set_view(view_, leader_);
            untold_.insert(id);
        }
    }

    void become_leader() {
        Replica& leader = at(leader_);
        while (leader.delivered < log_.size()) deliver(leader);
        leader.carrier.set_view(view_, leader_);
        leader.ingress.lead(leader.account.table(), now_);
        lead_entries_ = log_.size();
    }

    void kill_one() {
        const uint32_t id = static_cast<uint32_t>(1 + random_() % kReplicas);
        for (auto& client : clients_) {
            if (client->at == id) client->gone = true;
        }
        for (uint32_t other = 1; other <= kReplicas; ++other) {
            if (other != id) link(id, other, false);
        }
        const bool led = leader_ == id;
        replicas_.erase(id);
        start(id);
        if (led) {
            leader_ = 0;
            elect();
        } else {
            at(id).carrier.set_view(view_, leader_);
        }
    }

    void arrive() {
        const uint32_t id = static_cast<uint32_t>(1 + random_() % kReplicas);
        at(id).lags = one_in(3);
        come_to(id);
    }

    void come_to(uint32_t id) {
        clients_.push_back(std::make_unique<TestClient>(id));
        ConnectPayload from{};
        from.peer_port = static_cast<uint16_t>(clients_.size());
        at(id).clients.attach(clients_.back().get(), from, now_ + 100'000);
    }

    void act(TestClient& client) {
        if (client.gone || client.closed || client.was_reset) return;
        if (const size_t news = client.heard.size() - client.taken; news != 0 && !one_in(3)) {
            client.taken += news;
            client.user->on_taken(news);
        }
        if (client.ended || !client.allowed || (!finish_ && one_in(2))) return;
        if (finish_ || one_in(8)) {
            client.ended = true;
            client.user->on_input_end();
        } else if (one_in(300)) {
            client.gone = true;
            client.user->on_gone();
        } else {
            std::string piece(1 + random_() % (one_in(20) ? 300'000 : 200), '\0');
            piece.resize(std::min<uint64_t>(piece.size(), client.user->input_room()));
            if (piece.empty()) return;
            for (char& c : piece) c = static_cast<char>('a' + random_() % 26);
            client.text += piece;
            client.user->on_input(piece);
        }
    }

    void turn() {
        for (auto left = wire_.size(); left > 0 && !wire_.empty(); --left) {
            const Message message = std::move(wire_.front());
            wire_.pop_front();
            at(message.to).carrier.on_message(message.from, message.bytes);
        }
        for (uint32_t id : untold_) at(id).carrier.set_view(view_, leader_);
        untold_.clear();
        if (one_in(2) || finish_) propose(at(leader_));
        for (auto& [id, replica] : replicas_) {
            while (replica->delivered < log_.size() && (finish_ || !one_in(4))) deliver(*replica);
            replica->stands &= !finish_ && id != leader_;
            if (one_in(5)) replica->clients.want_copies(replica->will_stand || replica->stands);
            while (replica->executed < replica->delivered && !replica->stands && (finish_ || !one_in(3)))
                execute(*replica);
            if (replica->ingress.leading() && replica->executed >= lead_entries_) replica->ingress.settle();
            replica->ingress.tick(now_);
            if (one_in(5)) replica->clients.reap(now_);
            replica->carrier.end_turn();
        }
    }

    void propose(Replica& leader) {
        while (!leader.batcher.empty()) log_.push_back(leader.batcher.take(1, 1));
    }

    void deliver(Replica& replica) {
        for_calls(log_[replica.delivered++], [&](const Call& call) {
            replica.account.decided(call);
            replica.clients.on_decided(call);
        });
    }

    void execute(Replica& replica) {
        for_calls(log_[replica.executed++], [&](const Call& call) {
            replica.domain.apply(call, [&](const OutputHeader& header, std::string_view payload) {
                replica.account.on_output(header, payload);
                replica.clients.on_output(header, payload);
                replica.ingress.on_output(header, payload);
            });
        });
    }

    template <typename Do>
    static void for_calls(const std::string& batch, const Do& then) {
        BatchDecoder decoder;
        REQUIRE(decoder.open(reinterpret_cast<const uint8_t*>(batch.data()), batch.size()));
        for (Call call; decoder.next(call);) then(call);
    }

    std::mt19937_64 random_;
    uint64_t now_ = 1000;
    uint64_t view_ = 0;
    uint32_t leader_ = 0;
    size_t lead_entries_ = 0;
    bool finish_ = false;
    std::set<uint32_t> untold_;
    std::vector<std::string> log_;
    std::deque<Message> wire_;
    std::vector<std::unique_ptr<TestClient>> clients_;
    std::map<uint32_t, std::unique_ptr<Replica>> replicas_;
};

}  // namespace

TEST_CASE("handover: clients of replicas that survive are never reset, and no byte is lost or said twice",
          "[proxy]") {
    uint64_t finished = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        World world(seed);
        for (int i = 0; i < 600; ++i) world.step();
        world.settle();
        world.check();
        finished += world.finished();
    }
    CHECK(finished > 1000);
}

TEST_CASE("handover: clients are served by the primary's copy while their own domain stands still",
          "[proxy]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        CHECK(World(seed).serves_while_standing());
    }
}

TEST_CASE("handover: what waits for a slow replica takes the memory that it is, and no more", "[memory]") {
    Replica primary(1, [](uint32_t, const std::string&) { return false; });
    primary.carrier.on_link(2, true);
    primary.carrier.set_view(1, 1);
    const auto used = [] {
        const struct mallinfo2 now = mallinfo2();  // nothing under a sanitizer, whose heap is another
        return now.uordblks + now.hblkhd;
    };
    const std::string piece(16 * 1024, 'x');
    constexpr size_t kPieces = 4200;  // somewhat more than a power of two in all
    const size_t before = used();
    for (size_t i = 0; i < kPieces; ++i) {
        primary.carrier.reply_to(2)->copied(7, i * piece.size(), piece);
        primary.carrier.end_turn();
    }
    const size_t taken = used() - before;
    CHECK(taken <= kPieces * piece.size() * 11 / 10);
    primary.carrier.on_link(2, false);
    primary.carrier.on_link(2, true);
    CHECK(used() - before <= kPieces * piece.size() / 10);
}
