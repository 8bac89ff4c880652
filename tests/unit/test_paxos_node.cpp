// Real nodes, sockets and databases: a cluster in one process, on one event loop.
#include <arpa/inet.h>
#include <event2/event.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <map>

#include "paxos/frame.hpp"
#include "paxos/node.hpp"

using namespace crane::paxos;

namespace {

using Clock = std::chrono::steady_clock;

uint16_t free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

// Ends every TCP connection of this process, or those to one port; how many ends there were.
int cut_connections(uint16_t port) {
    int cut = 0;
    for (int fd = 3; fd < 1024; ++fd) {
        sockaddr_in address{};
        socklen_t size = sizeof address;
        if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
        if (address.sin_family != AF_INET) continue;
        uint16_t ports[] = {ntohs(address.sin_port), 0};
        if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
            ports[1] = ntohs(address.sin_port);
        if (port == 0 || ports[0] == port || ports[1] == port) cut += shutdown(fd, SHUT_RDWR) == 0;
    }
    return cut;
}

struct Running {
    std::unique_ptr<Node> node;
    std::vector<Entry> decided;
    std::vector<Role> roles;
    std::vector<std::pair<uint32_t, std::string>> app, reports;
    unsigned writable = 0;
    std::string fatal;
};

class NodeCluster {
  public:
    explicit NodeCluster(unsigned replicas, uint32_t election_timeout_ms = 300)
        : base_(event_base_new(), event_base_free) {
        spdlog::set_level(spdlog::level::err);
        char name[] = "/tmp/crane-unit-node-XXXXXX";
        directory_ = mkdtemp(name);
        for (uint32_t id = 1; id <= replicas; ++id) config_.members.push_back({id, "127.0.0.1", free_port()});
        config_.cluster_id = "unit";
        config_.heartbeat_ms = 20;
        config_.election_timeout_ms = election_timeout_ms;
        for (uint32_t id = 1; id <= replicas; ++id) start(id);
    }
    ~NodeCluster() {
        members_.clear();
        std::filesystem::remove_all(directory_);
    }

    NodeConfig config(uint32_t id) const {
        NodeConfig config = config_;
        config.self = id;
        config.db_dir = directory_ + "/r" + std::to_string(id);
        return config;
    }

    void start(uint32_t id, const LogPosition& checkpoint = {}) {
        Running& member = members_[id];
        member.decided.clear();
        NodeCallbacks callbacks;
        callbacks.on_decided = [&member](const Entry& entry) { member.decided.push_back(entry); };
        callbacks.on_role = [&member](Role role, uint64_t, uint32_t) { member.roles.push_back(role); };
        callbacks.make_report = [id] { return "report of " + std::to_string(id); };
        callbacks.on_report = [&member](uint32_t from, const std::string& report) {
            member.reports.emplace_back(from, report);
        };
        callbacks.on_app_message = [&member](uint32_t from, std::string message) {
            member.app.emplace_back(from, std::move(message));
        };
        callbacks.on_writable = [&member] { ++member.writable; };
        callbacks.on_fatal = [&member](const std::string& reason) { member.fatal = reason; };
        NodeConfig own = config(id);
        own.checkpoint = checkpoint;
        member.node = std::make_unique<Node>(base_.get(), own, callbacks);
        member.node->start(checkpoint.index + 1);
    }

    void stop(uint32_t id) { members_.at(id).node.reset(); }

    template <typename Condition>
    bool run_until(Condition condition, int timeout_s = 10) {
        const auto limit = Clock::now() + std::chrono::seconds(timeout_s);
        while (!condition()) {
            if (Clock::now() > limit) return false;
            const timeval tick{0, 2'000};  // look again now and then even if nothing happens
            event_base_loopexit(base_.get(), &tick);
            event_base_loop(base_.get(), EVLOOP_ONCE);
        }
        return true;
    }

    void run_for(int ms) {
        const auto limit = Clock::now() + std::chrono::milliseconds(ms);
        run_until([&] { return Clock::now() >= limit; });
    }

    uint32_t leader() const {
        for (const auto& [id, member] : members_)
            if (member.node != nullptr && member.node->role() == Role::Leader) return id;
        return 0;
    }
    bool await_leader() {
        return run_until([&] { return leader() != 0 && members_.at(leader()).node->can_propose(); });
    }
    Running& operator[](uint32_t id) { return members_.at(id); }
    std::map<uint32_t, Running>& members() { return members_; }
    event_base* base() { return base_.get(); }

    size_t values(uint32_t id) const {
        size_t count = 0;
        for (const Entry& entry : members_.at(id).decided) count += entry.kind == EntryKind::Value;
        return count;
    }

    // Proposes `count` values, keeping the pipeline full, until all running replicas have `total` of them.
    bool pump(unsigned count, size_t total) {
        unsigned proposed = 0;
        return run_until([&] {
            const uint32_t at = leader();
            while (at != 0 && proposed < count &&
                   members_.at(at).node->propose("value " + std::to_string(next_)))
                ++proposed, ++next_;
            if (proposed < count) return false;
            for (const auto& [id, member] : members_)
                if (member.node != nullptr && values(id) < total) return false;
            return true;
        });
    }

    bool same_everywhere() {
        for (const auto& [id, member] : members_)
            for (const auto& [other, peer] : members_)
                for (size_t i = 0; i < std::min(member.decided.size(), peer.decided.size()); ++i)
                    if (member.decided[i].index != i + 1 ||
                        member.decided[i].chain != peer.decided[i].chain ||
                        *member.decided[i].value != *peer.decided[i].value)
                        return false;
        return true;
    }

  private:
    std::unique_ptr<event_base, void (*)(event_base*)> base_;
    std::string directory_;
    NodeConfig config_;
    std::map<uint32_t, Running> members_;
    unsigned next_ = 0;
};

}  // namespace

TEST_CASE("paxos node: three replicas decide, lose their leader, go on, and get it back") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(1000, 1000));
    REQUIRE(cluster.same_everywhere());

    const uint32_t old = cluster.leader();
    cluster.stop(old);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.leader() != old);
    REQUIRE(cluster.pump(1000, 2000));
    REQUIRE(cluster.same_everywhere());

    cluster.start(old);
    REQUIRE(cluster.run_until([&] { return cluster.values(old) == 2000; }));
    REQUIRE(cluster.same_everywhere());
    REQUIRE(cluster.pump(10, 2010));
}

// Its connections end with it, and nobody listens where it did.
TEST_CASE("paxos node: nobody waits out the election timeout for a leader whose process has ended") {
    NodeCluster cluster(3, 5'000);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t old = cluster.leader();
    const uint64_t view = cluster[old].node->view();
    cluster.stop(old);
    const auto ended = Clock::now();
    REQUIRE(cluster.await_leader());
    REQUIRE(Clock::now() - ended < std::chrono::milliseconds(2'500));
    REQUIRE(view_counter(cluster[cluster.leader()].node->view()) == view_counter(view) + 1);
    REQUIRE(cluster.pump(10, 20));
    REQUIRE(cluster.same_everywhere());
}

// It can be dialled again at once, so its end is not what ended the connections.
TEST_CASE("paxos node: a leader whose connections are cut stays the leader") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t leader = cluster.leader();
    const uint64_t view = cluster[leader].node->view();
    for (int round = 0; round < 5; ++round) {
        // First the ways to the leader alone, then one in each direction between any two; each has two ends.
        const uint16_t port = round < 3 ? cluster.config(leader).members[leader - 1].port : 0;
        REQUIRE(cut_connections(port) >= (port != 0 ? 4 : 12));
        cluster.run_for(10);  // nothing is proposed: the leader is silent, as far as it may be
        REQUIRE(cluster.run_until([&] {
            for (const auto& [id, member] : cluster.members())
                for (const PeerStatus& peer : member.node->peers())
                    if (!peer.connected) return false;
            return true;
        }));
        REQUIRE(cluster.pump(10, 20 + 10 * round));
    }
    for (const auto& [id, member] : cluster.members()) {
        REQUIRE(member.node->view() == view);
        REQUIRE(member.node->leader() == leader);
    }
}

TEST_CASE("paxos node: a single replica decides alone and finds it all again") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(300, 300));
    cluster.stop(1);
    cluster.start(1);
    REQUIRE(cluster.run_until([&] { return cluster.values(1) == 300; }));
    REQUIRE(cluster.pump(5, 305));
}

TEST_CASE("paxos node: the whole cluster stops and starts again") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(500, 500));
    for (uint32_t id : {1, 2, 3}) cluster.stop(id);
    for (uint32_t id : {1, 2, 3}) cluster.start(id);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(1, 501));
    REQUIRE(cluster.same_everywhere());
}

TEST_CASE("paxos node: a clean shutdown hands leadership over without an election timeout") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t old = cluster.leader();
    bool done = false;
    for (auto& [id, member] : cluster.members()) member.roles.clear();
    cluster[old].node->shutdown([&] { done = true; });
    REQUIRE_FALSE(cluster[old].node->propose("too late"));
    REQUIRE(cluster.run_until([&] { return done && cluster.leader() != 0; }));
    for (const auto& [id, member] : cluster.members())  // ordered, not found out by a timeout
        for (Role role : member.roles) REQUIRE(role != Role::PreCandidate);
    cluster.stop(old);
    REQUIRE(cluster.pump(10, 20));
}

TEST_CASE("paxos node: leadership is transferred on request") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(10, 10));
    const uint32_t next = cluster.leader() % 3 + 1;
    cluster[cluster.leader()].node->transfer_leadership(next);
    REQUIRE(cluster.run_until([&] { return cluster.leader() == next; }));
    REQUIRE(cluster[next].roles.back() == Role::Leader);
    REQUIRE(cluster.pump(10, 20));
}

TEST_CASE("paxos node: application messages keep their order, and are bounded") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.run_until([&] {
        for (const PeerStatus& peer : cluster[1].node->peers())
            if (!peer.connected) return false;
        return true;
    }));
    for (int i = 0; i < 100; ++i) REQUIRE(cluster[1].node->send_app_message(2, std::to_string(i)));
    REQUIRE(cluster[1].node->send_app_message(2, std::string(5u << 20, 'x')));
    REQUIRE(cluster.run_until([&] { return cluster[2].app.size() == 101; }));
    for (int i = 0; i < 100; ++i) {
        REQUIRE(cluster[2].app[i].first == 1);
        REQUIRE(cluster[2].app[i].second == std::to_string(i));
    }
    REQUIRE(cluster[2].app[100].second.size() == 5u << 20);
    REQUIRE_FALSE(cluster[1].node->send_app_message(2, std::string(max_app_message_bytes + 1, 'x')));
    REQUIRE_FALSE(cluster[1].node->send_app_message(9, "nobody"));
    unsigned accepted = 0;
    while (accepted < 100 && cluster[1].node->send_app_message(3, std::string(1u << 20, 'x'))) ++accepted;
    REQUIRE(accepted < 100);
    REQUIRE(cluster.run_until([&] { return cluster[3].app.size() == accepted; }));
    cluster.stop(3);
    REQUIRE(cluster.run_until([&] { return !cluster[1].node->send_app_message(3, "gone"); }));
}

TEST_CASE("paxos node: reports reach the leader, and the pipeline says when it has room") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    Running& leader = cluster[cluster.leader()];
    unsigned proposed = 0;
    while (leader.node->propose("x")) ++proposed;
    REQUIRE(proposed <= 1024);
    REQUIRE(proposed > 1000);
    REQUIRE(cluster.run_until([&] { return leader.writable == 1; }));
    REQUIRE(leader.node->can_propose());
    REQUIRE_FALSE(leader.reports.empty());
    for (const auto& [from, report] : leader.reports) REQUIRE(report == "report of " + std::to_string(from));
}

TEST_CASE("paxos node: delivery can be held back") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    const uint32_t held = cluster.leader() % 3 + 1;
    REQUIRE(cluster.pump(10, 10));
    cluster[held].node->pause_delivery(true);
    const size_t before = cluster[held].decided.size();
    Running& leader = cluster[cluster.leader()];
    for (int i = 0; i < 100; ++i) REQUIRE(leader.node->propose("y"));
    REQUIRE(cluster.run_until([&] { return cluster[held].node->decided_index() >= before + 100; }));
    REQUIRE(cluster[held].decided.size() == before);
    cluster[held].node->pause_delivery(false);
    REQUIRE(cluster.run_until([&] { return cluster[held].decided.size() == before + 100; }));
}

TEST_CASE("paxos node: the log is cut on disk") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(3000, 3000));
    cluster[1].node->truncate_log(2900);
    REQUIRE(cluster[1].node->first_log_index() == 2901);
    REQUIRE(cluster.pump(5, 3005));
    cluster.stop(1);
    REQUIRE_THROWS_WITH(cluster.start(1), Catch::Contains("has been cut"));
}

TEST_CASE("paxos node: a replica that lost its database rejoins from a checkpoint") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    REQUIRE(cluster.pump(500, 500));
    const uint32_t lost = cluster.leader() % 3 + 1;
    const Entry last_in_checkpoint = cluster[lost].decided.at(399);
    cluster.stop(lost);
    std::filesystem::remove_all(cluster.config(lost).db_dir);
    for (auto& [id, member] : cluster.members())
        if (member.node != nullptr) member.node->truncate_log(300);
    cluster.start(lost, last_in_checkpoint.position());
    REQUIRE(cluster[lost].node->rejoining());
    const auto has_the_rest = [&](size_t proposed) {
        const uint32_t leader = cluster.leader();
        return cluster.values(leader) == proposed &&
               cluster[lost].decided.size() + 400 == cluster[leader].decided.size();
    };
    REQUIRE(cluster.run_until(
        [&] { return cluster.leader() != 0 && has_the_rest(500) && !cluster[lost].node->rejoining(); }));
    REQUIRE(cluster[lost].decided.front().index == 401);
    REQUIRE(cluster[cluster.leader()].node->propose("more"));
    REQUIRE(cluster.run_until([&] { return cluster.leader() != 0 && has_the_rest(501); }));
}

TEST_CASE("paxos node: strangers are refused") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    struct Case {
        std::string sent;
        std::string reason;
    };
    const std::vector<Case> cases = {
        {make_frame(FrameType::Hello, encode_hello({protocol_version, 2, 1, "other"})), "another cluster"},
        {make_frame(FrameType::Hello, encode_hello({protocol_version + 1, 2, 1, "unit"})),
         "protocol version"},
        {make_frame(FrameType::Hello, encode_hello({protocol_version, 9, 1, "unit"})), "not a member"},
        {make_frame(FrameType::Hello, encode_hello({protocol_version, 2, 5, "unit"})), "this is replica 1"},
        {make_frame(FrameType::App, "no greeting"), ""},
        {"GET / HTTP/1.1\r\nHost: example\r\n\r\n", ""},
    };
    for (const Case& each : cases) {
        INFO(each.reason);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(cluster.config(1).members[0].port);
        REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(write(fd, each.sent.data(), each.sent.size()) == static_cast<ssize_t>(each.sent.size()));
        std::string answer;
        REQUIRE(cluster.run_until([&] {
            char buffer[512];
            const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (got > 0) answer.append(buffer, static_cast<size_t>(got));
            return got == 0 || (got < 0 && errno != EAGAIN);
        }));
        REQUIRE(answer.find(each.reason) != std::string::npos);
        REQUIRE(answer.empty() == each.reason.empty());
        close(fd);
    }
    REQUIRE(cluster[1].app.empty());
    REQUIRE(cluster.pump(5, 5));
}

TEST_CASE("paxos node: bad configurations are refused with a reason") {
    NodeCluster cluster(1);
    NodeConfig config = cluster.config(1);
    config.db_dir += "-other";
    SECTION("address in use") {
        REQUIRE_THROWS_WITH(Node(cluster.base(), config, {}), Catch::Contains("already running"));
    }
    SECTION("not a member") {
        config.self = 4;
        REQUIRE_THROWS_WITH(Node(cluster.base(), config, {}), Catch::Contains("not among the members"));
    }
    SECTION("timeouts") {
        config.election_timeout_ms = config.heartbeat_ms;
        REQUIRE_THROWS_WITH(Node(cluster.base(), config, {}), Catch::Contains("election_timeout_ms"));
    }
}

TEST_CASE("paxos node: an idle cluster costs next to nothing") {
    NodeCluster cluster(3);
    REQUIRE(cluster.await_leader());
    cluster.run_for(100);
    const NodeStats before = cluster[cluster.leader()].node->stats();
    cluster.run_for(400);
    const NodeStats after = cluster[cluster.leader()].node->stats();
    REQUIRE(after.syncs == before.syncs);
    REQUIRE(after.messages_sent - before.messages_sent <= 2 * 400 / 20 + 4);  // heartbeats alone
}
