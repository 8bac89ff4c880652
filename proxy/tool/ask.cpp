// One question to a craned. It may be stopped, or too busy to accept: nothing here waits past its time.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/clock.hpp"
#include "proxy/tool/tools.hpp"

namespace crane::proxy {

using nlohmann::json;

namespace {

constexpr size_t kMaxReplyBytes = 16 << 20;
constexpr int kRetryMs = 10;

class Question {
  public:
    Question(std::string path, int timeout_ms)
        : path_(std::move(path)), end_ns_(monotonic_ns() + static_cast<uint64_t>(timeout_ms) * 1'000'000) {
        fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd_ < 0) fail(strerror(errno));
    }
    ~Question() {
        if (fd_ >= 0) close(fd_);
    }
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;

    std::string ask(const std::string& line) {
        connect_to();
        send_all(line);
        return receive_line();
    }

  private:
    [[noreturn]] void fail(const std::string& reason) const {
        throw std::runtime_error("cannot ask " + path_ + ": " + reason);
    }
    [[noreturn]] void no_answer() const { throw std::runtime_error("craned did not answer on " + path_); }

    void wait(short events) {
        const uint64_t now = monotonic_ns();
        if (now >= end_ns_) no_answer();
        pollfd one{fd_, events, 0};
        const int left_ms = static_cast<int>((end_ns_ - now) / 1'000'000) + 1;
        if (poll(&one, 1, events ? left_ms : std::min(left_ms, kRetryMs)) < 0 && errno != EINTR)
            fail(strerror(errno));
    }

    void connect_to() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path_.size() >= sizeof(address.sun_path)) fail("the path is too long for a socket");
        memcpy(address.sun_path, path_.c_str(), path_.size());
        while (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
            if (errno == ENOENT || errno == ECONNREFUSED) throw std::runtime_error("not running");
            if (errno != EAGAIN && errno != EINTR) fail(strerror(errno));
            wait(0);  // its queue of connections is full, and poll() does not say when it no longer is
        }
    }

    void send_all(const std::string& line) {
        for (size_t done = 0; done < line.size();) {
            const ssize_t sent = send(fd_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
            if (sent >= 0) {
                done += static_cast<size_t>(sent);
            } else if (errno == EAGAIN) {
                wait(POLLOUT);
            } else if (errno != EINTR) {
                no_answer();
            }
        }
    }

    std::string receive_line() {
        std::string reply;
        while (reply.find('\n') == std::string::npos && reply.size() < kMaxReplyBytes) {
            char bytes[16 * 1024];
            const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
            if (got > 0) {
                reply.append(bytes, static_cast<size_t>(got));
            } else if (got < 0 && errno == EAGAIN) {
                wait(POLLIN);
            } else if (got == 0 || errno != EINTR) {
                break;
            }
        }
        return reply;
    }

    std::string path_;
    uint64_t end_ns_;
    int fd_ = -1;
};

}  // namespace

json ask_craned(const std::string& replica_dir, const json& request, int timeout_ms) {
    if (is_remote(replica_dir)) return ask_remote(replica_dir, request, timeout_ms);
    const std::string path = replica_dir + "/control.sock";
    json answer = json::parse(Question(path, timeout_ms).ask(request.dump() + "\n"), nullptr, false);
    if (!answer.is_object()) throw std::runtime_error("craned did not answer on " + path);
    return answer;
}

}  // namespace crane::proxy
