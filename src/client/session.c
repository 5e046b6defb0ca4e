/*
 * Sessions: reaching a daemon, mapping its memory, noticing its end.
 *
 * Whether this process may use what the daemon offers is decided once, by the daemon and here: it
 * must be the same user with the same groups, may not be able to read less than the daemon, and
 * must see the same directory at a root's path. Then whatever the daemon could open for reading,
 * this process could have opened itself.
 */
#include <grp.h>
#include <linux/capability.h>
#include <string.h>
#include <time.h>

#include "client/client_priv.h"

#define RETRY_NS        1000000000LL /* between attempts to reach a daemon that is not there */
#define RETRY_FACTOR    10           /* and so many times as long as the last one took */
#define OPENING_NS      200000000LL
#define OPENING_STEP_NS 50000
#define GROUPS_MAX      1024
#define HUNG_NS         4000000000LL /* without a beat */
#define HUNG_STEP_NS    20000000
#define HUNG_STEPS      25

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int64_t fb_client_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t fb_client_coarse_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

bool fb_client_alive(const struct fb_session *session, int64_t now_ns)
{
    const struct fb_layout_live *live = fb_layout_live(&session->layout);

    /* Relaxed: both are only compared. */
    return atomic_load_explicit(&live->closed, memory_order_relaxed) == 0 &&
           now_ns - atomic_load_explicit(&live->beat_ns, memory_order_relaxed) <
               FB_CLIENT_BEAT_LATE_NS;
}

bool fb_client_init(struct fb_client *client, const char *socket)
{
    size_t len = strlen(socket);

    if (len == 0 || len >= sizeof client->socket)
        return false;
    memcpy(client->socket, socket, len + 1);
    for (int i = 0; i < FB_CLIENT_CONNECTIONS; i++)
        atomic_init(&client->connections[i].fd, -1);
    atomic_init(&client->pid, fb_sys_getpid());
    return true;
}

void fb_client_turn_off(struct fb_client *client)
{
    atomic_store(&client->off, true);
}

/* ---- who we are ---- */

static bool same_identity(const struct fb_client_welcome *w)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    uint32_t groups[GROUPS_MAX];
    uint32_t wide = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    long count = fb_sys(SYS_getgroups, GROUPS_MAX, groups, 0, 0);

    if (count < 0 || fb_client_groups_hash(groups, (int)count) != w->groups_hash)
        return false;
    if ((uint32_t)fb_sys(SYS_geteuid, 0, 0, 0, 0) != w->uid ||
        (uint32_t)fb_sys(SYS_getegid, 0, 0, 0, 0) != w->gid)
        return false;
    if (!w->reads_anything)
        return true;
    return fb_sys(SYS_capget, &head, caps, 0, 0) == 0 && (caps[0].effective & wide) != 0;
}

/* ---- the welcome ---- */

static bool take_places(struct fb_session *s, uint32_t count, char *at, const char *end)
{
    s->place_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct fb_client_place *p = &s->places[s->place_count];
        struct fb_client_root root;
        struct stat st;

        if ((size_t)(end - at) < sizeof root)
            return false;
        memcpy(&root, at, sizeof root);
        if (root.path_len == 0 || (size_t)(end - at) - sizeof root < root.path_len)
            return false;
        /* The path moves to the front, over the root, to make room for a final zero. */
        memmove(at, at + sizeof root, root.path_len);
        at[root.path_len] = '\0';
        *p = (struct fb_client_place){.path = at,
                                      .path_len = root.path_len,
                                      .block_bytes = root.block_bytes,
                                      .dev = root.dev,
                                      .source = root.source};
        if (strcmp(at, "/") == 0) {
            p->path = "";
            p->path_len = 0;
        }
        p->usable = fb_sys_fstatat(AT_FDCWD, at, &st, 0) == 0 && st.st_dev == root.dev &&
                    st.st_ino == root.ino;
        s->place_count++;
        at += sizeof root + root.path_len;
    }
    return true;
}

/* Every offset of the header is believed only if what it leads to lies in the tables. */
static bool check_header(const struct fb_layout_header *h, const struct fb_client_welcome *w)
{
    uint64_t size = w->tables_bytes;

    return h->magic == FB_LAYOUT_MAGIC && h->version == FB_LAYOUT_VERSION &&
           h->instance == w->instance && h->tables_bytes == size && h->block_bytes > 0 &&
           h->groups > 0 && h->groups < UINT32_MAX && h->heads > 0 && h->heads < UINT32_MAX &&
           h->segments < FB_SEGMENT_MAX && h->groups_offset < size && h->segments_offset < size &&
           h->heads_offset < size && h->files_offset < size &&
           h->groups * sizeof(struct fb_layout_group) <= size - h->groups_offset &&
           h->segments * sizeof(struct fb_layout_segment) <= size - h->segments_offset &&
           h->heads * sizeof(struct fb_layout_head) <= size - h->heads_offset &&
           h->files_bytes <= size - h->files_offset && h->dram_segments <= h->segments &&
           (h->dram_segments == 0 || h->dram_segment_bytes <= FB_SEGMENT_SIZE_MAX) &&
           h->dram_segments * h->dram_segment_bytes == w->dram_bytes;
}

static void *map(int fd, uint64_t bytes, int protection)
{
    void *p = fb_sys_mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* At an address where huge pages fit; what was reserved around it is given back. */
static void *map_aligned(int fd, uint64_t bytes)
{
    uint64_t rest = fb_align_up(bytes, 4096);
    uint8_t *room = fb_sys_mmap(NULL, rest + FB_STRETCH_SIZE, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *at;

    if (room == MAP_FAILED)
        return NULL;
    at = (uint8_t *)fb_align_up((uintptr_t)room, FB_STRETCH_SIZE);
    if (fb_sys_mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        fb_sys_munmap(room, rest + FB_STRETCH_SIZE);
        return NULL;
    }
    if (at > room)
        fb_sys_munmap(room, (size_t)(at - room));
    fb_sys_munmap(at + rest, (size_t)(room + FB_STRETCH_SIZE - at));
    return at;
}

static uint64_t dram_bytes(const struct fb_session *s)
{
    return s->layout.h.dram_segments * s->layout.h.dram_segment_bytes;
}

static void unmap_all(struct fb_session *s, uint64_t tables, uint64_t dram)
{
    struct fb_client_area *area = atomic_load(&s->area);

    if (s->layout.base)
        fb_sys_munmap(s->layout.base, tables);
    if (s->layout.dram)
        fb_sys_munmap((void *)(uintptr_t)s->layout.dram, dram);
    if (s->touched)
        fb_sys_munmap((void *)(uintptr_t)s->touched, dram / FB_STRETCH_SIZE + 1);
    if (s->roots)
        fb_sys_munmap(s->roots, s->roots_bytes);
    if (area)
        fb_sys_munmap(area, fb_client_area_bytes());
    memset(s, 0, sizeof *s);
    atomic_init(&s->anchor.fd, -1);
}

static bool map_all(struct fb_session *s, const struct fb_client_welcome *w, const int *fds,
                    unsigned count)
{
    bool dram = w->dram_bytes > 0;
    bool area = w->area_bytes == fb_client_area_bytes();

    if (count != 1u + dram + (w->area_bytes > 0) + w->medium_files ||
        w->medium_files > FB_CLIENT_FILES_MAX ||
        w->tables_bytes < FB_LAYOUT_LIVE_OFFSET + sizeof(struct fb_layout_live))
        return false;
    s->layout.base = map(fds[0], w->tables_bytes, PROT_READ);
    if (!s->layout.base)
        return false;
    memcpy(&s->layout.h, s->layout.base, sizeof s->layout.h);
    if (!check_header(&s->layout.h, w))
        return false;
    if (dram) {
        s->layout.dram = map_aligned(fds[1], w->dram_bytes);
        s->touched = fb_sys_memory(w->dram_bytes / FB_STRETCH_SIZE + 1);
        if (!s->layout.dram || !s->touched)
            return false;
    }
    if (area)
        atomic_store(&s->area, map(fds[1 + dram], w->area_bytes, PROT_READ | PROT_WRITE));
    return true;
}

/* Kept open, out of the way of the program's own. */
static void take_medium(struct fb_client *client, struct fb_session *s,
                        const struct fb_client_welcome *w, const int *fds)
{
    struct fb_client_medium *m = &s->medium;

    m->base = w->medium_base;
    m->slots = w->medium_slots;
    m->segment_bytes = w->medium_segment_bytes;
    for (uint32_t i = 0; i < w->medium_files; i++) {
        int fd = fb_sys_fcntl(fds[i], F_DUPFD_CLOEXEC, FB_CLIENT_HIGH_FD);

        if (fd < 0)
            fd = fb_sys_fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        m->marks[i] = fd >= 0 ? fb_client_mark_of(fd) : 0;
        atomic_store(&m->fds[i], fd);
        if (fd >= 0)
            fb_client_note_fd(client, fd);
    }
    m->count =
        m->segment_bytes > 0 && m->segment_bytes <= FB_SEGMENT_SIZE_MAX ? w->medium_files : 0;
}

/* ---- opening ---- */

int fb_client_hello(const struct fb_session *session, int fd, bool memory,
                    struct fb_client_welcome *ret_welcome, size_t *ret_rest, int *fds,
                    unsigned *fd_count)
{
    struct fb_client_request request = {.op = FB_CLIENT_HELLO,
                                        .length = FB_CLIENT_VERSION,
                                        .flags = memory ? FB_CLIENT_WANT_MEMORY : 0};
    struct fb_client_reply reply;

    if (fb_client_send(fd, &request, "") != 0 ||
        fb_client_receive(session, fd, &reply, sizeof reply, fds, fd_count) != 0) {
        *fd_count = 0;
        return -EPIPE;
    }
    if (reply.magic == FB_CLIENT_MAGIC && reply.result < 0)
        return reply.result;
    if (reply.magic != FB_CLIENT_MAGIC || reply.result != 0 || reply.bytes < sizeof *ret_welcome ||
        reply.bytes > FB_CLIENT_WELCOME_MAX)
        return -EPROTO;
    *ret_rest = reply.bytes - sizeof *ret_welcome;
    return fb_client_receive(session, fd, ret_welcome, sizeof *ret_welcome, NULL, NULL);
}

static bool settle_in(struct fb_client *client, int fd, struct fb_session *s,
                      const struct fb_client_welcome *w, size_t rest, const int *fds,
                      unsigned fd_count)
{
    if (!same_identity(w)) {
        fb_client_turn_off(client);
        return false;
    }
    s->roots_bytes = rest + 1;
    s->roots = fb_sys_memory(s->roots_bytes);
    return s->roots && fb_client_receive(NULL, fd, s->roots, rest, NULL, NULL) == 0 &&
           take_places(s, (uint32_t)fb_min_u64(w->roots, FB_CLIENT_ROOTS_MAX), s->roots,
                       s->roots + rest) &&
           map_all(s, w, fds, fd_count);
}

static int begin(struct fb_client *client, int fd, struct fb_session *s)
{
    struct fb_client_welcome welcome;
    int fds[FB_CLIENT_FDS_MAX];
    unsigned fd_count = FB_ARRAY_SIZE(fds);
    size_t rest;
    int rc = fb_client_hello(NULL, fd, true, &welcome, &rest, fds, &fd_count);
    bool good = rc == 0;
    bool in = good && settle_in(client, fd, s, &welcome, rest, fds, fd_count);

    if (rc == -EACCES) /* we are not who we would have to be */
        fb_client_turn_off(client);
    if (in)
        take_medium(client, s, &welcome, fds + fd_count - welcome.medium_files);
    for (unsigned i = 0; i < fd_count; i++)
        fb_sys_close(fds[i]);
    if (good && !in)
        unmap_all(s, welcome.tables_bytes, welcome.dram_bytes);
    return in ? 0 : FB_CLIENT_PASS;
}

static struct fb_session *open_session(struct fb_client *client)
{
    uint32_t no = atomic_load(&client->session_count);
    struct fb_session *s = &client->sessions[no];
    int fd;

    /* A fork before anything was open, or past the library. It is still we who open. */
    if (fb_sys_getpid() != atomic_load_explicit(&client->pid, memory_order_relaxed)) {
        fb_client_forked(client);
        atomic_store(&client->opening, true);
    }
    if (no == FB_CLIENT_SESSIONS) {
        fb_client_turn_off(client);
        return NULL;
    }
    fd = fb_client_connect(client);
    if (fd < 0)
        return NULL;
    if (begin(client, fd, s) != 0) {
        fb_sys_close(fd);
        return NULL;
    }
    fb_client_set_anchor(client, s, fd);
    atomic_store(&client->session_count, no + 1);
    atomic_store(&client->area_lost, atomic_load(&s->area) == NULL);
    /* Release: who finds the session finds it complete. */
    atomic_store_explicit(&client->session, s, memory_order_release);
    return s;
}

/* The session shows no life. Its daemon may hang, and go on some day; or it has gone, and whoever
 * answers is another. */
static bool is_another(struct fb_client *client, const struct fb_session *s)
{
    struct fb_client_welcome welcome;
    unsigned fd_count = 0;
    size_t rest;
    int fd, rc;

    if (atomic_load(&fb_layout_live(&s->layout)->closed) != 0)
        return true;
    fd = fb_client_connect(client);
    if (fd < 0)
        return true;
    rc = fb_client_hello(s, fd, false, &welcome, &rest, NULL, &fd_count);
    fb_sys_close(fd);
    return rc == 0 && welcome.instance != s->layout.h.instance;
}

/* At the start of a program all its threads come at once: those who are not the first would read
 * much of a data set past the cache. Not for long: we may be a signal handler of the first. */
static struct fb_session *await_session(struct fb_client *client, int64_t until_ns)
{
    struct timespec pause = {.tv_nsec = OPENING_STEP_NS};
    struct fb_session *s = NULL;

    while (!s && atomic_load(&client->opening) && fb_client_now_ns() < until_ns) {
        (void)fb_sys(SYS_nanosleep, &pause, NULL, 0, 0);
        s = atomic_load_explicit(&client->session, memory_order_acquire);
    }
    return s;
}

struct fb_session *fb_client_session(struct fb_client *client)
{
    struct fb_session *s = atomic_load_explicit(&client->session, memory_order_acquire);
    int64_t now_ns, end_ns;

    if (fb_unlikely(atomic_load_explicit(&client->off, memory_order_relaxed)))
        return NULL;
    if (fb_likely(s && fb_client_alive(s, fb_client_coarse_ns())))
        return s;
    now_ns = fb_client_now_ns();
    /* None, or one that shows no life: look again once a second, one thread at a time. */
    if (now_ns < atomic_load_explicit(&client->retry_ns, memory_order_acquire)) {
        /* Perhaps somebody has just opened one: the time was set after that. */
        s = atomic_load_explicit(&client->session, memory_order_acquire);
        return s && fb_client_alive(s, now_ns) ? s : NULL;
    }
    if (atomic_exchange(&client->opening, true))
        return s ? NULL : await_session(client, now_ns + OPENING_NS);
    if (s && is_another(client, s))
        fb_client_drop_session(client, s);
    s = atomic_load_explicit(&client->session, memory_order_acquire) ? NULL : open_session(client);
    end_ns = fb_client_now_ns();
    atomic_store_explicit(
        &client->retry_ns,
        end_ns + (int64_t)fb_max_u64(RETRY_NS, RETRY_FACTOR * (uint64_t)(end_ns - now_ns)),
        memory_order_release);
    atomic_store(&client->opening, false);
    return s;
}

/* ---- ending ---- */

/* Tables first: whoever copies zeros from DRAM then finds no generation that fits. Twice is as good
 * as once. */
void fb_client_clear_session(struct fb_session *session)
{
    const struct fb_layout_header *h = &session->layout.h;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;

    (void)!fb_sys_mmap(session->layout.base, h->tables_bytes, PROT_READ, flags, -1, 0);
    if (session->layout.dram)
        (void)!fb_sys_mmap((void *)(uintptr_t)session->layout.dram, dram_bytes(session), PROT_READ,
                           flags, -1, 0);
    fb_client_cut_anchor(session);
    fb_client_close_medium(session);
}

void fb_client_drop_session(struct fb_client *client, struct fb_session *session)
{
    struct fb_session *s = session;

    if (!atomic_compare_exchange_strong(&client->session, &s, NULL))
        return;
    /* Sequentially consistent, as acquiring and releasing are: of whoever pins just now and us, one
     * sees the other. While there are pointers everything stays, also the anchor: a daemon that was
     * only hung still keeps its hands off the bytes. */
    if (atomic_load(&session->pointers) == 0)
        fb_client_clear_session(session);
}

void fb_client_forked(struct fb_client *client)
{
    uint32_t count = atomic_load(&client->session_count);

    atomic_store(&client->pid, fb_sys_getpid());
    atomic_store(&client->opening, false);
    atomic_store(&client->anchoring, false);
    atomic_store(&client->anchor_retry_ns, 0);
    atomic_store(&client->retry_ns, 0);
    /* What the parent has pinned is the parent's to release. */
    memset(&client->pins, 0, sizeof client->pins);
    atomic_store(&client->area_lost, true);
    fb_client_recount_untold(client);
    fb_client_disconnect(client);
    for (uint32_t i = 0; i < count; i++) {
        struct fb_session *s = &client->sessions[i];

        s->credits = 0;
        /* The child has the mappings, but none of the pages. */
        if (s->touched)
            memset((void *)(uintptr_t)s->touched, 0, dram_bytes(s) / FB_STRETCH_SIZE + 1);
    }
}

/* A machine that slept, or a group of processes that was frozen, wakes up with a late beat: a
 * moment shows whether there is another. */
bool fb_client_hangs(struct fb_client *client)
{
    struct timespec pause = {.tv_nsec = HUNG_STEP_NS};
    const struct fb_session *s = atomic_load_explicit(&client->session, memory_order_acquire);
    const struct fb_layout_live *live;
    int64_t beat_ns;

    if (!s || atomic_load_explicit(&client->off, memory_order_relaxed))
        return false;
    live = fb_layout_live(&s->layout);
    beat_ns = atomic_load_explicit(&live->beat_ns, memory_order_relaxed);
    if (fb_likely(fb_client_now_ns() - beat_ns < HUNG_NS) ||
        atomic_load_explicit(&live->closed, memory_order_relaxed) != 0)
        return false;
    for (int i = 0; i < HUNG_STEPS && atomic_load(&client->hung_ns) != beat_ns; i++) {
        (void)fb_sys(SYS_nanosleep, &pause, NULL, 0, 0);
        if (atomic_load_explicit(&live->beat_ns, memory_order_relaxed) != beat_ns)
            return false;
    }
    atomic_store(&client->hung_ns, beat_ns);
    return true;
}

void fb_client_fini(struct fb_client *client)
{
    uint32_t count = atomic_load(&client->session_count);

    fb_client_disconnect(client);
    fb_client_free_buffers(client);
    for (uint32_t i = 0; i < count; i++) {
        struct fb_session *s = &client->sessions[i];

        fb_client_close_medium(s);
        unmap_all(s, s->layout.h.tables_bytes, dram_bytes(s));
    }
}
