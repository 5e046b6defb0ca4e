/*
 * doors/local/local.h - the door for programs of this machine: the client socket.
 *
 * Programs under the preload library, and those that use libforebay, map the index and the DRAM
 * tier read-only and serve their hits themselves; what they cannot, they ask for here
 * (proto/client.h). Only processes of the daemon's own user are heard (SO_PEERCRED).
 *
 *     connection:   HELLO ──► request ──► working ──► reply ──► request ...
 *
 * A few threads wait for requests; none ever waits for a source, a disk or a client: the cache
 * answers on its own threads, and what a socket does not take at once is sent when it can.
 *
 * Each process has an area (counters, hazard slots, a ring of access records) until its last
 * connection closes: with its death everything it pinned is free again. A DRAM segment that a
 * hazard slot names is not reused.
 */
#ifndef FB_DOORS_LOCAL_LOCAL_H
#define FB_DOORS_LOCAL_LOCAL_H

#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "core/error.h"

#define FB_LOCAL_CONNECTIONS_MAX 4096u

struct fb_local;

struct fb_local_config {
    const char *socket_path; /* replaced when it is there: the caller holds the lock that says that
                                nobody listens */
    unsigned threads;        /* 0: chosen */
    void (*changed)(
        void *arg); /* any thread: a client has come or gone, or the last connection; may be
                                   NULL */
    void *arg;
};

FB_MUST_CHECK int fb_local_start(struct fb_cache *cache, const struct fb_local_config *config,
                                 struct fb_local **ret_local, struct fb_error *err);

/* Serves `volume` to clients that open files below `path`, an absolute path without a final slash
 * that leads to the source's root directory. Several paths may stand for one volume; a path that is
 * there already for this volume is fine. -EEXIST: it stands for another volume; -ENOSPC: too many
 * paths. */
FB_MUST_CHECK int fb_local_add(struct fb_local *local, struct fb_volume *volume, const char *path,
                               struct fb_error *err);

/* Forgets the volume and all its paths. Clients get no more answers about it; waits for requests
 * under way, which end with the volume's timeout at the latest. */
void fb_local_remove(struct fb_local *local, struct fb_volume *volume);

/* Processes that have said hello and are connected now; and connections, also of those that have
 * not. */
unsigned fb_local_clients(struct fb_local *local);
unsigned fb_local_connections(struct fb_local *local);

/* Reads served by clients from shared memory since the start; both only rise. They are counted as
 * reads and DRAM hits of the cache as well. */
void fb_local_hits(struct fb_local *local, uint64_t *ret_reads, uint64_t *ret_bytes);

/* All volumes are removed. Closes every connection; tells those who map the memory that its owner
 * has gone. Takes NULL. */
void fb_local_stop(struct fb_local *local);

#endif
