#include "interpose/core/native_ports.hpp"

#include <netinet/in.h>

#include <cstring>

#include "interpose/core/runtime.hpp"

namespace crane::interpose {

namespace {

constexpr int kMaxMoved = 1024;

/// The port the program asked for, by descriptor, between bind and listen; 0: not moved. Network order.
uint16_t asked_port[kMaxMoved];

/// Ports that were moved, for getsockname on the listener and on what it accepts. Network order.
struct MovedPort {
    uint16_t actual, asked;
};
constexpr uint32_t kMaxMovedPorts = 256;
MovedPort moved_ports[kMaxMovedPorts];
uint32_t moved_port_count = 0;

bool moves_ports() {
    return runtime.view.control != nullptr && !runtime.scheduled;
}

uint16_t* port_of(sockaddr* address) {
    if (address->sa_family == AF_INET) return &reinterpret_cast<sockaddr_in*>(address)->sin_port;
    if (address->sa_family == AF_INET6) return &reinterpret_cast<sockaddr_in6*>(address)->sin6_port;
    return nullptr;
}

bool is_stream(int fd) {
    int type = 0;
    socklen_t length = sizeof(type);
    return real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

}  // namespace

int bind_native(int fd, const sockaddr* address, socklen_t length) {
    sockaddr_storage moved{};
    if (!moves_ports() || fd >= kMaxMoved || !address || length > sizeof(moved) || !is_stream(fd)) {
        return real.bind(fd, address, length);
    }
    std::memcpy(&moved, address, length);
    uint16_t* port = port_of(reinterpret_cast<sockaddr*>(&moved));
    if (!port || *port == 0) return real.bind(fd, address, length);
    const uint16_t asked = *port;
    *port = 0;
    const int rc = real.bind(fd, reinterpret_cast<sockaddr*>(&moved), length);
    if (rc == 0) asked_port[fd] = asked;
    return rc;
}

int listen_native(int fd, int backlog) {
    const int rc = real.listen(fd, backlog);
    if (rc != 0 || !moves_ports() || fd >= kMaxMoved || asked_port[fd] == 0) return rc;
    sockaddr_storage actual{};
    socklen_t length = sizeof(actual);
    if (real.getsockname(fd, reinterpret_cast<sockaddr*>(&actual), &length) != 0) return rc;
    timebubble::ListenRecord record{};
    record.family = actual.ss_family;
    record.port = ntohs(asked_port[fd]);
    record.actual_port = ntohs(*port_of(reinterpret_cast<sockaddr*>(&actual)));
    if (moved_port_count < kMaxMovedPorts) {
        moved_ports[moved_port_count++] = {htons(record.actual_port), asked_port[fd]};
    }
    asked_port[fd] = 0;
    emit(timebubble::OutputKind::kListen, 0, 0, &record, sizeof(record));
    return rc;
}

int getsockname_native(int fd, sockaddr* address, socklen_t* length) {
    const int rc = real.getsockname(fd, address, length);
    uint16_t* port = rc == 0 && moves_ports() ? port_of(address) : nullptr;
    if (!port) return rc;
    for (uint32_t i = 0; i < moved_port_count; ++i) {
        if (moved_ports[i].actual == *port) *port = moved_ports[i].asked;
    }
    return rc;
}

}  // namespace crane::interpose
