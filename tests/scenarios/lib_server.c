#include "lib_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache.h"
#include "core/error.h"
#include "core/mem.h"
#include "doors/local/local.h"
#include "source/source_posix.h"

#define MEMORY_BYTES  (64ULL << 20)
#define SEGMENT_BYTES (512ULL << 10)
#define TTL_NS        200000000LL
#define TIMEOUT_NS    30000000000LL
#define SEGMENTS_MAX  4096

struct question {
    enum server_op op;
    char path[256];
};

struct place {
    struct fb_cache *cache;
    struct fb_volume *volume;
    struct fb_local *local;
    uint32_t marks[SEGMENTS_MAX];
};

/* A connection of the door goes from thread to thread by epoll's one shot, which TSan does not see.
 * What programs do is what is tested here. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "race:src/doors/local/";
}

/* NOLINTEND(bugprone-reserved-identifier) */

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "lib_server: %s\n", what);
    _exit(1);
}

/* ---- in the child ---- */

static void open_all(struct place *p, const char *root, const char *socket)
{
    struct fb_posix_config posix = {.root = root, .threads = 4};
    struct fb_volume_config config = {.metadata_ttl_ns = TTL_NS, .timeout_ns = TIMEOUT_NS};
    struct fb_local_config local = {.socket_path = socket};
    struct fb_error err = {""};
    struct fb_cache_config cache;
    struct fb_source *source;

    fb_cache_config_defaults(&cache);
    cache.memory_bytes = MEMORY_BYTES;
    cache.segment_bytes = SEGMENT_BYTES;
    cache.block_bytes = SERVER_BLOCK;
    cache.evict = "fifo";
    cache.no_patterns = true; /* what is pushed out here is to go */
    if (fb_cache_open(&cache, &p->cache, &err) != 0 ||
        fb_source_posix_open(&posix, &source, &err) != 0 ||
        fb_volume_attach(p->cache, source, &config, &p->volume, &err) != 0 ||
        fb_local_start(p->cache, &local, &p->local, &err) != 0 ||
        fb_local_add(p->local, p->volume, root, &err) != 0)
        give_up(err.text);
}

static void close_all(struct place *p)
{
    fb_local_remove(p->local, p->volume);
    fb_local_stop(p->local);
    fb_volume_detach(p->volume);
    fb_cache_close(p->cache);
}

static uint64_t read_file(struct place *p, const char *path)
{
    FB_AUTO_FREE uint8_t *buffer = malloc(FB_READ_MAX);
    struct fb_attr attr;
    uint64_t at = 0;
    uint32_t file;

    if (!buffer || fb_cache_stat(p->volume, path, &file, &attr) != 0)
        return 0;
    while (at < attr.version.size) {
        int64_t n = fb_cache_pread(p->volume, file, at, FB_READ_MAX, buffer);

        if (n <= 0)
            break;
        at += (uint64_t)n;
    }
    fb_files_unref(fb_cache_files(p->cache), file, 1);
    return at;
}

static uint32_t generation(struct place *p, uint32_t segment)
{
    const struct fb_layout *l = fb_store_layout(fb_cache_store(p->cache));

    return atomic_load(&fb_layout_segment(l, segment)->gen);
}

static uint64_t answer(struct place *p, const struct question *q)
{
    uint64_t segments = fb_store_layout(fb_cache_store(p->cache))->h.dram_segments;
    uint64_t reads = 0, bytes, moved = 0;

    switch (q->op) {
    case SERVER_READ:
        return read_file(p, q->path);
    case SERVER_HITS:
        fb_local_hits(p->local, &reads, &bytes);
        return reads;
    case SERVER_CLIENTS:
        return fb_local_clients(p->local);
    case SERVER_MARK:
        for (uint32_t i = 0; i < segments; i++)
            p->marks[i] = generation(p, i);
        return 0;
    case SERVER_MOVED:
        for (uint32_t i = 0; i < segments; i++)
            moved += p->marks[i] != generation(p, i);
        return moved;
    case SERVER_EVICT:
        return fb_cache_evict(p->volume, q->path);
    default:
        return segments;
    }
}

static void serve(int fd, const char *root, const char *socket)
{
    static struct place p;
    struct question q;
    uint64_t reply = 0;

    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_all(&p, root, socket);
    if (write(fd, &reply, sizeof reply) != (ssize_t)sizeof reply)
        _exit(1);
    while (read(fd, &q, sizeof q) == (ssize_t)sizeof q && q.op != SERVER_END) {
        reply = answer(&p, &q);
        if (write(fd, &reply, sizeof reply) != (ssize_t)sizeof reply)
            _exit(1);
    }
    close_all(&p);
    _exit(0);
}

/* ---- in the test ---- */

void server_start(struct server *server, const char *root, const char *socket)
{
    uint64_t ready = 0;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        give_up("socketpair");
    server->pid = fork();
    if (server->pid < 0)
        give_up("fork");
    if (server->pid == 0) {
        close(fds[0]);
        serve(fds[1], root, socket);
    }
    close(fds[1]);
    server->fd = fds[0];
    if (read(server->fd, &ready, sizeof ready) != (ssize_t)sizeof ready)
        give_up("the server did not come up");
}

uint64_t server_ask(const struct server *server, enum server_op op, const char *path)
{
    struct question q = {.op = op};
    uint64_t reply = 0;

    if (path)
        snprintf(q.path, sizeof q.path, "%s", path);
    if (write(server->fd, &q, sizeof q) != (ssize_t)sizeof q ||
        read(server->fd, &reply, sizeof reply) != (ssize_t)sizeof reply)
        give_up("the server does not answer");
    return reply;
}

static void gone(struct server *server, bool well)
{
    int status;

    if (waitpid(server->pid, &status, 0) != server->pid || (well && status != 0))
        give_up("the server did not end well");
    close(server->fd);
    server->pid = 0;
}

void server_end(struct server *server)
{
    struct question q = {.op = SERVER_END};

    if (server->pid == 0)
        return;
    if (write(server->fd, &q, sizeof q) != (ssize_t)sizeof q)
        give_up("the server does not listen");
    gone(server, true);
}

void server_signal(struct server *server, int number)
{
    kill(server->pid, number);
    if (number == SIGKILL)
        gone(server, false);
}
