// A cheap closed-loop load: N connections, one request outstanding on each, one thread, epoll.
//
// usage: pingload HOST PORT CLIENTS SECONDS redis-set|memcached|clamd [OFFSET]
// Prints one JSON object: requests, seconds, errors, p50_us, p99_us, max_us. Latencies are counted in a histogram
// of 2 % wide buckets, so memory does not grow with the run. OFFSET makes several copies use different keys.
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kMaxClients = 1024, kBuckets = 1200, kValueBytes = 256, kScannedBytes = 4096, kKeys = 10000 };

struct Client {
    int fd;
    double sent_at;
    const char* terminator;
    int terminator_bytes;
    char tail[8];  // the last bytes received: a reply is complete when they end with the terminator
    int tail_bytes;
    unsigned long number;
};

static struct Client clients[kMaxClients];
static unsigned long histogram[kBuckets], requests, errors;
static double worst;
static char value[kValueBytes + 1];
static enum { kRedis, kMemcached, kClamd } kind;
static unsigned random_state = 12345;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int bucket_of(double microseconds) {
    int bucket = microseconds < 1 ? 0 : (int)(log(microseconds) / log(1.02));
    return bucket >= kBuckets ? kBuckets - 1 : bucket;
}

static double percentile(double share) {
    unsigned long seen = 0, wanted = (unsigned long)ceil(requests * share);
    for (int bucket = 0; bucket < kBuckets; bucket++)
        if ((seen += histogram[bucket]) >= wanted && seen > 0) return pow(1.02, bucket + 0.5);
    return 0;
}

static unsigned next_random(void) {
    random_state = random_state * 1103515245u + 12345u;
    return random_state >> 8;
}

static void send_text(struct Client* client, const char* text, size_t bytes, const char* terminator,
                      int terminator_bytes) {
    client->terminator = terminator;
    client->terminator_bytes = terminator_bytes;
    client->tail_bytes = 0;
    client->sent_at = now();
    if (send(client->fd, text, bytes, MSG_NOSIGNAL) != (ssize_t)bytes) errors++;
}

// A scan of bytes that come with the request.
static void send_scan(struct Client* client) {
    static const char command[] = "zINSTREAM";  // its NUL ends it
    char text[sizeof command + 4 + kScannedBytes + 4] = {0};
    const uint32_t length = htonl(kScannedBytes);
    memcpy(text, command, sizeof command);
    memcpy(text + sizeof command, &length, 4);
    memset(text + sizeof command + 4, 'v', kScannedBytes);
    snprintf(text + sizeof command + 4, 32, "file %u", next_random());
    send_text(client, text, sizeof text, ": OK", 5);
}

static void send_request(struct Client* client) {
    char text[kValueBytes + 128];
    char key[32];
    if (kind == kClamd) return send_scan(client);
    int key_bytes = snprintf(key, sizeof key, "key:%06u", next_random() % kKeys), bytes;
    if (kind == kRedis) {
        bytes = snprintf(text, sizeof text, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", key_bytes, key,
                         kValueBytes, value);
        send_text(client, text, bytes, "+OK\r\n", 5);
    } else if (client->number++ % 10 == 0) {  // one set to nine gets
        bytes = snprintf(text, sizeof text, "set %s 0 0 %d\r\n%s\r\n", key, kValueBytes, value);
        send_text(client, text, bytes, "STORED\r\n", 8);
    } else {
        bytes = snprintf(text, sizeof text, "get %s\r\n", key);
        send_text(client, text, bytes, "END\r\n", 5);
    }
}

// Every server's way to say no.
static int refused(const char* reply, ssize_t bytes) {
    if (kind == kClamd) return reply[bytes - 1] == '\0';
    return reply[0] == '-' || (bytes >= 5 && memcmp(reply, "ERROR", 5) == 0);
}

// True if the reply is complete.
static int receive(struct Client* client) {
    char buffer[16384];
    ssize_t got = recv(client->fd, buffer, sizeof buffer, 0);
    if (got <= 0) {
        fprintf(stderr, "pingload: connection lost: %s\n", got == 0 ? "closed by the server" : strerror(errno));
        exit(1);
    }
    for (ssize_t n = got > 8 ? got - 8 : 0; n < got; n++) {
        if (client->tail_bytes == 8) memmove(client->tail, client->tail + 1, --client->tail_bytes);
        client->tail[client->tail_bytes++] = buffer[n];
    }
    const int wanted = client->terminator_bytes;
    if (client->tail_bytes >= wanted &&
        memcmp(client->tail + client->tail_bytes - wanted, client->terminator, wanted) == 0)
        return 1;
    if (refused(buffer, got)) {
        errors++;
        return 1;
    }
    return 0;
}

static void connect_all(const char* host, int port, int count, int epoll) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    for (int n = 0; n < count; n++) {
        int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) {
            fprintf(stderr, "pingload: cannot connect to %s:%d: %s\n", host, port, strerror(errno));
            exit(1);
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        clients[n] = (struct Client){.fd = fd, .number = n};
        if (kind == kClamd && send(fd, "zIDSESSION", 11, MSG_NOSIGNAL) != 11) errors++;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &clients[n]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

int main(int argc, char** argv) {
    static const char* const kinds[] = {[kRedis] = "redis-set", [kMemcached] = "memcached", [kClamd] = "clamd"};
    int known = 0;
    for (int n = 0; argc > 5 && n < 3; n++)
        if (strcmp(argv[5], kinds[n]) == 0) known = 1, kind = n;
    if (!known || atoi(argv[3]) < 1 || atoi(argv[3]) > kMaxClients) {
        fprintf(stderr, "usage: pingload HOST PORT CLIENTS SECONDS redis-set|memcached|clamd [OFFSET]\n");
        return 2;
    }
    int count = atoi(argv[3]), epoll = epoll_create1(0);
    if (argc > 6) random_state += atoi(argv[6]);
    memset(value, 'v', kValueBytes);
    connect_all(argv[1], atoi(argv[2]), count, epoll);
    double begin = now(), end = begin + atof(argv[4]);
    for (int n = 0; n < count; n++) send_request(&clients[n]);
    while (now() < end) {
        struct epoll_event events[256];
        int ready = epoll_wait(epoll, events, 256, 200);
        for (int n = 0; n < ready; n++) {
            struct Client* client = events[n].data.ptr;
            if (!receive(client)) continue;
            double took_us = (now() - client->sent_at) * 1e6;
            histogram[bucket_of(took_us)]++;
            requests++;
            if (took_us > worst) worst = took_us;
            send_request(client);
        }
    }
    printf("{\"requests\": %lu, \"seconds\": %.3f, \"errors\": %lu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n",
           requests, now() - begin, errors, percentile(0.5), percentile(0.99), worst);
    return 0;
}
