// The encrypted stream by itself, both ends in memory.
#include "paxos/link/tls.hpp"

#include <catch2/catch.hpp>
#include <cerrno>
#include <random>

#include "paxos/link/openssl.hpp"
#include "paxos/link/tls_stream.hpp"
#include "test_paxos_tls.hpp"

using namespace crane::paxos;
using namespace crane::paxos::testing;

namespace {

// One direction of a wire, and how it was used.
struct Wire {
    std::string bytes;
    size_t room = SIZE_MAX;  // what it takes until it is full
    unsigned writes = 0;
    bool ended = false;
};

class WireStream : public Stream {
  public:
    WireStream(Wire& in, Wire& out) : in_(in), out_(out) {}
    ssize_t read(void* buffer, size_t size) override {
        const size_t part = std::min(size, in_.bytes.size());
        if (part == 0 && in_.ended) return 0;
        if (part == 0) {
            errno = EAGAIN;
            return -1;
        }
        std::memcpy(buffer, in_.bytes.data(), part);
        in_.bytes.erase(0, part);
        return static_cast<ssize_t>(part);
    }
    ssize_t write(const iovec* pieces, int count) override {
        REQUIRE(count == 1);
        const size_t part = std::min(pieces->iov_len, out_.room);
        if (part == 0) {
            errno = EAGAIN;
            return -1;
        }
        out_.bytes.append(static_cast<const char*>(pieces->iov_base), part);
        if (out_.room != SIZE_MAX) out_.room -= part;
        ++out_.writes;
        return static_cast<ssize_t>(part);
    }
    int fd() const override { return -1; }

  private:
    Wire &in_, &out_;
};

struct Ends {
    const Authority authority;
    TlsContext client_context{authority.files(1), {"unit", 1}},
        server_context{authority.files(2), {"unit", 2}};
    Wire to_server, to_client;
    std::unique_ptr<Stream> client =
        client_context.secure(std::make_unique<WireStream>(to_client, to_server), true);
    std::unique_ptr<Stream> server =
        server_context.secure(std::make_unique<WireStream>(to_server, to_client), false);

    void connect() {
        bool both = false;
        for (int turn = 0; turn < 10 && !both; ++turn) {
            both = client->handshake();
            if (both) client->write(nullptr, 0);
            both = server->handshake() && both;
        }
        REQUIRE(both);
    }
};

ssize_t write_text(Stream& stream, std::vector<std::string> texts) {
    std::vector<iovec> pieces;
    for (std::string& text : texts) pieces.push_back({text.data(), text.size()});
    return stream.write(pieces.data(), static_cast<int>(pieces.size()));
}

std::string read_all(Stream& stream) {
    std::string all;
    for (;;) {
        char buffer[5000];
        const ssize_t got = stream.read(buffer, sizeof buffer);
        if (got <= 0) return all;
        all.append(buffer, static_cast<size_t>(got));
    }
}

unsigned records(const std::string& bytes) {
    unsigned count = 0;
    for (size_t at = 0; at + 5 <= bytes.size(); ++count)
        at +=
            5 + (static_cast<unsigned char>(bytes[at + 3]) << 8 | static_cast<unsigned char>(bytes[at + 4]));
    return count;
}

}  // namespace

TEST_CASE("paxos tls: each end learns who the other is, and nothing is sent before") {
    Ends ends;
    REQUIRE(ends.client->peer() == nullptr);
    REQUIRE(write_text(*ends.client, {"too early"}) == 0);
    REQUIRE(ends.to_server.bytes.empty());
    ends.connect();
    REQUIRE(*ends.client->peer() == Identity{"unit", 2});
    REQUIRE(*ends.server->peer() == Identity{"unit", 1});
    REQUIRE(read_all(*ends.client).empty());  // no tickets either
    REQUIRE(ends.to_client.bytes.empty());
}

TEST_CASE("paxos tls: what is sent at once is one system call, and few records") {
    Ends ends;
    ends.connect();
    ends.to_server.writes = 0;
    REQUIRE(write_text(*ends.client, std::vector<std::string>(16, "a small frame")) == 16 * 13);
    REQUIRE(ends.to_server.writes == 1);
    REQUIRE(records(ends.to_server.bytes) == 1);
    REQUIRE(ends.to_server.bytes.find("small") == std::string::npos);
    std::string all;
    for (int i = 0; i < 16; ++i) all += "a small frame";
    REQUIRE(read_all(*ends.server) == all);

    const std::string large(100'000, 'x');
    REQUIRE(write_text(*ends.client, {"head", large, "tail"}) == 100'008);
    REQUIRE(ends.to_server.writes == 2);
    REQUIRE(records(ends.to_server.bytes) == 7);
    REQUIRE(read_all(*ends.server) == "head" + large + "tail");
}

TEST_CASE("paxos tls: a full socket takes no more than a bound, and loses nothing") {
    Ends ends;
    ends.connect();
    const std::string sent(3'000'000, 'y');
    ends.to_server.room = 1000;
    size_t done = 0;
    std::string got;
    bool was_full = false;
    while (got.size() < sent.size()) {
        iovec rest{const_cast<char*>(sent.data()) + done, sent.size() - done};
        const ssize_t taken = ends.client->write(&rest, done < sent.size() ? 1 : 0);
        if (taken < 0) {
            REQUIRE(errno == EAGAIN);
            REQUIRE(ends.client->has_unsent());
            was_full = true;
            ends.to_server.room = 70'000;
        } else {
            done += static_cast<size_t>(taken);
        }
        REQUIRE(done - got.size() < 700'000);
        got += read_all(*ends.server);
    }
    REQUIRE(was_full);
    REQUIRE(got == sent);
}

TEST_CASE("paxos tls: more than asked for is read when there is room for it") {
    Ends ends;
    ends.connect();
    REQUIRE(write_text(*ends.client, {std::string(40'000, 'z')}) == 40'000);
    char buffer[30'000];
    REQUIRE(ends.server->read(buffer, sizeof buffer) == 30'000);
    REQUIRE(ends.server->has_unread());
    REQUIRE(ends.to_server.bytes.empty());  // the socket would not be readable again
    REQUIRE(ends.server->read(buffer, sizeof buffer) == 10'000);
    REQUIRE_FALSE(ends.server->has_unread());
    REQUIRE(ends.server->read(buffer, sizeof buffer) == -1);
    REQUIRE(errno == EAGAIN);
}

TEST_CASE("paxos tls: an end is told as one") {
    Ends ends;
    ends.connect();
    REQUIRE(write_text(*ends.client, {"last words"}) == 10);
    ends.client->finish();
    char buffer[100];
    REQUIRE(ends.server->read(buffer, sizeof buffer) == 10);
    REQUIRE(ends.server->read(buffer, sizeof buffer) == 0);
    REQUIRE(write_text(*ends.server, {"pardon?"}) == 7);
    ends.to_server.ended = true;
    REQUIRE(ends.server->read(buffer, sizeof buffer) == 0);
}

TEST_CASE("paxos tls: a connection cut within the handshake says so") {
    Ends ends;
    REQUIRE_FALSE(ends.client->handshake());
    ends.to_client.ended = true;
    REQUIRE_FALSE(ends.client->handshake());
    REQUIRE(errno == EPROTO);
    REQUIRE(ends.client->describe(errno).find("within the TLS handshake") != std::string::npos);
}

TEST_CASE("paxos tls: bytes changed on the way end the connection and reach nobody") {
    for (unsigned seed = 1; seed <= 200; ++seed) {
        INFO("seed " << seed);
        static const Authority authority;
        static TlsContext one(authority.files(1), {"unit", 1}), two(authority.files(2), {"unit", 2});
        std::mt19937 random(seed);
        Wire to_server, to_client;
        const auto client = one.secure(std::make_unique<WireStream>(to_client, to_server), true);
        const auto server = two.secure(std::make_unique<WireStream>(to_server, to_client), false);
        const unsigned at = random() % 6;
        bool said = false, failed = false;
        std::string got;
        for (unsigned turn = 0; turn < 6 && !failed; ++turn) {
            const bool forward = turn % 2 == 0;
            Stream& sender = forward ? *client : *server;
            if (!sender.handshake() && errno != EAGAIN) failed = true;
            if (forward && !failed && client->peer() != nullptr && !said)
                said = write_text(*client, {"secret"}) == 6;
            Wire& wire = forward ? to_server : to_client;
            if (turn == at && !wire.bytes.empty())
                wire.bytes[random() % wire.bytes.size()] ^= static_cast<char>(1 + random() % 255);
            if (server->peer() != nullptr) got += read_all(*server);
        }
        REQUIRE((got.empty() || got == "secret"));
    }
    // One that is known to be hit: the first record of data.
    Ends ends;
    ends.connect();
    write_text(*ends.client, {"secret"});
    ends.to_server.bytes.back() ^= 1;
    char buffer[100];
    REQUIRE(ends.server->read(buffer, sizeof buffer) == -1);
    REQUIRE(errno == EPROTO);
    REQUIRE(write_text(*ends.server, {"x"}) == -1);
}

TEST_CASE("paxos tls: a peer that makes the other answer without end is cut off") {
    Ends ends;
    // A client of OpenSSL's own, whose key updates each ask for one in return.
    const SslContextPtr context(SSL_CTX_new(TLS_client_method()));
    const PemPair pair = ends.authority.issue(1);
    REQUIRE(SSL_CTX_use_certificate(context.get(),
                                    next_certificate(memory_bio(pair.certificate).get()).get()) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey(context.get(), read_key(memory_bio(pair.key).get()).get()) == 1);
    const SslPtr ssl(SSL_new(context.get()));
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);
    SSL_set_connect_state(ssl.get());
    Wire wire, answers;
    const auto server = ends.server_context.secure(std::make_unique<WireStream>(wire, answers), false);
    const auto move = [&] {
        char bytes[70'000];
        const int size = BIO_read(out, bytes, sizeof bytes);
        if (size > 0) wire.bytes.append(bytes, static_cast<size_t>(size));
        BIO_write(in, answers.bytes.data(), static_cast<int>(answers.bytes.size()));
        answers.bytes.clear();
    };
    for (int turn = 0; turn < 4; ++turn) {
        SSL_do_handshake(ssl.get());
        move();
        server->handshake();
    }
    REQUIRE(server->peer() != nullptr);
    answers.room = 0;  // the answers are not read
    char buffer[100];
    ssize_t got = 0;
    for (int i = 0; i < 40'000 && (got == 0 || errno == EAGAIN); ++i) {
        REQUIRE(SSL_key_update(ssl.get(), SSL_KEY_UPDATE_REQUESTED) == 1);
        REQUIRE(SSL_do_handshake(ssl.get()) == 1);
        move();
        got = server->read(buffer, sizeof buffer);
    }
    REQUIRE(got == -1);
    REQUIRE(errno == EPROTO);
}
