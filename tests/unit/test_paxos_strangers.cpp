// Who may speak to a replica, and who may not: real sockets, with and without TLS.
#include <arpa/inet.h>

#include <cerrno>
#include <deque>
#include <set>

#include "paxos/link/connection.hpp"
#include "paxos/link/openssl.hpp"
#include "paxos/link/refusal_log.hpp"
#include "paxos/link/strangers.hpp"
#include "paxos/link/tls.hpp"
#include "paxos/link/tls_stream.hpp"
#include "test_paxos_node.hpp"
#include "test_paxos_tls.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

int open_socket(uint16_t port, const char* from = "127.0.0.1") {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    REQUIRE(inet_pton(AF_INET, from, &address.sin_addr) == 1);
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return fd;
}

// For tests of what is done to those who have not said who they are before they are late: a busy machine may
// take seconds to let all of them in.
void greet_at_leisure(NodeConfig& config) {
    config.greeting_timeout_ms = 60'000;
}

// A peer of which the test says what it does.
struct Guest {
    std::string refused, closed;
    bool welcome = false;
    std::unique_ptr<Connection> connection;

    Guest(event_base* base, std::unique_ptr<Stream> stream, const std::string& first) {
        Connection::Handlers handlers;
        handlers.on_ready = [this, first] {
            if (!first.empty()) connection->queue(first, true);
        };
        handlers.on_frame = [this](FrameType type, std::string_view payload) {
            if (type == FrameType::kRefused) refused = payload;
            welcome |= type == FrameType::kWelcome;
            return true;
        };
        handlers.on_closed = [this](const std::string& reason) { closed = reason; };
        connection = std::make_unique<Connection>(base, std::move(stream), true, std::move(handlers));
    }
};

std::string hello(ReplicaId from, ReplicaId to, const std::string& cluster = "unit", Versions versions = {}) {
    return make_frame(FrameType::kHello, encode_hello({versions, from, to, cluster}));
}

// Waits for the other side to close, and returns what it said before.
std::string hear_out(NodeCluster& cluster, int fd) {
    std::string answer;
    REQUIRE(cluster.run_until([&] {
        char buffer[512];
        const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got > 0) answer.append(buffer, static_cast<size_t>(got));
        return got == 0 || (got < 0 && errno != EAGAIN);
    }));
    close(fd);
    return answer;
}

struct SecureCluster {
    Authority authority;
    NodeCluster nodes;
    explicit SecureCluster(unsigned replicas)
        : nodes(replicas, {}, [this](uint32_t id) { return authority.files(id); }) {}

    uint16_t port(uint32_t id) const { return nodes.config(id).members.at(id - 1).port; }
    // One that shows the certificate of `as`, and says `first`.
    std::unique_ptr<Guest> visit(const Authority& signer, ReplicaId as, const std::string& first) {
        TlsContext context(signer.files(as),
                           {inspect_certificate(signer.pair().certificate).identity.cluster, as});
        return std::make_unique<Guest>(nodes.base(),
                                       context.secure(make_plain_stream(open_socket(port(1))), true), first);
    }
};

}  // namespace

TEST_CASE("paxos strangers: who does not fit is refused with a reason") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    struct Case {
        std::string sent;
        std::string reason;
    };
    std::string huge = hello(2, 1);
    huge[3] = 0x7f;  // the length's highest byte
    const std::vector<Case> cases = {
        {hello(2, 1, "other"), "another cluster"},
        {hello(2, 1, "unit", {kProtocolVersion + 1, kProtocolVersion + 2}), "protocol version"},
        {hello(2, 1, "unit", {1, kOldestProtocolVersion - 1}), "protocol version"},
        {hello(9, 1), "not a member"},
        {hello(2, 5), "this is replica 1"},
        {make_frame(FrameType::kApp, "no greeting"), ""},
        {make_frame(FrameType::kRefused, "you are not welcome"), ""},
        {make_frame(FrameType::kHello, std::string(kMaxGreetingBytes + 1, 'x')), ""},
        {huge, ""},
        {"GET / HTTP/1.1\r\nHost: example\r\n\r\n", ""},
    };
    for (const Case& each : cases) {
        INFO(each.reason);
        const int fd = open_socket(cluster.config(1).members[0].port);
        REQUIRE(write(fd, each.sent.data(), each.sent.size()) == static_cast<ssize_t>(each.sent.size()));
        const std::string answer = hear_out(cluster, fd);
        REQUIRE(answer.find(each.reason) != std::string::npos);
        REQUIRE(answer.empty() == each.reason.empty());
    }
    REQUIRE(cluster[1].app.empty());
    REQUIRE(cluster.pump(5, 5));
}

TEST_CASE("paxos strangers: one that never finishes its greeting is closed in time") {
    NodeCluster cluster(1);
    REQUIRE(cluster.await_leader());
    LogLines log;
    const std::string greeting = hello(2, 1);
    const int fd = open_socket(cluster.config(1).members[0].port);
    const auto begin = Clock::now();
    size_t sent = 0;
    bool ended = false;
    REQUIRE(cluster.run_until([&] {  // a byte now and then, but never the last one
        char byte;
        ended = recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
        const bool due = Clock::now() - begin > std::chrono::milliseconds(40 * sent);
        if (!ended && due && sent + 1 < greeting.size()) send(fd, greeting.data() + sent++, 1, MSG_NOSIGNAL);
        return ended;
    }));
    close(fd);
    REQUIRE(sent > 10);
    REQUIRE(log.has("no greeting in time"));
}

TEST_CASE("paxos strangers: idle connections keep no member out") {
    NodeCluster cluster(3, greet_at_leisure);
    REQUIRE(cluster.await_leader());
    cluster.stop(3);
    REQUIRE(cluster.run_until([&] { return cluster.linked({1, 2}); }));
    LogLines log;
    std::vector<int> idle;
    for (int i = 0; i < 160; ++i) {
        idle.push_back(open_socket(cluster.config(1).members[0].port));
        int turns = 0;
        if (i % 16 == 0) REQUIRE(cluster.run_until([&] { return ++turns > 2; }));
    }
    cluster.start(3);
    REQUIRE(cluster.run_until([&] { return cluster.linked({1, 2, 3}); }));
    for (const int fd : idle) close(fd);
    REQUIRE(log.count("that do not say who they are") == 1);
}

TEST_CASE("paxos strangers: who comes in numbers goes, by lot, and others stay") {
    std::vector<uint64_t> sources(100, 7);
    sources[3] = sources[50] = 8;
    std::set<size_t> gone;
    for (uint64_t lot = 0; lot < 1000; ++lot) gone.insert(one_too_many(sources, lot));
    CHECK(gone.size() == 98);
    CHECK(gone.count(3) + gone.count(50) == 0);
    // Where all have as many, all draw.
    for (uint64_t lot = 0; lot < 4; ++lot) CHECK(one_too_many({1, 2, 3, 4}, lot) == lot);
    CHECK(one_too_many({9}, 123) == 0);

    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(0x0a000001);
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    inet_pton(AF_INET6, "::ffff:10.0.0.1", &six.sin6_addr);
    const auto source = [](auto& address) { return source_of(reinterpret_cast<sockaddr*>(&address)); };
    CHECK(source(four) == source(six));
    inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
    const uint64_t network = source(six);
    inet_pton(AF_INET6, "2001:db8::dead:beef", &six.sin6_addr);
    CHECK(source(six) == network);
    inet_pton(AF_INET6, "2001:db8:0:1::1", &six.sin6_addr);
    CHECK(source(six) != network);
}

TEST_CASE("paxos strangers: a flood from elsewhere closes nobody who is about to say who it is") {
    NodeCluster cluster(1, greet_at_leisure);
    REQUIRE(cluster.await_leader());
    const uint16_t port = cluster.config(1).members[0].port;
    const int slow = open_socket(port);
    std::deque<int> flood;
    for (int i = 0; i < 1000; ++i) {
        flood.push_back(open_socket(port, "127.0.0.2"));
        if (flood.size() > 200) {
            close(flood.front());
            flood.pop_front();
        }
        int turns = 0;
        if (i % 16 == 0) REQUIRE(cluster.run_until([&] { return ++turns > 2; }));
    }
    const std::string greeting = hello(9, 1);
    REQUIRE(send(slow, greeting.data(), greeting.size(), MSG_NOSIGNAL) > 0);
    CHECK(hear_out(cluster, slow).find("not a member") != std::string::npos);  // it was heard
    for (const int fd : flood) close(fd);
}

TEST_CASE("paxos strangers: the log is not filled by one that tries again and again") {
    RefusalLog log;
    REQUIRE(log.is_news("a", 1000));
    REQUIRE_FALSE(log.is_news("a", 2000));
    REQUIRE(log.is_news("b", 2000));
    REQUIRE(log.is_news("a", 1000 + RefusalLog::kRepeatAfterMs));
    for (size_t i = 0; i < 10 * RefusalLog::kMaxReasons; ++i) log.is_news(std::to_string(i), 3000);
    REQUIRE(log.suppressed() >= 9 * RefusalLog::kMaxReasons);
    REQUIRE(printable("fine\n\x1b[31mred\xff", 100) == "fine??[31mred?");
    REQUIRE(printable("fine", 2) == "fi");
}

TEST_CASE("paxos strangers: three replicas with certificates decide, fail over and carry large messages") {
    SecureCluster cluster(3);
    NodeCluster& nodes = cluster.nodes;
    REQUIRE(nodes.await_leader());
    REQUIRE(nodes.run_until([&] { return nodes.linked({1, 2, 3}); }));
    REQUIRE(nodes.pump(1000, 1000));
    REQUIRE(nodes[1].node->send_app_message(2, std::string(12u << 20, 'x')));
    for (int i = 0; i < 100; ++i) REQUIRE(nodes[1].node->send_app_message(2, std::to_string(i)));
    REQUIRE(nodes.run_until([&] { return nodes[2].app.size() == 101; }));
    REQUIRE(nodes[2].app[0].second == std::string(12u << 20, 'x'));
    for (int i = 0; i < 100; ++i) REQUIRE(nodes[2].app[1 + i].second == std::to_string(i));
    const uint32_t old = nodes.leader();
    nodes.stop(old);
    REQUIRE(nodes.await_leader());
    REQUIRE(nodes.pump(500, 1500));
    nodes.start(old);
    REQUIRE(nodes.run_until([&] { return nodes.values(old) == 1500; }));
    REQUIRE(nodes.same_everywhere());
}

TEST_CASE("paxos strangers: a member of the cluster is welcome by its certificate, others are not") {
    SecureCluster cluster(1);
    NodeCluster& nodes = cluster.nodes;
    REQUIRE(nodes.await_leader());
    const Authority impostor;  // calls its cluster the same
    const Authority elsewhere("elsewhere");
    LogLines log;
    SECTION("another member's certificate") {
        const auto guest = cluster.visit(cluster.authority, 3, hello(2, 1));
        REQUIRE(nodes.run_until([&] { return !guest->closed.empty(); }));
        const std::string words =
            "the certificate of replica 3 of cluster unit, where that of replica 2 of cluster unit was "
            "expected";
        REQUIRE(guest->refused.find(words) != std::string::npos);
        REQUIRE(guest->refused.find("crane ca issue --replica N") != std::string::npos);
        REQUIRE(log.has(words));
    }
    SECTION("its own certificate, but not a member") {
        const auto guest = cluster.visit(cluster.authority, 2, hello(2, 1));
        REQUIRE(nodes.run_until([&] { return !guest->closed.empty(); }));
        REQUIRE(guest->refused == "replica 2 is not a member");
        REQUIRE(log.has("refused a peer connection from 127.0.0.1: replica 2 is not a member"));
    }
    SECTION("signed by another authority") {
        const auto guest = cluster.visit(impostor, 2, hello(2, 1));
        REQUIRE(nodes.run_until([&] { return !guest->closed.empty(); }));
        // Here the guest is the first to see the other's certificate, and says so before it leaves.
        REQUIRE(guest->closed.find("crane://unit/1 is not signed by the authority") != std::string::npos);
        REQUIRE(
            nodes.run_until([&] { return log.has("not signed by the authority that is trusted there"); }));
    }
    SECTION("of another cluster") {
        const auto guest = cluster.visit(elsewhere, 2, hello(2, 1, "elsewhere"));
        REQUIRE(nodes.run_until([&] { return !guest->closed.empty(); }));
        CAPTURE(guest->closed, log.all());
        REQUIRE(guest->closed.find("is it of another cluster?") != std::string::npos);
    }
    REQUIRE(nodes.pump(5, 5));
}

TEST_CASE("paxos strangers: without a good certificate there is no greeting") {
    SecureCluster cluster(1);
    NodeCluster& nodes = cluster.nodes;
    REQUIRE(nodes.await_leader());
    LogLines log;
    // A client with OpenSSL's defaults: it checks nothing, and shows what it is told to.
    const SslContextPtr context(SSL_CTX_new(TLS_client_method()));
    const auto use = [&](const PemPair& pair) {
        SSL_CTX_use_certificate(context.get(), next_certificate(memory_bio(pair.certificate).get()).get());
        SSL_CTX_use_PrivateKey(context.get(), read_key(memory_bio(pair.key).get()).get());
    };
    std::string expected;
    bool certificate = true;
    SECTION("none") {
        certificate = false;
        expected = "shows no certificate";
    }
    SECTION("expired") {
        use(cluster.authority.issue(2, -20, -10));
        expected = "crane://unit/2 expired on";
    }
    SECTION("not yet valid") {
        use(cluster.authority.issue(2, 10, 20));
        expected = "crane://unit/2 is valid from";
    }
    SECTION("of another authority") {
        const Authority impostor;
        use(impostor.issue(2));
        expected = "crane://unit/2 is not signed by the authority";
    }
    SECTION("the authority's own") {
        use(cluster.authority.pair());
        expected = "unsuitable certificate purpose";
    }
    SECTION("an older TLS") {
        certificate = false;
        SSL_CTX_set_max_proto_version(context.get(), TLS1_2_VERSION);
        expected = "does not speak TLS 1.3";
    }
    // Of the stream's rules only the handshake counts here.
    struct Bare : Stream {
        SslPtr ssl;
        int descriptor;
        Bare(SSL_CTX* from, int fd) : ssl(SSL_new(from)), descriptor(fd) { SSL_set_fd(ssl.get(), fd); }
        ~Bare() override { ::close(descriptor); }
        ssize_t result(int done) {
            if (done > 0) return done;
            const int kind = SSL_get_error(ssl.get(), done);
            errno = kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
            return -1;
        }
        bool handshake() override { return result(SSL_connect(ssl.get())) > 0; }
        ssize_t read(void* buffer, size_t size) override {
            return result(SSL_read(ssl.get(), buffer, static_cast<int>(size)));
        }
        ssize_t write(const iovec* pieces, int) override {
            return result(SSL_write(ssl.get(), pieces->iov_base, static_cast<int>(pieces->iov_len)));
        }
        int fd() const override { return descriptor; }
    };
    const int fd = open_socket(cluster.port(1));
    evutil_make_socket_nonblocking(fd);
    Guest guest(nodes.base(), std::make_unique<Bare>(context.get(), fd), hello(2, 1));
    REQUIRE(nodes.run_until([&] { return !guest.closed.empty(); }));
    REQUIRE_FALSE(guest.welcome);
    INFO(log.all());
    REQUIRE(log.has(expected));
    REQUIRE(log.has("a peer connection from 127.0.0.1 came to nothing: "));
    REQUIRE((certificate || guest.refused.empty()));
}

TEST_CASE("paxos strangers: one that speaks no TLS gets nothing, half-open or not") {
    SecureCluster cluster(1);
    NodeCluster& nodes = cluster.nodes;
    REQUIRE(nodes.await_leader());
    LogLines log;
    for (const std::string& sent :
         {hello(1, 1), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(70'000, '\x16')}) {
        const int fd = open_socket(cluster.port(1));
        send(fd, sent.data(), sent.size(), MSG_NOSIGNAL);
        const std::string answer = hear_out(nodes, fd);
        REQUIRE(answer.size() < 20);  // an alert
        REQUIRE(answer.find("CRN") == std::string::npos);
    }
    REQUIRE(log.has("does not speak TLS 1.3"));
    // The first bytes of a TLS handshake, and then silence.
    const int fd = open_socket(cluster.port(1));
    REQUIRE(send(fd, "\x16\x03\x01\x02\x00", 5, MSG_NOSIGNAL) == 5);
    hear_out(nodes, fd);
    REQUIRE(log.has("no greeting in time"));
    REQUIRE(nodes.pump(5, 5));
}

TEST_CASE("paxos strangers: what answers at a peer's address has to be that peer") {
    Authority authority;
    NodeCluster nodes(2, {}, [&](uint32_t id) { return authority.files(id); });
    REQUIRE(nodes.await_leader());
    nodes.stop(2);
    LogLines log;
    // Replica 3 in the place of replica 2: of the same cluster, but not who was called.
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(nodes.config(2).members[1].port);
    REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listener, 1) == 0);
    evutil_make_socket_nonblocking(listener);
    TlsContext context(authority.files(3), {"unit", 3});
    int fd = -1;
    REQUIRE(nodes.run_until([&] { return (fd = accept(listener, nullptr, nullptr)) >= 0; }));
    bool greeted = false;
    std::string refused, closed;
    Connection::Handlers handlers;
    handlers.on_frame = [&](FrameType type, std::string_view payload) {
        greeted |= type == FrameType::kHello;
        if (type == FrameType::kRefused) refused = payload;
        return true;
    };
    handlers.on_closed = [&](const std::string& reason) { closed = reason; };
    Connection impostor(nodes.base(), context.secure(make_plain_stream(fd), false), false, handlers);
    REQUIRE(nodes.run_until([&] { return !closed.empty(); }));
    const std::string words =
        "the certificate of replica 3 of cluster unit, where that of replica 2 of cluster unit was expected";
    REQUIRE(refused.find(words) != std::string::npos);
    REQUIRE(
        log.has("link to replica 2 at 127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + ": " + words));
    REQUIRE_FALSE(greeted);
    close(listener);
}

TEST_CASE("paxos strangers: a replica without certificates and one with them both say what is wrong") {
    Authority authority;
    NodeCluster nodes(2, {}, [&](uint32_t id) { return id == 1 ? authority.files(1) : TlsFiles{}; });
    LogLines log;
    INFO(log.all());
    REQUIRE(nodes.run_until([&] { return log.has("does not speak TLS 1.3"); }));
    REQUIRE(nodes.run_until([&] { return log.has("malformed data"); }));
    REQUIRE(nodes.run_until([&] { return log.has("within the TLS handshake"); }));
}

TEST_CASE("paxos strangers: a renewed certificate is used for the next link, without a restart") {
    SecureCluster cluster(2);
    NodeCluster& nodes = cluster.nodes;
    cluster.authority.install(2, cluster.authority.issue(2, -1, 3));
    nodes.stop(2);
    nodes.start(2);
    REQUIRE(nodes.await_leader());
    LogLines log;
    cluster.authority.install(1, cluster.authority.issue(1));
    nodes.stop(2);
    nodes.start(2);  // warns, and calls replica 1, which looks at its files
    REQUIRE(log.has("this replica's certificate expires on"));
    REQUIRE(nodes.run_until([&] { return log.has("the certificate has been read again"); }));
    REQUIRE(nodes.run_until([&] { return nodes.linked({1, 2}); }));
    REQUIRE(nodes.await_leader());
    REQUIRE(nodes.pump(5, 5));
}

TEST_CASE("paxos strangers: links to other hosts need certificates") {
    NodeCluster nodes(1);
    NodeConfig config = nodes.config(1);
    config.db_dir += "-other";
    config.members.push_back({2, "192.0.2.1", 7400});
    REQUIRE_THROWS_WITH(Node(nodes.base(), config, {}), Catch::Contains("crane ca init --dir"));
    REQUIRE(nodes.await_leader());
    REQUIRE(
        nodes[1].node->change_membership({ChangeKind::kAdd, 2, "192.0.2.1:7400"}).find("not on loopback") !=
        std::string::npos);
    const Authority authority;
    config.tls = authority.files(2);
    REQUIRE_THROWS_WITH(Node(nodes.base(), config, {}), Catch::Contains("tls.certificate"));
    config.cluster_id = "no name";
    REQUIRE_THROWS_WITH(Node(nodes.base(), config, {}), Catch::Contains("cannot stand in a certificate"));
}
