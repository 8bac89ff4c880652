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

static void scenario(void) {
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
