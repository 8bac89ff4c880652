// One connection carrying frames: buffers, direct sends, libevent readiness.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "paxos/link/frame.hpp"

struct event;
struct event_base;

namespace crane::paxos {

struct Identity;

/// The bytes beneath a connection: plain TCP here, TLS in tls_stream.hpp.
class Stream {
  public:
    virtual ~Stream() = default;
    /// What comes before the first byte. True: done, now and ever after; false: as a read that failed.
    virtual bool handshake() { return true; }
    /// As recv and sendmsg: -1 with errno EAGAIN when it would block, 0 from read at the end. A write of
    /// nothing sends what has_unsent() is about.
    virtual ssize_t read(void* buffer, size_t size) = 0;
    virtual ssize_t write(const iovec* pieces, int count) = 0;
    virtual int fd() const = 0;
    virtual bool has_unsent() const { return false; }  ///< bytes taken, or its own, wait for the socket
    virtual bool has_unread() const {
        return false;
    }                                               ///< there may be more to read though the socket is empty
    virtual void finish() {}                        ///< says goodbye, if that is possible without waiting
    virtual std::string describe(int error) const;  ///< errno, or what it stands for
    virtual const Identity* peer() const { return nullptr; }  ///< who the other side has proved to be
};

/// Owns the descriptor; sets it non-blocking, without Nagle's delay, with keep-alive and a bound on
/// unacknowledged time.
std::unique_ptr<Stream> make_plain_stream(int fd);

class Connection {
  public:
    struct Handlers {
        // False closes the connection as broken.
        std::function<bool(FrameType type, std::string_view payload)> on_frame;
        // Once, and not when the owner closes it. The owner must not destroy it from within.
        std::function<void(const std::string& reason)> on_closed;
        // Connected, and the handshake done: what is queued from here on is sent.
        std::function<void()> on_ready;
    };

    Connection(event_base* base, std::unique_ptr<Stream> stream, bool connecting, Handlers handlers);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Until the greeting is done, only small frames are accepted.
    void allow_large_frames() { max_payload_bytes_ = kMaxFrameBytes; }

    /// Urgent frames overtake the others, and those of them that do overtake all, whole frames at a time.
    void queue(std::string frame, bool urgent, bool overtakes_all = false);
    void flush();  ///< writes what the socket takes; the rest when it is ready
    size_t queued_bytes(bool urgent) const { return urgent ? urgent_bytes_ : bulk_bytes_; }
    void close();  ///< without a word to the handlers
    const Identity* peer() const { return stream_->peer(); }
    bool closed() const { return closed_; }
    int connect_error() const {
        return connect_error_;
    }  ///< an errno value; 0: it came about, or is under way

    uint64_t bytes_sent = 0, bytes_received = 0;

  private:
    static void on_readable(int fd, short what, void* self);
    static void on_writable(int fd, short what, void* self);
    bool prepare();
    void read_some();
    size_t read_once();
    void wait_to_write(bool wanted);
    void parse_input();
    void consume_output(size_t bytes);
    void fail(const std::string& reason);

    std::unique_ptr<Stream> stream_;
    bool connecting_;
    bool ready_ = false;
    bool closed_ = false;
    int connect_error_ = 0;
    Handlers handlers_;
    event* readable_ = nullptr;
    event* writable_ = nullptr;
    bool waiting_to_write_ = false;
    size_t max_payload_bytes_ = kMaxGreetingBytes;

    std::string input_;
    size_t input_start_ = 0;

    std::string current_;  ///< partly written
    size_t current_done_ = 0;
    std::deque<std::string> first_, urgent_, bulk_;  ///< `first_` counts among the urgent bytes
    size_t urgent_bytes_ = 0, bulk_bytes_ = 0;
};

}  // namespace crane::paxos
