// The control socket: a unix stream; a line in is a JSON object {"cmd": …}, a line out is its answer. A
// request that cannot be understood or done is answered {"error": …}. Only craned's own user may connect. Who
// asks and does not read is not answered further. Where somebody has removed the socket, it is made anew. So
// many may be connected; for one more the one that has said nothing for longest is closed.
#pragma once

#include <sys/time.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "paxos/link/accept_pause.hpp"

struct bufferevent;
struct event;
struct event_base;
struct evconnlistener;
struct sockaddr;

namespace crane::proxy {

class ControlServer {
  public:
    using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

    ControlServer(event_base* base, std::string path, Handler handler, timeval between_looks = {5, 0});
    ~ControlServer();
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;

  private:
    void listen();
    /// Now and then: whether the socket is still where who asks looks for it.
    static void on_look(int, short, void* self);
    static void on_connect(evconnlistener*, int fd, sockaddr*, int, void* self);
    /// For one more.
    void make_place();
    /// There is a request, or the answers before it are gone.
    static void on_line(bufferevent* client, void* self);
    static void on_end(bufferevent* client, short what, void* self);
    std::string answer(const std::string& line);

    event_base* base_;
    std::string path_;
    Handler handler_;
    evconnlistener* listener_ = nullptr;
    unsigned long inode_ = 0;  ///< of the socket's name
    bool lost_ = false;        ///< it could not be made anew
    event* look_ = nullptr;
    std::unique_ptr<paxos::AcceptPause> pause_;
    std::map<bufferevent*, uint64_t> clients_;  ///< when each was last heard: which event of all of them
    uint64_t heard_ = 0;                        ///< events so far
};

}  // namespace crane::proxy
