#include "proxy/control.hpp"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace crane::proxy {

namespace {

constexpr size_t kMaxLineBytes = 64 * 1024;
constexpr size_t kMaxClients = 64;
/// Answers that are not read: what is asked behind them waits.
constexpr size_t kMaxQueuedBytes = 4 << 20;

/// 0: there is none.
unsigned long inode_of(const std::string& path) {
    struct stat found {};
    return lstat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

}  // namespace

ControlServer::ControlServer(event_base* base, std::string path, Handler handler, timeval between_looks)
    : base_(base), path_(std::move(path)), handler_(std::move(handler)) {
    listen();
    look_ = event_new(base_, -1, EV_PERSIST, on_look, this);
    if (!look_) throw std::bad_alloc();
    event_add(look_, &between_looks);
}

void ControlServer::listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof(address.sun_path)) {
        throw std::runtime_error("the control socket's path " + path_ + " is longer than " +
                                 std::to_string(sizeof(address.sun_path) - 1) +
                                 " characters; use a shorter state directory");
    }
    memcpy(address.sun_path, path_.c_str(), path_.size());
    unlink(path_.c_str());
    const mode_t before = umask(0177);
    evconnlistener* const listener = evconnlistener_new_bind(
        base_, &ControlServer::on_connect, this, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 16,
        reinterpret_cast<sockaddr*>(&address), sizeof(address));
    umask(before);
    if (!listener) throw std::runtime_error("cannot listen on " + path_ + ": " + strerror(errno));
    pause_.reset();
    if (listener_) evconnlistener_free(listener_);
    listener_ = listener;
    inode_ = inode_of(path_);
    pause_ = std::make_unique<paxos::AcceptPause>(base_, listener_, "the control socket");
}

void ControlServer::on_look(int, short, void* context) {
    auto& self = *static_cast<ControlServer*>(context);
    const unsigned long found = inode_of(self.path_);
    if (found != 0 && found == self.inode_) return;
    try {
        self.listen();
        self.lost_ = false;
        spdlog::warn("{} was removed, and is made anew", self.path_);
    } catch (const std::exception& error) {
        if (!self.lost_)
            spdlog::error("{} was removed, and nobody can ask any more: {}", self.path_, error.what());
        self.lost_ = true;
    }
}

ControlServer::~ControlServer() {
    event_free(look_);
    for (const auto& [client, unused] : clients_) {
        bufferevent_flush(client, EV_WRITE, BEV_FLUSH);
        evbuffer_write(bufferevent_get_output(client), bufferevent_getfd(client));
        bufferevent_free(client);
    }
    pause_.reset();
    evconnlistener_free(listener_);
    unlink(path_.c_str());
}

/// Who holds connections and says nothing must not keep the operator from asking.
void ControlServer::make_place() {
    if (clients_.size() < kMaxClients) return;
    const auto longest = std::min_element(clients_.begin(), clients_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    bufferevent* const client = longest->first;
    clients_.erase(longest);
    bufferevent_free(client);
}

void ControlServer::on_connect(evconnlistener*, int fd, sockaddr*, int, void* context) {
    auto& self = *static_cast<ControlServer*>(context);
    self.make_place();
    bufferevent* const client = bufferevent_socket_new(self.base_, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!client) {
        close(fd);
        return;
    }
    self.clients_[client] = ++self.heard_;
    bufferevent_setcb(client, &ControlServer::on_line, &ControlServer::on_line, &ControlServer::on_end,
                      context);
    bufferevent_setwatermark(client, EV_READ, 0, kMaxLineBytes);
    bufferevent_enable(client, EV_READ | EV_WRITE);
}

void ControlServer::on_line(bufferevent* client, void* context) {
    auto& self = *static_cast<ControlServer*>(context);
    evbuffer* input = bufferevent_get_input(client);
    while (evbuffer_get_length(bufferevent_get_output(client)) < kMaxQueuedBytes) {
        size_t bytes = 0;
        char* line = evbuffer_readln(input, &bytes, EVBUFFER_EOL_LF);
        std::string reply;
        if (line) {
            self.clients_[client] = ++self.heard_;
            reply = self.answer(std::string(line, bytes));
            free(line);
        } else if (evbuffer_get_length(input) >= kMaxLineBytes) {
            evbuffer_drain(input, evbuffer_get_length(input));
            reply = R"({"error":"the request is longer than 64 KiB"})";
        } else {
            return;
        }
        reply += '\n';
        bufferevent_write(client, reply.data(), reply.size());
    }
}

void ControlServer::on_end(bufferevent* client, short what, void* context) {
    if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))) return;
    static_cast<ControlServer*>(context)->clients_.erase(client);
    bufferevent_free(client);
}

std::string ControlServer::answer(const std::string& line) {
    const nlohmann::json request = nlohmann::json::parse(line, nullptr, false);
    nlohmann::json reply;
    if (request.is_discarded() || !request.is_object() || !request.contains("cmd") ||
        !request["cmd"].is_string()) {
        reply["error"] =
            "a request is one JSON object on one line, with \"cmd\": status, stop, transfer, member, "
            "answer, signal, base or log-level";
    } else {
        try {
            reply = handler_(request);
        } catch (const std::exception& error) {
            reply["error"] = error.what();
        }
    }
    return reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace crane::proxy
