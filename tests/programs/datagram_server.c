// Counts the datagrams that come to its port and answers each with its number and its text; over TCP it says how
// many there were. Its state is the count alone, so each answer shows whether every datagram was taken once. What begins with
// "apart" is answered from a port of its own, as TFTP has it.
#include <pthread.h>

#include "serve.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long count;

static void* answer_datagrams(void* fd_given) {
    const int fd = (int)(long)fd_given;
    static char text[65536], reply[65536 + 64];
    for (;;) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        const ssize_t got = recvfrom(fd, text, sizeof text, 0, (struct sockaddr*)&from, &length);
        if (got < 0) continue;
        pthread_mutex_lock(&mutex);
        const long number = ++count;
        pthread_mutex_unlock(&mutex);
        const int head = snprintf(reply, sizeof reply, "%ld ", number);
        memcpy(reply + head, text, got);
        size_t bytes = head + got;
        if (bytes > 65507) bytes = 65507;
        const int apart = got >= 5 && memcmp(text, "apart", 5) == 0;
        const int by = apart ? socket(AF_INET, SOCK_DGRAM, 0) : fd;
        if (apart) CHECK(connect(by, (struct sockaddr*)&from, length) == 0);
        CHECK(sendto(by, reply, bytes, 0, (struct sockaddr*)&from, length) == (ssize_t)bytes);
        if (apart) close(by);
    }
    return NULL;
}

static void scenario(void) {
    pthread_mutex_lock(&mutex);
    say("%ld", count);
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    CHECK(bind(fd, (struct sockaddr*)&address, sizeof address) == 0);
    pthread_t thread;
    pthread_create(&thread, NULL, answer_datagrams, (void*)(long)fd);
    return serve(argc, argv, scenario);
}
