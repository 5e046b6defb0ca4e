/*
 * doors/local/local_priv.h - what the files of this door share.
 *
 *     local.c     life, the list of roots, threads
 *     client.c    processes: their areas, hazards, credits, access records
 *     peer.c      who is at the other end
 *     conn.c      connections: bytes in, bytes out
 *     requests.c  what is asked
 *
 * A connection has one owner at a time and needs no lock: the door's thread that epoll woke for it
 * (one shot), or, while the cache works on its request, the thread that will answer. `lock`
 * (FB_RANK_DOOR) guards the lists of connections and roots and the volumes; `clients_lock`
 * (FB_RANK_CLIENTS) the list of clients, and is taken by the store's guard.
 */
#ifndef FB_DOORS_LOCAL_LOCAL_PRIV_H
#define FB_DOORS_LOCAL_LOCAL_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/list.h"
#include "core/lock.h"
#include "doors/local/local.h"
#include "proto/client.h"

#define FB_DOOR_LOCAL        2 /* in access records; the mount is 1 */
#define FB_LOCAL_THREADS_MAX 4u
#define FB_LOCAL_WRITE_NS    10000000000LL /* a client that takes nothing for so long is cut off */
#define FB_LOCAL_DRAIN_MAX   FB_CLIENT_RING_SLOTS

/* A volume that is served, for as long as it has roots or requests. */
struct fb_local_volume {
    struct fb_volume *volume;
    unsigned working; /* requests */
};

struct fb_local_root {
    struct fb_list link;
    struct fb_local_volume *volume;
    uint64_t dev;
    uint64_t ino;
    uint32_t block_bytes;
    size_t path_len;
    char path[];
};

/* A process, from its first HELLO until its last connection has closed. */
struct fb_local_client {
    struct fb_list link;
    _Atomic unsigned refs; /* connections, and who looks at it without the lock */
    unsigned connections;  /* clients_lock */
    uint32_t pid;
    uint32_t uid;
    uint32_t credits;            /* DRAM segments it may pin; clients_lock */
    bool gone;                   /* though a child of it keeps the connection; clients_lock */
    int pidfd;                   /* of the process, if it has an area; -1: unknown */
    struct fb_client_area *area; /* NULL: none */
    /* The hook's: what was counted up to now. */
    struct fb_access_reader reader;
    uint64_t reads;
    uint64_t read_bytes;
    uint64_t medium_reads;
    uint64_t medium_bytes;
};

struct fb_local_request;
struct fb_local_writer;

struct fb_local_conn {
    struct fb_local *local;
    struct fb_list link;
    int fd;
    int epoll;
    uint32_t uid;
    uint32_t gid;
    uint32_t pid;
    struct fb_local_client *client; /* NULL before HELLO */
    /* in */
    struct fb_client_request head;
    size_t got;                       /* of head, then of head and path */
    struct fb_local_request *request; /* while a request is being read, worked on or answered */
    /* out */
    struct fb_client_reply reply;
    void *payload; /* of HELLO, or NULL; freed when sent */
    int fds[FB_CLIENT_FDS_MAX];
    unsigned fd_count; /* to go with the first byte */
    int area_fd;       /* ours to close then; -1: none */
    struct iovec iov[1 + FB_READ_PIECES];
    unsigned iov_count;
    unsigned iov_at;
    _Atomic int64_t write_until_ns; /* 0: nothing is being written */
    /* Paths that the process has open for writing; the oldest make room. */
    struct fb_local_writer *writers;
    unsigned writer_count;
};

/* Allocated with its path, as long as the connection. */
struct fb_local_writer {
    struct fb_local_writer *next; /* one that is older */
    uint16_t source;
    char path[];
};

/* One request; `path` has a final zero. */
struct fb_local_request {
    struct fb_local_conn *conn;
    struct fb_local_volume *volume;
    uint32_t file; /* whose reference we hold; or FB_FILE_NONE */

    union {
        struct fb_lookup lookup;
        struct fb_read read;
    };

    char path[];
};

struct fb_local {
    struct fb_cache *cache;
    struct fb_store *store;
    struct fb_local_config config;
    char *socket_path;
    int listener;
    int tables_fd;                 /* read-only */
    int dram_fd;                   /* read-only; -1: no DRAM tier */
    struct fb_store_medium medium; /* with read-only descriptors of our own */
    uint64_t groups_hash;
    bool reads_anything;

    unsigned thread_count;
    pthread_t threads[FB_LOCAL_THREADS_MAX];
    int epolls[FB_LOCAL_THREADS_MAX];
    int stop_fd;
    _Atomic bool stop;
    _Atomic bool accept_later; /* no descriptor for who comes: the hook lets us try again */
    _Atomic unsigned next_thread;
    _Atomic int64_t warned_ns;

    struct fb_mutex lock;
    struct fb_cond idle;
    struct fb_list conns;
    unsigned conn_count;
    bool closing; /* no more of them */
    struct fb_list roots;
    unsigned root_count;

    struct fb_mutex clients_lock;
    struct fb_list clients;
    unsigned client_count;
    unsigned area_count;
    uint32_t credits; /* DRAM segments that may still be pinned */
    _Atomic uint64_t hit_reads;
    _Atomic uint64_t hit_bytes;

    int64_t rest_until_ns; /* the background thread's: no records are taken before */
};

/* ---- local.c ---- */

/* A volume by its number, for one request, that must be left again; NULL: there is none. */
struct fb_local_volume *fb_local_enter(struct fb_local *local, uint16_t source);
void fb_local_leave(struct fb_local *local, struct fb_local_volume *volume);

/* The welcome with all roots; NULL without memory. */
FB_MUST_CHECK void *fb_local_welcome(struct fb_local *local, const struct fb_local_client *client,
                                     uint32_t *ret_bytes);

/* ---- client.c ---- */

/* The process behind a connection; a new one gets an area when `want_area` and there is room, and
 * *ret_fd is then its descriptor, else -1. NULL without memory. */
struct fb_local_client *fb_local_client_get(const struct fb_local_conn *conn, bool want_area,
                                            int *ret_fd);
void fb_local_client_put(struct fb_local *local, struct fb_local_client *client);
uint32_t fb_local_client_credit(struct fb_local *local, struct fb_local_client *client,
                                uint32_t asked);
bool fb_local_held(void *arg, uint32_t segment); /* the store's guard */
bool fb_local_tick(void *arg);                   /* the cache's hook */

/* ---- peer.c ---- */

/* Of the process that made the connection; -1: none to be had. */
int fb_local_peer_pidfd(const struct fb_local_conn *conn);
bool fb_local_peer_gone(int pidfd);
/* It could open whatever the daemon can. */
bool fb_local_peer_fits(const struct fb_local_conn *conn);

/* ---- conn.c ---- */

void fb_local_accept(struct fb_local *local);
/* Listens for the next one. */
void fb_local_listen(struct fb_local *local);
/* epoll says that something can be done. */
void fb_local_conn_serve(struct fb_local_conn *conn, uint32_t events);
/* Sends conn->reply and what conn->iov[1 ...] (extra of them) hold; then the next request. */
void fb_local_conn_answer(struct fb_local_conn *conn, int32_t result, unsigned extra);

/* ---- requests.c ---- */

/* Whole: head and path are there. Answers now or later. */
void fb_local_request_run(struct fb_local_conn *conn);
/* The connection has ended: so have its writers. */
void fb_local_end_writers(struct fb_local_conn *conn);
/* Sent, or never to be sent: gives back what the answer was made of. */
void fb_local_request_end(struct fb_local_conn *conn);

#endif
