#include "interpose/core/socket_options.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <cstring>

#include "interpose/core/datagrams.hpp"
#include "interpose/core/raw.hpp"
#include "interpose/core/socket_table.hpp"
#include "interpose/core/user_memory.hpp"

namespace crane::interpose {

namespace {

/// The kernel's defaults, which a host's administrator may have changed.
constexpr int kMostBuffer = 212992, kLeastSend = 4608, kLeastReceive = 2304, kSend = 16384, kReceive = 131072;
/// Of a connection over the loopback that has just been made.
constexpr uint32_t kSegment = 65483, kWindow = 10, kRto = 204'000, kRoundTrip = 1000;

/// A socket of the kernel's as the program's would be.
class Example {
  public:
    explicit Example(uint32_t socket) {
        const int type = (is_datagram(socket) ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC;
        fd_ = raw(SYS_socket, socket_at(socket).local.family, type, 0);
        if (fd_ == -EAFNOSUPPORT) fd_ = raw(SYS_socket, AF_INET, type, 0);
        own_ = fd_ >= 0;
        if (!own_) fd_ = runtime.placeholder_fd;  // no descriptor is left
    }
    ~Example() {
        if (own_) raw(SYS_close, fd_);
    }
    Example(const Example&) = delete;
    Example& operator=(const Example&) = delete;
    long fd() const { return fd_; }

  private:
    long fd_;
    bool own_;
};

KeptOption& option_at(uint32_t number) {
    return domain().options[number - 1];
}

KeptOption* find_option(uint32_t socket, int level, int name) {
    for (uint32_t at = socket_at(socket).options; at; at = option_at(at).next)
        if (option_at(at).level == level && option_at(at).name == name) return &option_at(at);
    return nullptr;
}

/// Null: there are too many, and this one reads back as if nobody had set it.
KeptOption* new_option(uint32_t socket, int level, int name) {
    DomainState& d = domain();
    uint32_t number = d.option_free;
    if (number) {
        d.option_free = option_at(number).next;
    } else if (d.option_high < kMaxOptions) {
        number = ++d.option_high;
    } else {
        return nullptr;
    }
    KeptOption& made = option_at(number);
    made = {};
    made.level = static_cast<uint16_t>(level);
    made.name = static_cast<uint16_t>(name);
    made.next = socket_at(socket).options;
    socket_at(socket).options = number;
    return &made;
}

void keep(uint32_t socket, int level, int name, const void* value, size_t bytes) {
    KeptOption* option = find_option(socket, level, name);
    if (!option) option = new_option(socket, level, name);
    if (!option || bytes > sizeof(option->value)) return;
    std::memcpy(option->value, value, bytes);
    option->bytes = static_cast<uint8_t>(bytes);
}

long hand_out(const void* from, size_t bytes, void* value, socklen_t* length) {
    const size_t n = *length < bytes ? *length : bytes;
    std::memcpy(value, from, n);
    *length = static_cast<socklen_t>(n);
    return 0;
}

bool is_buffer_size(int level, int name) {
    return level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF);
}

int buffer_size(int name, int wanted) {
    const unsigned most = kMostBuffer, asked = static_cast<unsigned>(wanted);
    const int doubled = static_cast<int>(asked < most ? asked : most) * 2;
    const int least = name == SO_SNDBUF ? kLeastSend : kLeastReceive;
    return doubled > least ? doubled : least;
}

uint8_t tcp_state(const VirtualSocket& s) {
    enum {
        kEstablished = 1,
        kSynSent = 2,
        kFinWait2 = 5,
        kClose = 7,
        kCloseWait = 8,
        kLastAck = 9,
        kListen = 10
    };
    if (s.state == SocketState::kListening) return kListen;
    if (s.state == SocketState::kConnecting) return kSynSent;
    if (s.state != SocketState::kConnected || s.reset) return kClose;
    if (s.fin_received) return s.shut_write ? kLastAck : kCloseWait;
    return s.shut_write ? kFinWait2 : kEstablished;
}

/// What the kernel tells of a connection's course; there is no network here, and all of it is steady.
long show_info(const VirtualSocket& s, void* value, socklen_t* length) {
    tcp_info info{};
    info.tcpi_state = tcp_state(s);
    info.tcpi_rto = kRto;
    info.tcpi_snd_mss = info.tcpi_advmss = kSegment;
    info.tcpi_rcv_mss = 536;
    info.tcpi_pmtu = 65535;
    info.tcpi_snd_cwnd = kWindow;
    info.tcpi_snd_ssthresh = 0x7fff'ffff;
    info.tcpi_rtt = kRoundTrip;
    info.tcpi_rttvar = kRoundTrip / 2;
    if (s.state == SocketState::kListening) {
        info.tcpi_unacked = s.queued;
        info.tcpi_sacked = s.places - 1;
    } else if (s.state == SocketState::kConnected) {
        info.tcpi_bytes_acked = s.sent;
    }
    return hand_out(&info, sizeof(info), value, length);
}

/// What the kernel knows of its own socket and would be another number on each replica.
bool show_own(uint32_t socket, int level, int name, void* value, socklen_t* length, long& result) {
    const VirtualSocket& s = socket_at(socket);
    if (level == IPPROTO_TCP && name == TCP_INFO && !is_datagram(socket))
        return result = show_info(s, value, length), true;
    if (level != SOL_SOCKET) return false;
    if (is_buffer_size(level, name)) {
        const int of_stream = name == SO_SNDBUF ? kSend : kReceive;
        const int size = is_datagram(socket) ? kDatagramBufferBytes : of_stream;
        return result = hand_out(&size, sizeof(size), value, length), true;
    }
    if (name == SO_INCOMING_CPU) {
        const int cpu = 0;
        return result = hand_out(&cpu, sizeof(cpu), value, length), true;
    }
    if (name != SO_COOKIE) return false;
    const uint64_t cookie = uint64_t{s.generation} << 32 | (socket + 1);
    if (*length < sizeof(cookie)) return result = -EINVAL, true;
    return result = hand_out(&cookie, sizeof(cookie), value, length), true;
}

}  // namespace

void keep_switch(uint32_t socket, int level, int name, bool on) {
    const int value = on;
    keep(socket, level, name, &value, sizeof(value));
}

long keep_option(uint32_t socket, int level, int name, const void* value, socklen_t length) {
    if (is_buffer_size(level, name)) {
        int wanted = 0;
        if (length < sizeof(wanted)) return -EINVAL;
        std::memcpy(&wanted, value, sizeof(wanted));
        wanted = buffer_size(name, wanted);
        keep(socket, level, name, &wanted, sizeof(wanted));
        return 0;
    }
    const Example example(socket);
    if (const long rc = raw(SYS_setsockopt, example.fd(), level, name, value, length); rc < 0) return rc;
    char shown[sizeof(KeptOption::value)];
    socklen_t bytes = sizeof(shown);
    if (raw(SYS_getsockopt, example.fd(), level, name, shown, &bytes) == 0)
        keep(socket, level, name, shown, bytes);
    return 0;
}

long show_option(uint32_t socket, int level, int name, void* value, socklen_t* length) {
    if (const KeptOption* option = find_option(socket, level, name))
        return hand_out(option->value, option->bytes, value, length);
    long result = 0;
    if (show_own(socket, level, name, value, length, result)) return result;
    const Example example(socket);
    return raw(SYS_getsockopt, example.fd(), level, name, value, length);
}

int kept_number(uint32_t socket, int level, int name, int otherwise) {
    const KeptOption* const option = find_option(socket, level, name);
    if (option) std::memcpy(&otherwise, option->value, sizeof(otherwise));
    return otherwise;
}

void inherit_options(uint32_t from, uint32_t to) {
    for (uint32_t at = socket_at(from).options; at; at = option_at(at).next) {
        const KeptOption& option = option_at(at);
        keep(to, option.level, option.name, option.value, option.bytes);
    }
}

void drop_options(uint32_t socket) {
    DomainState& d = domain();
    while (const uint32_t number = socket_at(socket).options) {
        socket_at(socket).options = option_at(number).next;
        option_at(number).next = d.option_free;
        d.option_free = number;
    }
}

}  // namespace crane::interpose
