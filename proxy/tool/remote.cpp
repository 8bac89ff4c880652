// Questions to a craned on another host, at its [admin] address: over TLS, with the certificate of an
// operator. A connection is kept while this program runs. Nothing here waits past its time.
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/clock.hpp"
#include "paxos/link/frame.hpp"
#include "paxos/link/openssl.hpp"
#include "paxos/link/peer_address.hpp"
#include "paxos/link/refusal_log.hpp"
#include "paxos/link/tls_stream.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr char kScheme[] = "tls://";

void must(bool done, const std::string& what) {
    if (!done) throw std::runtime_error(what + ": " + paxos::take_openssl_error());
}

/// Whom this program speaks as, and which authority it believes.
class Client {
  public:
    explicit Client(const RemoteCredentials& files) : context_(SSL_CTX_new(TLS_client_method())) {
        must(context_ != nullptr, "cannot set up TLS");
        SSL_CTX* const made = context_.get();
        must(SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1, "cannot set up TLS 1.3");
        SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
        SSL_CTX_set_verify_depth(made, 0);  // no authorities between the cluster's and a replica
        must(SSL_CTX_load_verify_file(made, files.authority.c_str()) == 1, "--ca " + files.authority);
        must(SSL_CTX_use_certificate_file(made, files.certificate.c_str(), SSL_FILETYPE_PEM) == 1,
             "--cert " + files.certificate);
        must(SSL_CTX_use_PrivateKey_file(made, files.key.c_str(), SSL_FILETYPE_PEM) == 1,
             "--key " + files.key);
        own_ = paxos::inspect(SSL_CTX_get0_certificate(made)).identity;
    }
    SSL_CTX* context() const { return context_.get(); }
    const paxos::Identity& own() const { return own_; }

  private:
    paxos::SslContextPtr context_;
    paxos::Identity own_;
};

class RemoteLink {
  public:
    RemoteLink(const Client& client, const std::string& address, uint64_t end_ns)
        : address_(address), client_(client), end_ns_(end_ns) {
        connect_to();
        greet();
    }
    ~RemoteLink() {
        ssl_.reset();
        if (fd_ >= 0) close(fd_);
    }
    RemoteLink(const RemoteLink&) = delete;
    RemoteLink& operator=(const RemoteLink&) = delete;

    std::string ask(const std::string& question, uint64_t end_ns) {
        end_ns_ = end_ns;
        const std::string frame = paxos::make_frame(paxos::FrameType::kApp, question);
        size_t done = 0;
        // One that was refused meanwhile is told why by what there is to read.
        while (SSL_write_ex(ssl_.get(), frame.data(), frame.size(), &done) != 1 && wants_more())
            wait_for_tls(0);
        for (;;) {
            paxos::FrameType type;
            std::string_view payload;
            size_t size = 0;
            const auto status = paxos::parse_frame(input_, paxos::kMaxFrameBytes, type, payload, size);
            if (status == paxos::FrameStatus::kBad) fail("what it says is no frame");
            if (status == paxos::FrameStatus::kComplete) {
                std::string text(payload);
                input_.erase(0, size);
                if (type == paxos::FrameType::kApp) return text;
                fail("it refuses: " + paxos::printable(text, paxos::kMaxReasonBytes));
            }
            char bytes[16 * 1024];
            size_t got = 0;
            if (SSL_read_ex(ssl_.get(), bytes, sizeof(bytes), &got) == 1)
                input_.append(bytes, got);
            else
                wait_for_tls(0);
        }
    }

  private:
    [[noreturn]] void fail(const std::string& why) const {
        throw std::runtime_error("cannot ask " + address_ + ": " + why);
    }

    void wait_until_ready(short events) {
        const uint64_t now = monotonic_ns();
        if (now >= end_ns_) fail("it did not answer in time");
        pollfd one{fd_, events, 0};
        if (poll(&one, 1, static_cast<int>((end_ns_ - now) / 1'000'000) + 1) < 0 && errno != EINTR)
            fail(strerror(errno));
    }

    void connect_to() {
        paxos::PeerAddress at;
        if (!paxos::parse_address(address_, at)) fail("that is no HOST:PORT");
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        const int error = getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
        if (error != 0) fail(gai_strerror(error));
        const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
        std::string why;
        for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
            fd_ = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            int state = fd_ < 0 || (connect(fd_, one->ai_addr, one->ai_addrlen) != 0 && errno != EINPROGRESS)
                            ? errno
                            : 0;
            if (state == 0) {
                wait_until_ready(POLLOUT);
                socklen_t size = sizeof(state);
                getsockopt(fd_, SOL_SOCKET, SO_ERROR, &state, &size);
            }
            if (state == 0) {
                const int on = 1;
                setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                return;
            }
            why = strerror(state);
            if (fd_ >= 0) close(fd_);
            fd_ = -1;
        }
        fail(why);
    }

    bool wants_more() const {
        const int wanted = SSL_get_error(ssl_.get(), 0);
        return wanted == SSL_ERROR_WANT_READ || wanted == SSL_ERROR_WANT_WRITE;
    }

    /// Until the socket is ready for what OpenSSL wants. Throws where it wants nothing any more.
    void wait_for_tls(long verified) {
        const int wanted = SSL_get_error(ssl_.get(), 0);
        if (wanted == SSL_ERROR_WANT_READ || wanted == SSL_ERROR_WANT_WRITE) {
            ERR_clear_error();
            wait_until_ready(wanted == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT);
            return;
        }
        if (verified != X509_V_OK)
            fail(paxos::certificate_problem(static_cast<int>(verified), 0,
                                            SSL_get0_peer_certificate(ssl_.get())));
        const std::string why = paxos::take_openssl_error();
        fail(why == "no reason" ? "it closed the connection: see craned.log there" : "it refuses: " + why);
    }

    void greet() {
        ssl_.reset(SSL_new(client_.context()));
        must(ssl_ != nullptr && SSL_set_fd(ssl_.get(), fd_) == 1, "cannot set up TLS");
        while (SSL_connect(ssl_.get()) != 1) wait_for_tls(SSL_get_verify_result(ssl_.get()));
        const paxos::Identity shown =
            paxos::inspect(const_cast<X509*>(SSL_get0_peer_certificate(ssl_.get()))).identity;
        if (shown.replica == paxos::kNoReplica || shown.cluster != client_.own().cluster)
            fail("that is " + (shown.cluster.empty() ? "nobody of Crane's" : paxos::to_uri(shown)) +
                 ", and no replica of cluster " + client_.own().cluster);
    }

    const std::string address_;
    const Client& client_;
    uint64_t end_ns_;
    int fd_ = -1;
    paxos::SslPtr ssl_;
    std::string input_;
};

/// Of this program, from use_credentials() on.
struct Session {
    Client client;
    std::map<std::string, std::unique_ptr<RemoteLink>> links = {};  ///< by place
};
std::unique_ptr<Session> session;

}  // namespace

void use_credentials(RemoteCredentials given) {
    signal(SIGPIPE, SIG_IGN);
    if (given.authority.empty())
        given.authority = std::filesystem::path(given.certificate).parent_path() / "ca.crt";
    session = std::make_unique<Session>(Session{Client(given)});
}

std::string remote_place(const std::string& addresses) {
    return kScheme + addresses;
}

bool is_remote(const std::string& place) {
    return place.starts_with(kScheme);
}

std::vector<std::string> remote_places(const std::string& place) {
    std::vector<std::string> out;
    std::string rest = place.substr(strlen(kScheme));
    while (!rest.empty()) {
        const size_t comma = rest.find(',');
        if (comma != 0) out.push_back(kScheme + rest.substr(0, comma));
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    return out;
}

json ask_remote(const std::string& place, const json& request, int timeout_ms) {
    const uint64_t end_ns = monotonic_ns() + static_cast<uint64_t>(timeout_ms) * 1'000'000;
    std::unique_ptr<RemoteLink>& link = session->links[place];
    json answer;
    try {
        if (!link)
            link = std::make_unique<RemoteLink>(session->client, place.substr(strlen(kScheme)), end_ns);
        answer = json::parse(link->ask(request.dump(), end_ns), nullptr, false);
    } catch (...) {
        link.reset();
        throw;
    }
    if (!answer.is_object()) throw std::runtime_error("craned did not answer on " + place);
    return answer;
}

}  // namespace crane::proxy
