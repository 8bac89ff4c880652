// Each socket reads back what was set on it, and on no other one; connections have what their listener had.
#include "pair.h"

#include <netinet/tcp.h>

static const struct option {
    const char* text;
    int level, name, values[3];
} kOptions[] = {
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, {1, 0, 5}},
    {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, {1, 0, 5}},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, {1, 0, 5}},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, {1, 6, 0}},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, {30000, 1, 60000}},
    {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, {30000, 1, 60000}},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, {10, 0, 5}},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, {1, 0, 5}},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, {1, 0, 5}},
    {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, {1000, 1, 100000}},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, {3, 0, 1000}},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, {10, -1, 0}},
    {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, {1, 5, 0}},
    {"TCP_WINDOW_CLAMP", IPPROTO_TCP, TCP_WINDOW_CLAMP, {50000, 60000, 70000}},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, {1000, 0, 5}},
    {"IP_TOS", IPPROTO_IP, IP_TOS, {16, 0, 255}},
    {"IP_TTL", IPPROTO_IP, IP_TTL, {16, 0, 1000}},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, {0, 2, 9}},
    {"an unknown one", SOL_SOCKET, 9999, {1, 0, 5}},
    {"one of another level", 77, 1, {1, 0, 5}},
};
enum { kCount = sizeof kOptions / sizeof *kOptions };

static const char* value_of(int fd, const struct option* option) {
    static char text[64];
    int value = 0;
    socklen_t bytes = sizeof value;
    if (getsockopt(fd, option->level, option->name, &value, &bytes) != 0)
        return strerrorname_np(errno);
    snprintf(text, sizeof text, "%d (%u)", value, bytes);
    return text;
}

static int info_state(int fd) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0);
    return info.tcpi_state;
}

static void info_of_a_listener(int listener) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    CHECK(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0);
    say("of %d places %d taken", (int)info.tcpi_sacked, (int)info.tcpi_unacked);
}

static void scenario(void) {
    int one = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(one >= 0 && other >= 0);
    for (int i = 0; i < kCount; i++) {
        for (int j = 0; j < 3; j++) {
            const int* value = &kOptions[i].values[j];
            const char* result = outcome(setsockopt(one, kOptions[i].level, kOptions[i].name, value, sizeof *value));
            say("%s = %d: %s", kOptions[i].text, *value, result);
            say("  is %s", value_of(one, &kOptions[i]));
        }
        if (kOptions[i].level != SOL_SOCKET || (kOptions[i].name != SO_RCVBUF && kOptions[i].name != SO_SNDBUF))
            say("  of the other %s", value_of(other, &kOptions[i]));
    }
    struct linger linger = {1, 7}, seen = {0};
    socklen_t bytes = sizeof seen;
    say("SO_LINGER %s", outcome(setsockopt(one, SOL_SOCKET, SO_LINGER, &linger, sizeof linger)));
    CHECK(getsockopt(one, SOL_SOCKET, SO_LINGER, &seen, &bytes) == 0);
    say("  is %d %d (%u)", seen.l_onoff, seen.l_linger, bytes);
    char control[32] = "";
    bytes = sizeof control;
    say("TCP_CONGESTION %s", outcome(setsockopt(one, IPPROTO_TCP, TCP_CONGESTION, "reno", 4)));
    CHECK(getsockopt(one, IPPROTO_TCP, TCP_CONGESTION, control, &bytes) == 0);
    say("  is %s (%u)", control, bytes);
    bytes = 2;
    say("a part of it %s", outcome(getsockopt(one, SOL_SOCKET, SO_LINGER, &seen, &bytes)));
    say("  is %u bytes", bytes);
    say("nowhere %s", outcome(setsockopt(one, IPPROTO_IP, IP_TOS, (void*)8, 4)));
    close(one);
    one = socket(AF_INET, SOCK_STREAM, 0);
    say("a new one's IP_TOS %s", value_of(one, &kOptions[15]));
    say("states %d %d", info_state(one), info_state(other));
    close(other);
    close(one);

    int port = 0, yes = 1, tos = 16;
    const int listener = listen_at("127.0.0.1", &port);
    CHECK(setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_PRIORITY, &tos, 0) == -1);
    const int near = connect_to("127.0.0.1", port);
    await_input(listener);
    info_of_a_listener(listener);
    const int far = accept(listener, NULL, NULL);
    CHECK(far >= 0);
    say("accepted: TCP_NODELAY %s", value_of(far, &kOptions[7]));
    say("accepted: SO_OOBINLINE %s", value_of(far, &kOptions[2]));
    bytes = sizeof seen;
    CHECK(getsockopt(far, SOL_SOCKET, SO_LINGER, &seen, &bytes) == 0);
    say("accepted: SO_LINGER %d %d", seen.l_onoff, seen.l_linger);
    say("states %d %d %d", info_state(listener), info_state(near), info_state(far));
    shutdown(near, SHUT_WR);
    await_input(far);
    say("at its end %d", info_state(far));
    close(near);
    close(far);
    close(listener);
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
