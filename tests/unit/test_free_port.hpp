// Ports for what a test starts: from below those that the system gives to who connects, so that nobody's
// client, of this process or of another, can have taken one by the time that it is listened at.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>

namespace crane::testing {

/// A TCP port at which nobody listens, and another one each time.
inline uint16_t free_port() {
    constexpr int kFirst = 15'000,
                  kCount = 5'000;  ///< crane-run has those below, the end-to-end tests those above
    static int next = static_cast<int>(getpid()) * 37 % kCount;
    for (int tries = 0; tries < kCount; ++tries) {
        const auto port = static_cast<uint16_t>(kFirst + next++ % kCount);
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
        close(fd);
        if (is_free) return port;
    }
    FAIL("no port is free");
    return 0;
}

}  // namespace crane::testing
