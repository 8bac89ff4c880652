// Names that are asked for without waiting: waited for, told of by a thread and by a signal, cancelled.
#include <netdb.h>
#include <pthread.h>

#include "serve.h"

enum { kMany = 60 };
static struct gaicb blocks[kMany];
static struct gaicb* list[kMany];
static const struct addrinfo numbers = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
static const struct addrinfo names = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};

static void ask_many(int count) {
    static char text[kMany][32], service[kMany][8];
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < count; i++) {
        list[i] = &blocks[i];
        snprintf(text[i], sizeof text[i], i % 3 == 1 ? "localhost" : i % 7 == 6 ? "no number" : "192.0.2.%d", i);
        snprintf(service[i], sizeof service[i], "%d", 1000 + i);
        blocks[i].ar_name = text[i];
        blocks[i].ar_service = i % 5 == 4 ? NULL : service[i];
        blocks[i].ar_request = i % 3 == 1 ? &names : &numbers;
    }
}

static void tell_many(int count) {
    for (int i = 0; i < count; i++) {
        const int error = gai_error(&blocks[i]);
        const struct sockaddr_in* to = error ? NULL : (const struct sockaddr_in*)blocks[i].ar_result->ai_addr;
        say("%s: %d %s %d", blocks[i].ar_name, error, to ? inet_ntoa(to->sin_addr) : "-", to ? ntohs(to->sin_port) : 0);
        if (!error) freeaddrinfo(blocks[i].ar_result);
    }
}

static void await_all(int count) {
    while (gai_suspend((const struct gaicb* const*)list, count, NULL) != EAI_ALLDONE) continue;
}

static void waited_for(void) {
    ask_many(20);
    list[3] = NULL;
    say("GAI_WAIT %d", getaddrinfo_a(GAI_WAIT, list, 20, NULL));
    blocks[3].__return = EAI_CANCELED;
    tell_many(20);
    say("all done %d", gai_suspend((const struct gaicb* const*)list, 20, NULL) == EAI_ALLDONE);
    say("of nothing %d", gai_suspend(NULL, 0, NULL) == EAI_ALLDONE);
    say("nothing %d", getaddrinfo_a(GAI_WAIT, NULL, 0, NULL));
    errno = 0;
    say("no mode %d", getaddrinfo_a(77, list, 20, NULL) == EAI_SYSTEM);
    say("errno %s", strerrorname_np(errno));
}

static void asked_again_and_again(void) {
    const struct timespec moment = {.tv_nsec = 1};
    ask_many(kMany);
    say("GAI_NOWAIT %d", getaddrinfo_a(GAI_NOWAIT, list, kMany, NULL));
    order("in a moment %d", gai_suspend((const struct gaicb* const*)list, kMany, &moment));
    int looks = 0;
    for (int i = 0; i < kMany; i++)
        while (gai_error(&blocks[i]) == EAI_INPROGRESS) looks++;
    order("looks %d", looks);
    tell_many(kMany);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int told, sum;

static void on_done(union sigval value) {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    pthread_mutex_lock(&lock);
    told++, sum += value.sival_int;
    if (sigismember(&blocked, SIGUSR1)) sum += 1000;
    order("told %d", value.sival_int);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void told_by_threads(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_done};
    told = sum = 0;
    ask_many(kMany);
    for (int i = 0; i < kMany; i += 6) {
        event.sigev_value.sival_int = i;
        CHECK(getaddrinfo_a(GAI_NOWAIT, list + i, 6, &event) == 0);
    }
    pthread_mutex_lock(&lock);
    while (told < kMany / 6) pthread_cond_wait(&changed, &lock);
    say("told %d times, sum %d", told, sum);
    pthread_mutex_unlock(&lock);
    tell_many(kMany);
    event.sigev_value.sival_int = 7;
    say("of nothing %d", getaddrinfo_a(GAI_NOWAIT, NULL, 0, &event));
    pthread_mutex_lock(&lock);
    while (told < kMany / 6 + 1) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void told_by_signals(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3};
    sigset_t set, before;
    siginfo_t info;
    int values = 0, right = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, &before);
    ask_many(kMany);
    for (int i = 0; i < kMany; i += 20) {
        event.sigev_value.sival_int = i;
        CHECK(getaddrinfo_a(GAI_NOWAIT, list + i, 20, &event) == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 3);
        values += info.si_value.sival_int;
        right += info.si_code == SI_ASYNCNL && info.si_pid == getpid() && info.si_uid == getuid();
        order("signal %d", info.si_value.sival_int);
    }
    say("signals with %d, right %d", values, right);
    tell_many(kMany);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

// What is done or was never asked for cannot be, what waits for its turn can.
static void cancelled(void) {
    struct gaicb never = {.ar_name = "localhost"};
    say("never asked for %d", gai_cancel(&never) == EAI_ALLDONE);
    ask_many(kMany);
    CHECK(getaddrinfo_a(GAI_NOWAIT, list, kMany, NULL) == 0);
    int kinds = 0;
    for (int i = kMany - 1; i >= 0; i--) {
        const int result = gai_cancel(&blocks[i]);
        kinds += result == EAI_CANCELED || result == EAI_NOTCANCELED || result == EAI_ALLDONE;
        order("%d: %d", i, result);
        if (result == EAI_CANCELED) list[i] = NULL;
    }
    await_all(kMany);
    say("cancelled as they should %d", kinds);
    say("afterwards %d", gai_cancel(&blocks[0]) == EAI_ALLDONE);
}

static void scenario(void) {
    waited_for();
    asked_again_and_again();
    told_by_threads();
    told_by_signals();
    cancelled();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
