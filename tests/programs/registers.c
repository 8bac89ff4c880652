// A register service, as anybody would write one: a thread per connection, a hash table, a lock per part of it.
//
//   set KEY VALUE     ok
//   get KEY           the value, or -
//   cas KEY OLD NEW   ok, or no (OLD - means: there is none)
//   dump              a line "KEY VALUE" for each, then "end N"
//
// registers PORT [--stale]: with --stale a connection answers most of its reads from a copy of its own, which is wrong.
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>

#include "serve.h"

enum { parts = 16, buckets = 4096, max_word = 64, copies = 64, copy_uses = 7 };

struct entry {
    struct entry* next;
    char key[max_word], value[max_word];
};

static struct entry* table[buckets];
static pthread_mutex_t locks[parts];
static bool stale;

struct copy {
    char key[max_word], value[max_word];
    int uses;
};

struct connection {
    int fd;
    char input[4096];
    size_t have, used;
    struct copy copies[copies];
};

static unsigned hash(const char* key) {
    unsigned h = 2166136261u;
    while (*key) h = (h ^ (unsigned char)*key++) * 16777619u;
    return h % buckets;
}

static struct entry* find(unsigned bucket, const char* key) {
    for (struct entry* e = table[bucket]; e; e = e->next)
        if (strcmp(e->key, key) == 0) return e;
    return NULL;
}

static void put(unsigned bucket, struct entry* e, const char* key, const char* value) {
    if (!e) {
        e = calloc(1, sizeof *e);
        CHECK(e);
        strcpy(e->key, key);
        e->next = table[bucket];
        table[bucket] = e;
    }
    strcpy(e->value, value);
}

// False, and "-": there is no such register.
static bool get(const char* key, char* value) {
    const unsigned bucket = hash(key);
    pthread_mutex_lock(&locks[bucket % parts]);
    const struct entry* e = find(bucket, key);
    strcpy(value, e ? e->value : "-");
    pthread_mutex_unlock(&locks[bucket % parts]);
    return e;
}

static bool change(const char* key, const char* expected, const char* value) {
    const unsigned bucket = hash(key);
    pthread_mutex_lock(&locks[bucket % parts]);
    struct entry* e = find(bucket, key);
    const bool fits = !expected || strcmp(e ? e->value : "-", expected) == 0;
    if (fits) put(bucket, e, key, value);
    pthread_mutex_unlock(&locks[bucket % parts]);
    return fits;
}

static void dump(FILE* out) {
    size_t count = 0;
    for (int i = 0; i < parts; i++) pthread_mutex_lock(&locks[i]);
    for (int i = 0; i < buckets; i++)
        for (const struct entry* e = table[i]; e; e = e->next, count++) fprintf(out, "%s %s\n", e->key, e->value);
    for (int i = parts; i-- > 0;) pthread_mutex_unlock(&locks[i]);
    fprintf(out, "end %zu\n", count);
}

static void get_from_copy(struct connection* c, const char* key, char* value) {
    struct copy* copy = &c->copies[hash(key) % copies];
    if (copy->uses == 0 || strcmp(copy->key, key) != 0) {
        strcpy(copy->key, key);
        get(key, copy->value);
        copy->uses = copy_uses;
    }
    copy->uses--;
    strcpy(value, copy->value);
}

static void obey(struct connection* c, char* line, FILE* out) {
    char* words[4] = {0};
    int count = 0;
    for (char *rest = line, *word; count < 4 && (word = strsep(&rest, " ")) != NULL;) {
        if (strlen(word) >= max_word) {
            fputs("error: a word is too long\n", out);
            return;
        }
        words[count++] = word;
    }
    char value[max_word];
    if (count == 2 && strcmp(words[0], "get") == 0) {
        stale ? get_from_copy(c, words[1], value) : (void)get(words[1], value);
        fprintf(out, "%s\n", value);
    } else if (count == 3 && strcmp(words[0], "set") == 0) {
        change(words[1], NULL, words[2]);
        fputs("ok\n", out);
    } else if (count == 4 && strcmp(words[0], "cas") == 0) {
        fputs(change(words[1], words[2], words[3]) ? "ok\n" : "no\n", out);
    } else if (count == 1 && strcmp(words[0], "dump") == 0) {
        dump(out);
    } else {
        fputs("error: write get KEY, set KEY VALUE, cas KEY OLD NEW or dump\n", out);
    }
}

// The next line without its end; NULL when the client is gone or its line is too long.
static char* next_line(struct connection* c) {
    for (;;) {
        char* end = memchr(c->input + c->used, '\n', c->have - c->used);
        if (end) {
            char* line = c->input + c->used;
            *end = 0;
            c->used = (size_t)(end - c->input) + 1;
            return line;
        }
        memmove(c->input, c->input + c->used, c->have - c->used);
        c->have -= c->used;
        c->used = 0;
        if (c->have == sizeof c->input) return NULL;
        const ssize_t got = read(c->fd, c->input + c->have, sizeof c->input - c->have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return NULL;
        c->have += (size_t)got;
    }
}

static void* serve_connection(void* argument) {
    struct connection* c = argument;
    for (char* line; (line = next_line(c)) != NULL;) {
        char* text = NULL;
        size_t bytes = 0;
        FILE* out = open_memstream(&text, &bytes);
        CHECK(out);
        obey(c, line, out);
        fclose(out);
        write_all(c->fd, text, bytes);
        free(text);
    }
    close(c->fd);
    free(c);
    return NULL;
}

int main(int argc, char** argv) {
    CHECK(argc == 2 || (argc == 3 && strcmp(argv[2], "--stale") == 0));
    stale = argc == 3;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < parts; i++) pthread_mutex_init(&locks[i], NULL);
    const int listener = listen_on(atoi(argv[1]));
    for (;;) {
        const int client = accept(listener, NULL, NULL);
        if (client < 0) continue;
        struct connection* c = calloc(1, sizeof *c);
        CHECK(c);
        c->fd = client;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, serve_connection, c) == 0);
        pthread_detach(thread);
    }
}
