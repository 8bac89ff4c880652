// System calls that libc makes inside itself, where no exported name is called: stdio and its locks, lists of
// directories, users and hosts, words of a shell, contexts, the clock by its address.
#include "serve.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <link.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <ucontext.h>
#include <wordexp.h>

static FILE* shared;

static void* print_much(void* text) {
    for (int i = 0; i < 20000; i++) fputs(text, shared);
    return NULL;
}

static void* print_both(void* unused) {
    pthread_t one, other;
    CHECK(pthread_create(&one, NULL, print_much, "one line\n") == 0);
    CHECK(pthread_create(&other, NULL, print_much, "another line\n") == 0);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    fclose(shared);
    return unused;
}

// Whoever has the stream's lock sleeps, since nobody reads yet; the other one waits for the lock.
static void a_stream_that_two_print_to(void) {
    int fds[2];
    pthread_t both;
    CHECK(pipe(fds) == 0);
    shared = fopen("/dev/null", "w");
    CHECK(shared && dup2(fds[1], fileno(shared)) >= 0);
    close(fds[1]);
    CHECK(pthread_create(&both, NULL, print_both, NULL) == 0);
    usleep(10000);
    char bytes[4096];
    long all = 0;
    for (ssize_t got; (got = read(fds[0], bytes, sizeof bytes)) > 0;) all += got;
    say("printed %ld", all);
    pthread_join(both, NULL);
    close(fds[0]);
}

static int seen;
static int visit(const char* path, const struct stat* about, int kind, struct FTW* where) {
    order("%s %lu %ld", path + where->base, (unsigned long)about->st_ino, (long)about->st_mtim.tv_nsec);
    seen += kind == FTW_F;
    return 0;
}

static void directories(void) {
    char folder[] = "/tmp/crane-libc-XXXXXX", path[64];
    CHECK(mkdtemp(folder));
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i * 5 % 6);
        FILE* file = fopen(path, "w");
        fprintf(file, "%d\n", i);
        fclose(file);
    }
    seen = 0;
    say("nftw %d", nftw(folder, visit, 4, FTW_PHYS));
    say("files %d", seen);
    snprintf(path, sizeof path, "%s/*", folder);
    glob_t found;
    say("glob %d", glob(path, 0, NULL, &found));
    for (size_t i = 0; i < found.gl_pathc; i++) {
        say("%s", strrchr(found.gl_pathv[i], '/'));
        unlink(found.gl_pathv[i]);
    }
    globfree(&found);
    say("rmdir %d", rmdir(folder));
    FILE* temporary = tmpfile();
    fprintf(temporary, "kept\n");
    rewind(temporary);
    char line[16] = "";
    say("tmpfile %s", fgets(line, sizeof line, temporary) ? line : "-");
    fclose(temporary);
}

static void names(void) {
    struct addrinfo *list = NULL, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    say("getaddrinfo %d", getaddrinfo("localhost", "80", &hints, &list));
    for (const struct addrinfo* one = list; one; one = one->ai_next) {
        const struct sockaddr_in* address = (const struct sockaddr_in*)one->ai_addr;
        say("%s %d", inet_ntoa(address->sin_addr), ntohs(address->sin_port));
    }
    if (list) freeaddrinfo(list);
    const struct passwd* root = getpwnam("root");
    say("root has %s", root ? root->pw_dir : "-");
    wordexp_t words;
    say("wordexp %d", wordexp("a $(echo b c) d", &words, 0));
    for (size_t i = 0; i < words.we_wordc; i++) say("word %s", words.we_wordv[i]);
    wordfree(&words);
    FILE* output = popen("echo from a shell", "r");
    char line[32] = "";
    say("popen %s", fgets(line, sizeof line, output) ? line : "-");
    say("pclose %d", pclose(output));
}

static void a_log(void) {
    int fds[2];
    const int before = dup(2);
    char line[64] = "";
    CHECK(pipe(fds) == 0);
    dup2(fds[1], 2);
    openlog("libc_calls", LOG_PERROR, LOG_USER);
    syslog(LOG_DEBUG, "a message of %d", 17);
    closelog();
    dup2(before, 2);
    close(before);
    close(fds[1]);
    say("syslog %d", read(fds[0], line, sizeof line - 1) > 0);
    say("%s", line);
    close(fds[0]);
}

static void* idle(void* unused) {
    (void)unused;
    for (;;) sleep(1);
    return NULL;
}

static void a_child(void) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, idle, NULL);
        // libc tells each thread, and waits for it.
        if (setuid(getuid()) != 0 || setgroups(0, NULL) > 0) quick_exit(1);
        quick_exit(9);
    }
    waitpid(child, &status, 0);
    say("quick_exit %d", WEXITSTATUS(status));
}

static sem_t called, came;

static void* come(void* rounds) {
    for (long i = 0; i < (long)rounds; i++) {
        sem_wait(&called);
        sem_post(&came);
    }
    return NULL;
}

// The other thread is on its way to sleep when libc tells it, and this one waits for that.
static void a_change_of_group(void) {
    const long rounds = 500;
    pthread_t thread;
    long changes = 0;
    sem_init(&called, 0, 0);
    sem_init(&came, 0, 0);
    pthread_create(&thread, NULL, come, (void*)rounds);
    for (long i = 0; i < rounds; i++) {
        sem_post(&called);
        sem_wait(&came);
        changes += setgid(getgid()) == 0;
    }
    pthread_join(thread, NULL);
    say("changes of group %ld", changes);
}

// The program's own function of that name, before any library's, as Erlang's runtime has it.
extern int __sigaction(int signal, const struct sigaction* action, struct sigaction* old);
int sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
    return __sigaction(signal, action, old);
}

static int handled;
static void on_signal(int signal) { handled += signal == SIGUSR1; }

static void a_function_of_the_programs_own(void) {
    const struct sigaction action = {.sa_handler = on_signal};
    struct sigaction old;
    handled = 0;
    say("its own sigaction %d", sigaction(SIGUSR1, &action, NULL));
    raise(SIGUSR1);
    say("handled %d", handled);
    say("as before %d", sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, &old) == 0 && old.sa_handler == on_signal);
}

static ucontext_t here, there;
static sigjmp_buf back;
static void other_context(void) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("blocked there %d", sigismember(&now, SIGUSR1));
}

static void contexts(void) {
    static char stack[65536];
    sigset_t set, now;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    sigaddset(&there.uc_sigmask, SIGUSR1);
    makecontext(&there, other_context, 0);
    say("swapcontext %d", swapcontext(&here, &there));
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("blocked here %d", sigismember(&now, SIGUSR1));
    if (sigsetjmp(back, 1) == 0) {
        sigprocmask(SIG_BLOCK, &set, NULL);
        siglongjmp(back, 1);
    }
    sigprocmask(SIG_BLOCK, NULL, &now);
    say("after a jump %d", sigismember(&now, SIGUSR1));
}

static void a_stack(void) {
    pthread_attr_t attributes;
    void* begin = NULL;
    size_t bytes = 0;
    say("pthread_getattr_np %d", pthread_getattr_np(pthread_self(), &attributes));
    pthread_attr_getstack(&attributes, &begin, &bytes);
    say("holds a variable %d", (char*)&bytes > (char*)begin && (char*)&bytes < (char*)begin + bytes);
    pthread_attr_destroy(&attributes);
    char name[32];
    snprintf(name, sizeof name, "/crane-%d", (int)getpid());
    pthread_mutexattr_t kind;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    say("mutex with priorities %d", pthread_mutex_init(&mutex, &kind));
    say("lock %d", pthread_mutex_lock(&mutex));
    say("unlock %d", pthread_mutex_unlock(&mutex));
    sem_t* semaphore = sem_open(name, O_CREAT, 0600, 1);
    say("sem_open %d", semaphore != SEM_FAILED);
    say("sem_wait %d", sem_wait(semaphore));
    sem_close(semaphore);
    say("sem_unlink %d", sem_unlink(name));
}

// As libc itself calls it.
static void* kernels_function(const char* wanted) {
    const char* base = (const char*)getauxval(AT_SYSINFO_EHDR);
    const ElfW(Ehdr)* head = (const ElfW(Ehdr)*)base;
    const ElfW(Phdr)* parts = (const ElfW(Phdr)*)(base + head->e_phoff);
    const ElfW(Dyn)* dynamic = NULL;
    const char *names = NULL, *load = NULL;
    const ElfW(Sym)* symbols = NULL;
    const uint32_t* hash = NULL;
    for (int i = 0; i < head->e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD && !load) load = base - parts[i].p_vaddr;
        if (parts[i].p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn)*)(base + parts[i].p_offset);
    }
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_STRTAB) names = load + dynamic->d_un.d_ptr;
        if (dynamic->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym)*)(load + dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_HASH) hash = (const uint32_t*)(load + dynamic->d_un.d_ptr);
    }
    for (uint32_t i = 0; hash && i < hash[1]; i++)
        if (strcmp(names + symbols[i].st_name, wanted) == 0) return (void*)(load + symbols[i].st_value);
    return NULL;
}

static void the_clock(void) {
    long (*const read)(int, struct timespec*) = (long (*)(int, struct timespec*))kernels_function("__vdso_clock_gettime");
    struct timespec now = {0};
    if (read) read(CLOCK_REALTIME, &now);
    order("real %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    if (read) read(CLOCK_MONOTONIC, &now);
    order("at %ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    say("another clock %ld", read ? read(77, &now) : -22);
}

static void scenario(void) {
    a_stream_that_two_print_to();
    directories();
    names();
    a_log();
    a_child();
    a_change_of_group();
    a_function_of_the_programs_own();
    contexts();
    a_stack();
    the_clock();
}

int main(int argc, char** argv) { return serve(argc, argv, scenario); }
