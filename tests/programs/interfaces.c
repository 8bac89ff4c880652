// What interfaces and addresses a program finds where it runs, in all ways that there are to ask.
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>

#include "serve.h"

static const char* text_of(const struct sockaddr* address, char* text, size_t bytes) {
    text[0] = 0;
    if (address && address->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in*)address)->sin_addr, text, (socklen_t)bytes);
    if (address && address->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6*)address)->sin6_addr, text, (socklen_t)bytes);
    return text;
}

static void show_link(const struct ifaddrs* one) {
    const struct sockaddr_ll* link = (const struct sockaddr_ll*)one->ifa_addr;
    const struct rtnl_link_stats* counted = one->ifa_data;
    order("%s flags %x index %d type %d hardware %02x:%02x:%02x:%02x:%02x:%02x received %u sent %u",
          one->ifa_name, one->ifa_flags, link->sll_ifindex, link->sll_hatype, link->sll_addr[0],
          link->sll_addr[1], link->sll_addr[2], link->sll_addr[3], link->sll_addr[4], link->sll_addr[5],
          counted ? counted->rx_packets : 0, counted ? counted->tx_packets : 0);
}

static void show_file(const char* path) {
    char line[256];
    FILE* file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        order("%s", line);
    }
    fclose(file);
}

static void scenario(void) {
    struct ifaddrs* all = NULL;
    CHECK(getifaddrs(&all) == 0);
    for (const struct ifaddrs* one = all; one; one = one->ifa_next) {
        char address[64], mask[64], others[64];
        if (!one->ifa_addr) continue;
        if (one->ifa_addr->sa_family == AF_PACKET) {
            show_link(one);
            continue;
        }
        order("%s flags %x family %d address %s mask %s others %s", one->ifa_name, one->ifa_flags,
              one->ifa_addr->sa_family, text_of(one->ifa_addr, address, sizeof address),
              text_of(one->ifa_netmask, mask, sizeof mask),
              text_of(one->ifa_broadaddr, others, sizeof others));
    }
    freeifaddrs(all);

    struct if_nameindex* names = if_nameindex();
    CHECK(names);
    for (const struct if_nameindex* one = names; one->if_index; one++)
        order("number %u is %s", one->if_index, one->if_name);
    if_freenameindex(names);
    show_file("/proc/net/route");
    show_file("/proc/net/if_inet6");

    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq requests[16];
    struct ifconf wanted = {.ifc_len = sizeof requests, .ifc_req = requests};
    CHECK(ioctl(fd, SIOCGIFCONF, &wanted) == 0);
    for (int n = 0; n < wanted.ifc_len / (int)sizeof requests[0]; n++) {
        char text[64];
        struct ifreq request = requests[n];
        order("asked for all: %s %s", request.ifr_name, text_of(&requests[n].ifr_addr, text, sizeof text));
        order("its hardware: %s", outcome(ioctl(fd, SIOCGIFHWADDR, &request)));
        CHECK(ioctl(fd, SIOCGIFMTU, &request) == 0);
        order("its size: %d", request.ifr_mtu);
    }
    close(fd);
}

int main(int argc, char** argv) {
    return serve(argc, argv, scenario);
}
