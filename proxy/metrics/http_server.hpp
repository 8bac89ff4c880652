// A small web server on craned's loop, for those who look: Prometheus, load balancers, a browser. libevent's
// evhttp reads requests and writes answers; what it leaves open is bounded here, so that no client of it
// takes anything from consensus:
//   - one request for each connection, and so many connections are accepted in a tenth of a second at most:
//     the others wait in the kernel's queue;
//   - so many are open at once; when all are taken the older half gives way;
//   - one that is not done after some seconds is closed, however lively it is;
//   - GET and HEAD only, small headers, no body.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

struct bufferevent;
struct event;
struct event_base;
struct evconnlistener;
struct evhttp;
struct evhttp_request;

namespace crane::paxos {
class AcceptPause;
}

namespace crane::proxy {

struct HttpAnswer {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
};

/// An address and port, as in "127.0.0.1:9464" or "[::1]:9464". False: `text` is none.
bool parse_listen_address(const std::string& text, sockaddr_storage& address, socklen_t& bytes);

class HttpServer {
  public:
    static constexpr size_t kMaxConnections = 32;
    static constexpr size_t kAcceptsPerTick = 20;
    static constexpr timeval kTick{0, 100'000};
    static constexpr uint64_t kPatienceNs = 5'000'000'000;

    /// `path` without what follows a question mark.
    using Handler = std::function<HttpAnswer(std::string_view path)>;

    /// Throws std::runtime_error when nobody can listen at `listen`.
    HttpServer(event_base* base, const std::string& listen, Handler handler);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    struct Open {
        bufferevent* client;  ///< counted once more, so that it can be looked at when evhttp is done with it
        uint64_t since_ns;
    };

  private:
    static bufferevent* on_connect(event_base* base, void* self);
    static void on_request(evhttp_request* request, void* self);
    void tick();
    void pause(bool wanted);

    Handler handler_;
    evhttp* http_ = nullptr;
    evconnlistener* listener_ = nullptr;  ///< evhttp's own
    std::unique_ptr<paxos::AcceptPause> no_descriptors_;
    event* timer_ = nullptr;  ///< runs while anything is open
    std::deque<Open> open_;   ///< the oldest first
    size_t accepted_ = 0;     ///< since the timer rang
};

}  // namespace crane::proxy
