// Four processes of four threads accept on one listener; each answer depends on which of them took it and when.
#include "serve.h"

#include <poll.h>
#include <pthread.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>

static int listener;
static pthread_mutex_t* lock;
static int* counter;

static void* take(void* argument) {
    for (;;) {
        char line[64], text[128];
        int client = accept(listener, NULL, NULL);
        if (client < 0) continue;
        while (read_line(client, line, sizeof line) >= 0) {
            pthread_mutex_lock(lock);
            int number = ++*counter;
            pthread_mutex_unlock(lock);
            int bytes = snprintf(text, sizeof text, "%d ~%d %ld\n", number, getpid(), (long)argument);
            write_all(client, text, bytes);
        }
        close(client);
    }
    return NULL;
}

int main(int argc, char** argv) {
    CHECK(argc == 2);
    signal(SIGPIPE, SIG_IGN);
    listener = listen_on(atoi(argv[1]));
    char* shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lock = (pthread_mutex_t*)shared;
    counter = (int*)(shared + 256);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &attributes);
    for (int process = 0; process < 4; process++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child != 0) continue;
        pthread_t thread;
        for (long n = 1; n < 4; n++) CHECK(pthread_create(&thread, NULL, take, (void*)n) == 0);
        take((void*)0);
    }
    for (int status; wait(&status) > 0 || errno == EINTR;) {
    }
    return 0;
}
