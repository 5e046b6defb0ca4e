#include "doors/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "doors/local/local_priv.h"

#define BACKLOG        256
#define EVENTS_MAX     16
#define GROUPS_MAX     65536
#define PINNED_SHARE   4 /* of DRAM, that clients may keep from being reused */
#define PROC_PATH_SIZE 32

/* ---- who we are ---- */

static int learn_identity(struct fb_local *local)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    FB_AUTO_FREE gid_t *groups = fb_alloc_array(GROUPS_MAX, sizeof *groups);
    int count = groups ? getgroups(GROUPS_MAX, groups) : -1;

    static_assert(FB_TIER_DIRS_MAX <= FB_CLIENT_FILES_MAX, "all files can be handed out");
    static_assert(sizeof(gid_t) == sizeof(uint32_t), "group ids are hashed as such");
    if (count < 0)
        return -errno;
    local->groups_hash = fb_client_groups_hash(groups, count);
    if (syscall(SYS_capget, &head, caps) == 0)
        local->reads_anything =
            (caps[0].effective & (1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH)) != 0;
    return 0;
}

/* ---- roots ---- */

static int new_root(const char *path, struct fb_local_root **ret_root)
{
    size_t len = strlen(path);
    struct fb_local_root *root = fb_alloc(sizeof *root + len + 1);
    struct stat st;

    if (!root)
        return -ENOMEM;
    if (len >= FB_PATH_MAX || stat(path, &st) != 0) {
        free(root);
        return len >= FB_PATH_MAX ? -ENAMETOOLONG : -errno;
    }
    fb_list_init(&root->link);
    root->dev = st.st_dev;
    root->ino = st.st_ino;
    root->block_bytes = (uint32_t)st.st_blksize;
    root->path_len = len;
    memcpy(root->path, path, len + 1);
    *ret_root = root;
    return 0;
}

static struct fb_local_root *find_root(struct fb_local *local, const char *path)
    FB_REQUIRES(local->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &local->roots) {
        struct fb_local_root *root = FB_LIST_ENTRY(it, struct fb_local_root, link);

        if (strcmp(root->path, path) == 0)
            return root;
    }
    return NULL;
}

static struct fb_local_volume *find_volume(struct fb_local *local, uint16_t source)
    FB_REQUIRES(local->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &local->roots) {
        struct fb_local_root *root = FB_LIST_ENTRY(it, struct fb_local_root, link);

        if (fb_volume_id(root->volume->volume) == source)
            return root->volume;
    }
    return NULL;
}

/* Takes over root and fresh when it needs them: *root and *fresh are NULL then. */
static int insert_root(struct fb_local *local, struct fb_volume *volume,
                       struct fb_local_root **root, struct fb_local_volume **fresh)
    FB_REQUIRES(local->lock)
{
    const struct fb_local_root *same = find_root(local, (*root)->path);
    struct fb_local_volume *known = find_volume(local, fb_volume_id(volume));

    if (same)
        return same->volume->volume == volume ? 0 : -EEXIST;
    if (local->root_count == FB_CLIENT_ROOTS_MAX)
        return -ENOSPC;
    if (known && known->volume != volume)
        return -EEXIST;
    if (!known) {
        known = fb_steal(*fresh);
        known->volume = volume;
    }
    (*root)->volume = known;
    fb_list_push_back(&local->roots, &(*root)->link);
    local->root_count++;
    *root = NULL;
    return 0;
}

int fb_local_add(struct fb_local *local, struct fb_volume *volume, const char *path,
                 struct fb_error *err)
{
    FB_AUTO_FREE struct fb_local_volume *fresh = fb_alloc(sizeof *fresh);
    FB_AUTO_FREE struct fb_local_root *root = NULL;
    int rc = fresh ? new_root(path, &root) : -ENOMEM;

    if (rc || !root)
        return fb_error_set(err, rc, "%s: %s", path, fb_strerror(rc));
    fb_mutex_lock(&local->lock);
    rc = insert_root(local, volume, &root, &fresh);
    fb_mutex_unlock(&local->lock);
    if (rc == -EEXIST)
        return fb_error_set(err, rc, "%s stands for another source already", path);
    if (rc)
        return fb_error_set(err, rc, "the daemon serves %u directories and takes no more",
                            FB_CLIENT_ROOTS_MAX);
    return 0;
}

void fb_local_remove(struct fb_local *local, struct fb_volume *volume)
{
    struct fb_local_volume *v;
    struct fb_list *it, *tmp;

    fb_mutex_lock(&local->lock);
    v = find_volume(local, fb_volume_id(volume));
    FB_LIST_FOREACH (it, tmp, &local->roots) {
        struct fb_local_root *root = FB_LIST_ENTRY(it, struct fb_local_root, link);

        if (root->volume->volume != volume)
            continue;
        fb_list_remove(it);
        local->root_count--;
        free(root);
    }
    while (v && v->working > 0)
        fb_cond_wait(&local->idle, &local->lock, FB_NEVER_NS);
    fb_mutex_unlock(&local->lock);
    free(v);
}

struct fb_local_volume *fb_local_enter(struct fb_local *local, uint16_t source)
{
    struct fb_local_volume *volume;

    fb_mutex_lock(&local->lock);
    volume = find_volume(local, source);
    if (volume)
        volume->working++;
    fb_mutex_unlock(&local->lock);
    return volume;
}

void fb_local_leave(struct fb_local *local, struct fb_local_volume *volume)
{
    fb_mutex_lock(&local->lock);
    volume->working--;
    fb_cond_broadcast(&local->idle);
    fb_mutex_unlock(&local->lock);
}

static size_t welcome_bytes(struct fb_local *local) FB_REQUIRES(local->lock)
{
    size_t bytes = sizeof(struct fb_client_welcome);
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &local->roots)
        bytes +=
            sizeof(struct fb_client_root) + FB_LIST_ENTRY(it, struct fb_local_root, link)->path_len;
    return bytes;
}

static void write_roots(struct fb_local *local, uint8_t *at) FB_REQUIRES(local->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &local->roots) {
        const struct fb_local_root *root = FB_LIST_ENTRY(it, struct fb_local_root, link);
        struct fb_client_root r = {.dev = root->dev,
                                   .ino = root->ino,
                                   .source = fb_volume_id(root->volume->volume),
                                   .path_len = (uint16_t)root->path_len,
                                   .block_bytes = root->block_bytes};

        memcpy(at, &r, sizeof r);
        memcpy(at + sizeof r, root->path, root->path_len);
        at += sizeof r + root->path_len;
    }
}

void *fb_local_welcome(struct fb_local *local, const struct fb_local_client *client,
                       uint32_t *ret_bytes)
{
    const struct fb_layout_header *h = &fb_store_layout(local->store)->h;
    struct fb_client_welcome welcome = {
        .instance = h->instance,
        .tables_bytes = h->tables_bytes,
        .dram_bytes = h->dram_segments * h->dram_segment_bytes,
        .area_bytes = client->area ? fb_client_area_bytes() : 0,
        .groups_hash = local->groups_hash,
        .uid = geteuid(),
        .gid = getegid(),
        .reads_anything = local->reads_anything,
        .medium_segment_bytes = local->medium.segment_bytes,
        .medium_base = local->medium.base,
        .medium_slots = local->medium.slots,
        .medium_files = local->medium.count,
    };
    uint8_t *bytes;

    fb_mutex_lock(&local->lock);
    welcome.roots = local->root_count;
    *ret_bytes = (uint32_t)welcome_bytes(local);
    bytes = malloc(*ret_bytes);
    if (bytes) {
        memcpy(bytes, &welcome, sizeof welcome);
        write_roots(local, bytes + sizeof welcome);
    }
    fb_mutex_unlock(&local->lock);
    return bytes;
}

void fb_local_hits(struct fb_local *local, uint64_t *ret_reads, uint64_t *ret_bytes)
{
    *ret_reads = atomic_load_explicit(&local->hit_reads, memory_order_relaxed);
    *ret_bytes = atomic_load_explicit(&local->hit_bytes, memory_order_relaxed);
}

/* ---- threads ---- */

struct thread_start {
    struct fb_local *local;
    int epoll;
};

static void *serve(void *arg)
{
    struct thread_start start = *(struct thread_start *)arg;
    struct epoll_event events[EVENTS_MAX];

    free(arg);
    /* Acquire pairs with the release in stop(). */
    while (!atomic_load_explicit(&start.local->stop, memory_order_acquire)) {
        int n = epoll_wait(start.epoll, events, EVENTS_MAX, -1);

        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &start.local->listener)
                fb_local_accept(start.local);
            else if (events[i].data.ptr)
                fb_local_conn_serve(events[i].data.ptr, events[i].events);
        }
    }
    return NULL;
}

static int start_threads(struct fb_local *local)
{
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event come = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = &local->listener};
    unsigned count = local->config.threads ? local->config.threads : fb_cpu_count();

    count = (unsigned)fb_min_u64(fb_max_u64(count, 1), FB_LOCAL_THREADS_MAX);
    for (unsigned i = 0; i < count; i++) {
        local->epolls[i] = epoll_create1(EPOLL_CLOEXEC);
        if (local->epolls[i] < 0 ||
            epoll_ctl(local->epolls[i], EPOLL_CTL_ADD, local->stop_fd, &stop) != 0)
            return -errno;
    }
    local->thread_count = count;
    if (epoll_ctl(local->epolls[0], EPOLL_CTL_ADD, local->listener, &come) != 0)
        return -errno;
    for (unsigned i = 0; i < count; i++) {
        struct thread_start *start = fb_alloc(sizeof *start);
        int rc = -ENOMEM;

        if (start) {
            *start = (struct thread_start){local, local->epolls[i]};
            rc = fb_thread_start(&local->threads[i], "fb-local", serve, start);
        }
        if (rc) {
            free(start);
            local->thread_count = i;
            return rc;
        }
    }
    return 0;
}

/* ---- life ---- */

static int listen_at(struct fb_local *local, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    local->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (local->listener < 0)
        return -errno;
    if (unlink(path) != 0 && errno != ENOENT)
        return -errno;
    if (bind(local->listener, (struct sockaddr *)&address, sizeof address) != 0)
        return -errno;
    local->socket_path = fb_strdup(path);
    if (!local->socket_path)
        return -ENOMEM;
    if (chmod(path, 0600) != 0 || listen(local->listener, BACKLOG) != 0)
        return -errno;
    return 0;
}

/* What is handed out cannot be written through, sealed or not. */
static int open_read_only(int own)
{
    char path[PROC_PATH_SIZE];
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%d", own);
    fd = open(path, O_RDONLY | O_CLOEXEC | (fcntl(own, F_GETFL) & O_DIRECT));
    return fd >= 0 ? fd : -errno;
}

/* Clients can do without. */
static void open_medium(struct fb_local *local)
{
    struct fb_store_medium *m = &local->medium;

    fb_store_medium(local->store, m);
    for (unsigned i = 0; i < m->count; i++) {
        m->fds[i] = open_read_only(m->fds[i]);
        if (m->fds[i] >= 0)
            continue;
        while (i-- > 0)
            close(m->fds[i]);
        m->count = 0;
    }
}

static int open_memory(struct fb_local *local)
{
    int dram = fb_store_dram_memfd(local->store);

    local->tables_fd = open_read_only(fb_store_tables_memfd(local->store));
    if (local->tables_fd < 0)
        return local->tables_fd;
    if (dram < 0)
        return 0;
    local->dram_fd = open_read_only(dram);
    return local->dram_fd < 0 ? local->dram_fd : 0;
}

int fb_local_start(struct fb_cache *cache, const struct fb_local_config *config,
                   struct fb_local **ret_local, struct fb_error *err)
{
    struct fb_local *local = fb_alloc(sizeof *local);
    int rc;

    if (!local)
        return fb_error_set(err, -ENOMEM, "out of memory");
    local->cache = cache;
    local->store = fb_cache_store(cache);
    local->config = *config;
    local->listener = local->tables_fd = local->dram_fd = -1;
    for (unsigned i = 0; i < FB_LOCAL_THREADS_MAX; i++)
        local->epolls[i] = -1;
    fb_mutex_init(&local->lock, FB_RANK_DOOR);
    fb_mutex_init(&local->clients_lock, FB_RANK_CLIENTS);
    fb_cond_init(&local->idle);
    fb_list_init(&local->conns);
    fb_list_init(&local->roots);
    fb_list_init(&local->clients);
    local->credits = (uint32_t)(fb_store_layout(local->store)->h.dram_segments / PINNED_SHARE);
    local->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = local->stop_fd < 0 ? -errno : learn_identity(local);
    if (rc == 0)
        rc = open_memory(local);
    if (rc == 0)
        open_medium(local);
    if (rc == 0)
        rc = listen_at(local, config->socket_path);
    if (rc == 0)
        rc = start_threads(local);
    if (rc < 0) {
        fb_local_stop(local);
        return fb_error_set(err, rc, "cannot listen at %s: %s", config->socket_path,
                            fb_strerror(rc));
    }
    /* The background thread does it ten times a second; programs do not wait for the first. */
    fb_store_beat(local->store);
    fb_store_set_guard(local->store, fb_local_held, local);
    fb_cache_set_hook(cache, fb_local_tick, local);
    *ret_local = local;
    return 0;
}

/* No request uses a volume any more; what is still being sent is cut off. */
static void close_connections(struct fb_local *local)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&local->lock);
    local->closing = true;
    while (local->conn_count > 0) {
        FB_LIST_FOREACH (it, tmp, &local->conns)
            shutdown(FB_LIST_ENTRY(it, struct fb_local_conn, link)->fd, SHUT_RDWR);
        fb_cond_wait(&local->idle, &local->lock, fb_now_ns() + 100 * FB_NS_PER_MS);
    }
    fb_mutex_unlock(&local->lock);
}

static void stop_threads(struct fb_local *local)
{
    uint64_t one = 1;

    if (local->thread_count > 0)
        close_connections(local);
    /* Release pairs with the acquire in serve(). */
    atomic_store_explicit(&local->stop, true, memory_order_release);
    (void)!write(local->stop_fd, &one, sizeof one);
    for (unsigned i = 0; i < local->thread_count; i++)
        pthread_join(local->threads[i], NULL);
}

void fb_local_stop(struct fb_local *local)
{
    if (!local)
        return;
    FB_ASSERT(fb_list_empty(&local->roots));
    if (local->socket_path)
        unlink(local->socket_path);
    /* Nobody new. */
    if (local->listener >= 0)
        shutdown(local->listener, SHUT_RDWR);
    stop_threads(local);
    fb_cache_look(local->cache); /* the last hits count, too */
    fb_cache_set_hook(local->cache, NULL, NULL);
    fb_store_set_guard(local->store, NULL, NULL);
    for (unsigned i = 0; i < FB_LOCAL_THREADS_MAX; i++)
        fb_closep(&local->epolls[i]);
    fb_closep(&local->listener);
    fb_closep(&local->stop_fd);
    fb_closep(&local->tables_fd);
    fb_closep(&local->dram_fd);
    for (unsigned i = 0; i < local->medium.count; i++)
        close(local->medium.fds[i]);
    fb_cond_destroy(&local->idle);
    fb_mutex_destroy(&local->clients_lock);
    fb_mutex_destroy(&local->lock);
    free(local->socket_path);
    free(local);
}
