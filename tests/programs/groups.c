// Groups (multicast) and all hosts (broadcast): a host that nobody else can reach hears itself alone.
#include <sys/mman.h>

#include "serve.h"

static struct sockaddr_in at(const char* host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    CHECK(inet_pton(AF_INET, host, &address.sin_addr) == 1);
    return address;
}

static int bound(const char* host, int port) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = at(host, port);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(fd, (struct sockaddr*)&address, sizeof address) == 0);
    return fd;
}

static long send_to(int fd, const char* host, const char* words) {
    struct sockaddr_in address = at(host, 1900);
    return sendto(fd, words, strlen(words), 0, (struct sockaddr*)&address, sizeof address);
}

static void hear(int fd) {
    char words[64], host[INET_ADDRSTRLEN];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    const long got = recvfrom(fd, words, sizeof words, 0, (struct sockaddr*)&from, &length);
    if (got < 0)
        say("not heard: %s", outcome(got));
    else
        say("heard %ld from %s", got, inet_ntop(AF_INET, &from.sin_addr, host, sizeof host));
}

static int number_of(int fd, int level, int name) {
    int number = 0;
    socklen_t length = sizeof number;
    CHECK(getsockopt(fd, level, name, &number, &length) == 0);
    return number;
}

/// By an address: as setsockopt ends.
static const char* leaves_by(int fd, const char* host) {
    const struct in_addr address = at(host, 0).sin_addr;
    return outcome(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &address, sizeof address));
}

static void options(void) {
    const int four = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0);
    const int none = 0, hops = 9, too_many = 256, nobody = 99;
    const struct ip_mreqn by_number = {.imr_ifindex = nobody};
    char host[INET_ADDRSTRLEN];
    say("hops at first %d %d", number_of(four, IPPROTO_IP, IP_MULTICAST_TTL),
        number_of(six, IPPROTO_IPV6, IPV6_MULTICAST_HOPS));
    say("hops set %s", outcome(setsockopt(four, IPPROTO_IP, IP_MULTICAST_TTL, &hops, sizeof hops)));
    say("too many %s", outcome(setsockopt(four, IPPROTO_IP, IP_MULTICAST_TTL, &too_many, sizeof too_many)));
    say("of IPv6 %s", outcome(setsockopt(six, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops)));
    say("too many of IPv6 %s",
        outcome(setsockopt(six, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &too_many, sizeof too_many)));
    say("hops now %d %d", number_of(four, IPPROTO_IP, IP_MULTICAST_TTL),
        number_of(six, IPPROTO_IPV6, IPV6_MULTICAST_HOPS));
    CHECK(setsockopt(four, IPPROTO_IP, IP_MULTICAST_LOOP, &none, sizeof none) == 0);
    say("loop %d", number_of(four, IPPROTO_IP, IP_MULTICAST_LOOP));
    static const char* const addresses[] = {"0.0.0.0", "127.0.0.1", "192.0.2.77", "224.0.0.2",
                                            "255.255.255.255"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        say("by %s %s", addresses[i], leaves_by(four, addresses[i]));
    const struct in_addr by = {(in_addr_t)number_of(four, IPPROTO_IP, IP_MULTICAST_IF)};
    say("it is %s", inet_ntop(AF_INET, &by, host, sizeof host));
    say("by a number of none %s",
        outcome(setsockopt(four, IPPROTO_IP, IP_MULTICAST_IF, &by_number, sizeof by_number)));
    say("of IPv6 %s", outcome(setsockopt(six, IPPROTO_IPV6, IPV6_MULTICAST_IF, &nobody, sizeof nobody)));
    close(four);
    close(six);
}

static void scenario(void) {
    options();
    const int listener = bound("0.0.0.0", 1900), sender = socket(AF_INET, SOCK_DGRAM, 0), one = 1, none = 0;
    struct ip_mreq group = {.imr_multiaddr = at("239.255.255.250", 0).sin_addr};
    struct ip_mreq single = {.imr_multiaddr = at("192.0.2.1", 0).sin_addr};
    struct group_req request = {0};
    const struct sockaddr_in other = at("239.1.2.3", 0);
    memcpy(&request.gr_group, &other, sizeof other);
    say("no group %s", outcome(setsockopt(listener, IPPROTO_IP, IP_ADD_MEMBERSHIP, &single, sizeof single)));
    say("join %s", outcome(setsockopt(listener, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group)));
    say("join again by request %s",
        outcome(setsockopt(listener, IPPROTO_IP, MCAST_JOIN_GROUP, &request, sizeof request)));
    char* pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    say("half a request %s",
        outcome(setsockopt(listener, IPPROTO_IP, MCAST_JOIN_GROUP, pages + 4096 - 80, sizeof request)));
    CHECK(munmap(pages, 8192) == 0);
    CHECK(send_to(sender, "239.255.255.250", "hello") == 5);
    hear(listener);
    CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, &none, sizeof none) == 0);
    CHECK(send_to(sender, "239.255.255.250", "hello") == 5);
    hear(listener);
    CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, "\1", 1) == 0);
    CHECK(send_to(sender, "239.255.255.250", "hello") == 5);
    hear(listener);
    CHECK(setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &one, sizeof one) == 0);
    say("to all %ld", send_to(sender, "255.255.255.255", "all"));
    hear(listener);
    say("to one %ld", send_to(sender, "127.0.0.1", "one"));
    hear(listener);
    say("leave %s", outcome(setsockopt(listener, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group)));
    const int second = bound("239.255.255.250", 1900);
    say("a second one at the port %d", second < 0);
    struct sockaddr_in far = at("239.255.255.250", 1900), own;
    socklen_t length = sizeof own;
    char host[INET_ADDRSTRLEN];
    CHECK(connect(sender, (struct sockaddr*)&far, sizeof far) == 0);
    CHECK(getsockname(sender, (struct sockaddr*)&own, &length) == 0);
    say("its own address %s", inet_ntop(AF_INET, &own.sin_addr, host, sizeof host));
    close(listener);
    close(sender);
    close(second);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
