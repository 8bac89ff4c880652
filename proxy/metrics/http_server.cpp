#include "proxy/metrics/http_server.hpp"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>

#include "base/clock.hpp"
#include "paxos/link/accept_pause.hpp"

namespace crane::proxy {

namespace {

constexpr int kBacklog = 64;
constexpr ev_ssize_t kMaxHeaderBytes = 8 * 1024;
constexpr size_t kMaxInputBytes = 16 * 1024;
constexpr int kServiceUnavailable = 503;

/// evhttp has let it go: it takes its callbacks away then.
bool is_done(bufferevent* client) {
    bufferevent_event_cb on_event = nullptr;
    bufferevent_getcb(client, nullptr, nullptr, &on_event, nullptr);
    return on_event == nullptr;
}

/// evhttp sees its end next.
void end(const HttpServer::Open& one) {
    shutdown(bufferevent_getfd(one.client), SHUT_RDWR);
}

const char* reason(int code) {
    return code == HTTP_OK ? "OK" : code == kServiceUnavailable ? "Service Unavailable" : "Not Found";
}

}  // namespace

bool parse_listen_address(const std::string& text, sockaddr_storage& address, socklen_t& bytes) {
    int length = sizeof(address);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (evutil_parse_sockaddr_port(text.c_str(), plain, &length) != 0) return false;
    bytes = static_cast<socklen_t>(length);
    const in_port_t port = plain->sa_family == AF_INET ? reinterpret_cast<sockaddr_in*>(plain)->sin_port
                                                       : reinterpret_cast<sockaddr_in6*>(plain)->sin6_port;
    return port != 0;
}

HttpServer::HttpServer(event_base* base, const std::string& listen, Handler handler)
    : handler_(std::move(handler)) {
    sockaddr_storage address{};
    socklen_t bytes = 0;
    if (!parse_listen_address(listen, address, bytes))
        throw std::runtime_error("\"" + listen + "\" is no address and port such as 127.0.0.1:9464");
    listener_ = evconnlistener_new_bind(
        base, nullptr, nullptr, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, kBacklog,
        reinterpret_cast<sockaddr*>(&address), static_cast<int>(bytes));
    if (!listener_)
        throw std::runtime_error("cannot serve metrics at " + listen + ": " + strerror(errno) +
                                 ": give [metrics] listen an address of this host and a port that is free");
    http_ = evhttp_new(base);
    timer_ = event_new(
        base, -1, EV_PERSIST, [](int, short, void* self) { static_cast<HttpServer*>(self)->tick(); }, this);
    evhttp_set_allowed_methods(http_, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    evhttp_set_max_headers_size(http_, kMaxHeaderBytes);
    evhttp_set_max_body_size(http_, 0);
    evhttp_set_bevcb(http_, &HttpServer::on_connect, this);
    evhttp_set_gencb(http_, &HttpServer::on_request, this);
    evhttp_bind_listener(http_, listener_);
    no_descriptors_ = std::make_unique<paxos::AcceptPause>(base, listener_, "the metrics' address");
}

HttpServer::~HttpServer() {
    no_descriptors_.reset();
    evhttp_free(http_);  // and all that is open, and the listener
    for (const Open& one : open_) bufferevent_decref(one.client);
    event_free(timer_);
}

void HttpServer::pause(bool wanted) {
    (wanted ? evconnlistener_disable : evconnlistener_enable)(listener_);
}

/// evhttp asks for what it is to use for a connection that it has accepted.
bufferevent* HttpServer::on_connect(event_base* base, void* context) {
    auto& self = *static_cast<HttpServer*>(context);
    bufferevent* client = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!client) return nullptr;
    bufferevent_setwatermark(client, EV_READ, 0, kMaxInputBytes);
    bufferevent_incref(client);
    self.open_.push_back({client, monotonic_ns()});
    if (!event_pending(self.timer_, EV_TIMEOUT, nullptr)) event_add(self.timer_, &kTick);
    if (++self.accepted_ >= kAcceptsPerTick || self.open_.size() >= kMaxConnections) self.pause(true);
    return client;
}

void HttpServer::tick() {
    accepted_ = 0;
    const uint64_t now = monotonic_ns();
    const auto is_gone = [&](const Open& one) {
        if (is_done(one.client)) {
            bufferevent_decref(one.client);  // and its descriptor is closed
            return true;
        }
        if (now - one.since_ns > kPatienceNs) end(one);
        return false;
    };
    open_.erase(std::remove_if(open_.begin(), open_.end(), is_gone), open_.end());
    const bool full = open_.size() >= kMaxConnections;
    if (full) std::for_each_n(open_.begin(), kMaxConnections / 2, end);
    pause(full);
    if (open_.empty()) event_del(timer_);
}

void HttpServer::on_request(evhttp_request* request, void* context) {
    auto& self = *static_cast<HttpServer*>(context);
    const std::string_view uri = evhttp_request_get_uri(request);
    const HttpAnswer answer = self.handler_(uri.substr(0, uri.find('?')));
    evkeyvalq* headers = evhttp_request_get_output_headers(request);
    for (const auto& [name, value] :
         {std::pair("Content-Type", answer.type.c_str()), std::pair("Connection", "close"),
          std::pair("Cache-Control", "no-store"), std::pair("X-Content-Type-Options", "nosniff"),
          std::pair("Content-Security-Policy",
                    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                    "connect-src 'self'")})
        evhttp_add_header(headers, name, value);
    evhttp_add_header(headers, "Content-Length", std::to_string(answer.body.size()).c_str());
    evbuffer* body = evbuffer_new();
    if (body && evhttp_request_get_command(request) != EVHTTP_REQ_HEAD)
        evbuffer_add(body, answer.body.data(), answer.body.size());
    evhttp_send_reply(request, answer.code, reason(answer.code), body);
    if (body) evbuffer_free(body);
}

}  // namespace crane::proxy
