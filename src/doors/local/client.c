/*
 * Processes. A client's area lies in a memfd of its own, so that no client can touch another's; the
 * daemon reads it as one reads what a stranger wrote.
 *
 * Hazards: a client stores a segment's number into one of its slots, then looks at the segment's
 * generation; the store turns the generation odd, then asks here. Each has a full fence between the
 * two, so one of them sees the other. Slots beyond the client's credits are believed all the same:
 * the client that lies harms its own user's cache only, and its death ends it: that of the process
 * that said HELLO. Its connection may live on in a child that never notices (fork() copies
 * descriptors); the pins do not.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/local/local_priv.h"

#define REST        5 /* times as long as taking records took, from its beginning */
#define REST_MAX_NS (200 * FB_NS_PER_MS)

/* ---- areas ---- */

static int make_area(struct fb_local_client *client)
{
    uint64_t bytes = fb_client_area_bytes();
    FB_AUTO_CLOSE int fd = memfd_create("forebay-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *area;

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return -1;
    area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area == MAP_FAILED)
        return -1;
    client->area = area;
    fb_access_ring_init(&client->area->ring, FB_CLIENT_RING_SLOTS);
    fb_access_reader_init(&client->reader, &client->area->ring, FB_CLIENT_RING_SLOTS);
    return fb_steal_fd(&fd);
}

static void client_unref(struct fb_local_client *client)
{
    /* Acquire and release: the last one sees all that others did with it. */
    if (atomic_fetch_sub_explicit(&client->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (client->area)
        munmap(client->area, fb_client_area_bytes());
    fb_closep(&client->pidfd);
    free(client);
}

/* ---- the list ---- */

static struct fb_local_client *find(struct fb_local *local, uint32_t pid)
    FB_REQUIRES(local->clients_lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &local->clients) {
        struct fb_local_client *c = FB_LIST_ENTRY(it, struct fb_local_client, link);

        if (c->pid == pid && c->connections > 0)
            return c;
    }
    return NULL;
}

struct fb_local_client *fb_local_client_get(const struct fb_local_conn *conn, bool want_area,
                                            int *ret_fd)
{
    struct fb_local *local = conn->local;
    struct fb_local_client *fresh = fb_alloc(sizeof *fresh), *client;
    bool room;

    *ret_fd = -1;
    if (!fresh)
        return NULL;
    fb_mutex_lock(&local->clients_lock);
    room = want_area && local->area_count < fb_cache_clients_max(local->cache);
    fb_mutex_unlock(&local->clients_lock);
    *fresh = (struct fb_local_client){.pid = conn->pid, .uid = conn->uid, .pidfd = -1};
    atomic_init(&fresh->refs, 2); /* the list's and the connection's */
    if (room)
        *ret_fd = make_area(fresh);
    if (fresh->area)
        fresh->pidfd = fb_local_peer_pidfd(conn);

    fb_mutex_lock(&local->clients_lock);
    /* One who asks for an area gets a new one, also when a connection from before an exec still
     * stands for the old image of the process. */
    client = want_area ? NULL : find(local, conn->pid);
    if (client) {
        atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
    } else {
        client = fb_steal(fresh);
        fb_list_push_front(&local->clients, &client->link);
        local->client_count++;
        local->area_count += client->area != NULL;
    }
    client->connections++;
    fb_mutex_unlock(&local->clients_lock);
    free(fresh);
    if (local->config.changed)
        local->config.changed(local->config.arg);
    return client;
}

/* The list's own reference goes when the hook has seen the last of its records. */
void fb_local_client_put(struct fb_local *local, struct fb_local_client *client)
{
    bool last;

    if (!client)
        return;
    fb_mutex_lock(&local->clients_lock);
    last = --client->connections == 0;
    if (last) {
        local->client_count--;
        local->credits += client->credits;
        client->credits = 0;
    }
    fb_mutex_unlock(&local->clients_lock);
    client_unref(client);
    if (last && local->config.changed)
        local->config.changed(local->config.arg);
}

unsigned fb_local_clients(struct fb_local *local)
{
    unsigned count;

    fb_mutex_lock(&local->clients_lock);
    count = local->client_count;
    fb_mutex_unlock(&local->clients_lock);
    return count;
}

unsigned fb_local_connections(struct fb_local *local)
{
    unsigned count;

    fb_mutex_lock(&local->lock);
    count = local->conn_count;
    fb_mutex_unlock(&local->lock);
    return count;
}

uint32_t fb_local_client_credit(struct fb_local *local, struct fb_local_client *client,
                                uint32_t asked)
{
    uint32_t granted;

    if (!client->area)
        return 0;
    fb_mutex_lock(&local->clients_lock);
    granted = client->gone ? 0 : (uint32_t)fb_min_u64(asked, local->credits);
    granted = (uint32_t)fb_min_u64(granted, FB_CLIENT_HAZARDS - client->credits);
    local->credits -= granted;
    client->credits += granted;
    fb_mutex_unlock(&local->clients_lock);
    return granted;
}

/* ---- what the areas say ---- */

bool fb_local_held(void *arg, uint32_t segment)
{
    struct fb_local *local = arg;
    struct fb_list *it, *tmp;
    bool held = false;

    atomic_thread_fence(memory_order_seq_cst);
    fb_mutex_lock(&local->clients_lock);
    FB_LIST_FOREACH (it, tmp, &local->clients) {
        struct fb_local_client *c = FB_LIST_ENTRY(it, struct fb_local_client, link);

        if (c->credits == 0)
            continue;
        for (unsigned i = 0; i < FB_CLIENT_HAZARDS && !held; i++)
            held = atomic_load_explicit(&c->area->hazards[i], memory_order_relaxed) == segment + 1;
    }
    fb_mutex_unlock(&local->clients_lock);
    /* Whoever let go has read what it read. */
    atomic_thread_fence(memory_order_acquire);
    return held;
}

/* Counters only rise; one that does not is not counted. */
static uint64_t risen(_Atomic uint64_t *counter, uint64_t *was)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    uint64_t by = now - *was;

    *was = now;
    return by < 1ULL << 48 ? by : 0;
}

static void count_hits(struct fb_local *local, struct fb_local_client *client)
{
    uint64_t reads = risen(&client->area->reads, &client->reads);
    uint64_t bytes = risen(&client->area->read_bytes, &client->read_bytes);
    uint64_t medium_reads = risen(&client->area->medium_reads, &client->medium_reads);
    uint64_t medium_bytes = risen(&client->area->medium_bytes, &client->medium_bytes);

    atomic_fetch_add_explicit(&local->hit_reads, reads + medium_reads, memory_order_relaxed);
    atomic_fetch_add_explicit(&local->hit_bytes, bytes + medium_bytes, memory_order_relaxed);
    fb_cache_count_client_hits(local->cache, FB_TIER_DRAM, reads, bytes);
    fb_cache_count_client_hits(local->cache, FB_TIER_NVME, medium_reads, medium_bytes);
}

static void take_records(struct fb_local *local, struct fb_local_client *client, int64_t now_ns)
{
    struct fb_access access;

    for (unsigned i = 0; i < FB_LOCAL_DRAIN_MAX && fb_access_pop(&client->reader, &access); i++) {
        if (access.outcome != FB_ACCESS_MEDIUM)
            access.outcome = FB_ACCESS_MEMORY;
        access.uid = client->uid;
        access.door = FB_DOOR_LOCAL;
        if (access.time_ns > now_ns)
            access.time_ns = now_ns;
        fb_cache_watch(local->cache, &access);
    }
    fb_access_pass_dead(&client->reader);
}

static unsigned take_clients(struct fb_local *local, struct fb_local_client **ret, unsigned max)
{
    struct fb_list *it, *tmp;
    unsigned count = 0;

    fb_mutex_lock(&local->clients_lock);
    FB_LIST_FOREACH (it, tmp, &local->clients) {
        struct fb_local_client *c = FB_LIST_ENTRY(it, struct fb_local_client, link);

        if (!c->area || count == max)
            continue;
        atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
        ret[count++] = c;
    }
    fb_mutex_unlock(&local->clients_lock);
    return count;
}

/* Nobody reads any more through what a dead process has pinned. */
static void end_dead(struct fb_local *local, struct fb_local_client *client)
{
    if (client->pidfd < 0 || !fb_local_peer_gone(client->pidfd))
        return;
    fb_mutex_lock(&local->clients_lock);
    client->gone = true;
    local->credits += client->credits;
    client->credits = 0;
    fb_mutex_unlock(&local->clients_lock);
}

/* Those whose last connection had closed before their records were looked at. */
static void bury(struct fb_local *local, struct fb_list *ret_dead)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&local->clients_lock);
    FB_LIST_FOREACH (it, tmp, &local->clients) {
        struct fb_local_client *c = FB_LIST_ENTRY(it, struct fb_local_client, link);

        if (c->connections > 0)
            continue;
        fb_list_remove(it);
        fb_list_push_back(ret_dead, it);
        local->area_count -= c->area != NULL;
    }
    fb_mutex_unlock(&local->clients_lock);
}

/* Cuts off who does not take its answer: it holds buffers and pins. */
static void expire(struct fb_local *local, int64_t now_ns)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&local->lock);
    FB_LIST_FOREACH (it, tmp, &local->conns) {
        const struct fb_local_conn *c = FB_LIST_ENTRY(it, struct fb_local_conn, link);
        int64_t until_ns = atomic_load_explicit(&c->write_until_ns, memory_order_relaxed);

        if (until_ns != 0 && now_ns > until_ns)
            shutdown(c->fd, SHUT_RDWR);
    }
    fb_mutex_unlock(&local->lock);
}

/* Who hits in memory makes records faster than they can be taken, and each one that is taken writes
 * to lines that the program reads. What comes faster than this the ring drops, and counts. */
static int64_t rest_after(int64_t took_ns)
{
    return took_ns < REST_MAX_NS / REST ? REST * took_ns : REST_MAX_NS;
}

bool fb_local_tick(void *arg)
{
    struct fb_local *local = arg;
    struct fb_local_client *clients[FB_CLIENT_HAZARDS];
    int64_t now_ns = fb_now_ns();
    bool rests = now_ns < local->rest_until_ns;
    struct fb_list dead, *it, *tmp;
    unsigned count;

    fb_list_init(&dead);
    bury(local, &dead);
    FB_LIST_FOREACH (it, tmp, &dead) {
        struct fb_local_client *c = FB_LIST_ENTRY(it, struct fb_local_client, link);

        fb_list_remove(it);
        if (c->area) {
            take_records(local, c, now_ns);
            count_hits(local, c);
        }
        client_unref(c);
    }
    count = take_clients(local, clients, FB_ARRAY_SIZE(clients));
    for (unsigned i = 0; i < count; i++) {
        if (!rests)
            take_records(local, clients[i], now_ns);
        count_hits(local, clients[i]);
        end_dead(local, clients[i]);
        client_unref(clients[i]);
    }
    expire(local, now_ns);
    if (atomic_exchange_explicit(&local->accept_later, false, memory_order_relaxed))
        fb_local_listen(local);
    if (!rests)
        local->rest_until_ns = now_ns + rest_after(fb_now_ns() - now_ns);
    return !rests;
}
