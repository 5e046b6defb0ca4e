/*
 * Live nodes: what programs change through this mount.
 *
 * A node is a record: one version of one path, for ever. That is what makes a hit simple, and it
 * cannot hold for a file that a program writes, moves or gives another mode: the kernel's inode
 * stays while version and path change. Such a node becomes *live*, and stays so until the kernel
 * forgets it:
 *
 *   - its record is retired, its cached bytes are dropped; nobody is served them any more;
 *   - its attributes and bytes come from the source, at every request, by the handle of a writer if
 *     there is one, else by the path that leads to the file now;
 *   - the kernel keeps its name for no time, so the next look-up brings the node of a new record,
 *     with normal caching. Except while somebody has it open for writing: then the name still leads
 *     to it, so that writers and readers share one inode and its pages.
 *
 *     normal ── open for writing ──► live, has the name ── last close ──► live ── FORGET ──► gone
 *        └───── set attributes, move, link ────────────────────────────────▲
 *
 * A node that nobody changes never comes here: it costs its readers one look at a counter.
 *
 * A directory that is moved, and every node below it that the kernel knows, lives on under the new
 * path; so does what programs have open there.
 *
 * Where files are `direct` (source/source.h) nothing that somebody reads becomes live, as it stays
 * the version that it is: its node only follows when it is moved. What is live there is the node of
 * a writer, which is the writer's own (claim.c). Its name leads elsewhere, unless there was nothing
 * of that name before; then it has it until it is complete.
 *
 * Lock: lives_lock (FB_RANK_LIVE) guards table, entries and the lists of handles; the node table is
 * used under it.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct live {
    struct fb_list id_link;
    struct fb_list path_link; /* linked while there is a path */
    struct fb_list file_link; /* among all nodes of its file */
    uint32_t id;
    bool named;             /* LOOKUP of the path gives this node */
    int64_t named_ns;       /* when LOOKUP gave it last: until its last close, or it became live */
    char *path;             /* NULL: nothing leads to it any more */
    struct fb_attr attr;    /* what was last seen of the file; number and device never change */
    int64_t asked_ns;       /* when it was asked for; 0: it is the record's */
    struct fb_list writers; /* struct fb_handle */
};

struct fb_lives {
    struct fb_list by_id[FB_FUSE_LIVE_BUCKETS];
    struct fb_list by_path[FB_FUSE_LIVE_BUCKETS];
    struct fb_list by_file[FB_FUSE_LIVE_BUCKETS];
};

int fb_lives_create(struct fb_lives **ret_lives)
{
    struct fb_lives *lives = fb_alloc(sizeof *lives);

    if (!lives)
        return -ENOMEM;
    for (unsigned i = 0; i < FB_FUSE_LIVE_BUCKETS; i++) {
        fb_list_init(&lives->by_id[i]);
        fb_list_init(&lives->by_path[i]);
        fb_list_init(&lives->by_file[i]);
    }
    *ret_lives = lives;
    return 0;
}

static void free_live(struct live *live)
{
    fb_list_remove(&live->id_link);
    fb_list_remove(&live->path_link);
    fb_list_remove(&live->file_link);
    free(live->path);
    free(live);
}

void fb_lives_destroy(struct fb_lives *lives)
{
    struct fb_list *it, *tmp;

    if (!lives)
        return;
    for (unsigned i = 0; i < FB_FUSE_LIVE_BUCKETS; i++)
        FB_LIST_FOREACH (it, tmp, &lives->by_id[i])
            free_live(FB_LIST_ENTRY(it, struct live, id_link));
    free(lives);
}

/* ---- under the lock ---- */

static struct fb_list *id_bucket(struct fb_mount *mount, uint32_t id)
{
    return &mount->lives->by_id[fb_mix64(id) % FB_FUSE_LIVE_BUCKETS];
}

static struct fb_list *path_bucket(struct fb_mount *mount, const char *path)
{
    return &mount->lives->by_path[fb_hash64(path, strlen(path)) % FB_FUSE_LIVE_BUCKETS];
}

static struct fb_list *file_bucket(struct fb_mount *mount, const struct fb_attr *attr)
{
    return &mount->lives->by_file[fb_mix64(attr->ino ^ fb_mix64(attr->dev)) % FB_FUSE_LIVE_BUCKETS];
}

static bool is_of(const struct live *live, const struct fb_attr *attr)
{
    return live->attr.ino == attr->ino && live->attr.dev == attr->dev;
}

/* Removed and closed, it may be gone, and its number another's. */
static bool is_there(const struct live *live)
{
    return live->path || !fb_list_empty(&live->writers);
}

static struct live *find(struct fb_mount *mount, uint32_t id)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, id_bucket(mount, id)) {
        struct live *live = FB_LIST_ENTRY(it, struct live, id_link);

        if (live->id == id)
            return live;
    }
    return NULL;
}

static struct live *find_named(struct fb_mount *mount, const char *path)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, path_bucket(mount, path)) {
        struct live *live = FB_LIST_ENTRY(it, struct live, path_link);

        if (live->named && strcmp(live->path, path) == 0)
            return live;
    }
    return NULL;
}

/* Takes `path` over; NULL: nothing leads there any more. */
static void set_path(struct fb_mount *mount, struct live *live, char *path)
{
    fb_list_remove(&live->path_link);
    free(live->path);
    live->path = path;
    if (path)
        fb_list_push_back(path_bucket(mount, path), &live->path_link);
    else
        live->named = false;
}

/* Another node of the file may know more of it than the record does: nobody can set a ctime back.
 */
static void inherit(struct fb_mount *mount, struct live *live)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, file_bucket(mount, &live->attr)) {
        const struct live *other = FB_LIST_ENTRY(it, struct live, file_link);

        if (is_of(other, &live->attr) && is_there(other) && other->asked_ns > live->asked_ns &&
            other->attr.version.ctime_ns >= live->attr.version.ctime_ns) {
            live->attr = other->attr;
            live->asked_ns = other->asked_ns;
        }
    }
}

/* Finds or makes. NULL without memory. */
static struct live *obtain(struct fb_mount *mount, uint32_t id, const char *path,
                           const struct fb_attr *attr)
{
    struct live *live = find(mount, id);
    char *copy;

    if (live) {
        fb_node_set_flags(mount->nodes, id, FB_NODE_LIVE, 0);
        return live;
    }
    live = fb_alloc(sizeof *live);
    copy = live ? fb_strdup(path) : NULL;
    if (!copy) {
        free(live);
        return NULL;
    }
    live->id = id;
    live->named_ns = fb_now_ns();
    live->attr = *attr;
    fb_list_init(&live->id_link);
    fb_list_init(&live->path_link);
    fb_list_init(&live->file_link);
    fb_list_init(&live->writers);
    inherit(mount, live);
    fb_list_push_back(id_bucket(mount, id), &live->id_link);
    fb_list_push_back(file_bucket(mount, attr), &live->file_link);
    set_path(mount, live, copy);
    /* Release: who sees the flag, or the count, finds the entry; under the lock in any case. */
    atomic_fetch_add_explicit(&mount->live_count, 1, memory_order_release);
    fb_node_set_flags(mount->nodes, id, FB_NODE_LIVE, 0);
    return live;
}

/* ---- becoming live ---- */

/* Its record's path is no longer its own: it stays the version that it is. */
static bool lost_name(struct fb_mount *mount, uint32_t id)
{
    return (fb_node_flags(mount->nodes, id) & (FB_NODE_GONE | FB_NODE_LIVE)) == FB_NODE_GONE;
}

/* As obtain(), of a node that the kernel may forget meanwhile: then there is nothing to do. False:
 * no memory. */
static bool obtain_known(struct fb_mount *mount, uint32_t id, const char *path,
                         const struct fb_attr *attr) FB_REQUIRES(&mount->lives_lock)
{
    bool done;

    /* Counted before it is looked for: who forgets removes the node first and then looks at the
     * count, so that one of the two sees the other (fb_entry_forget()). */
    atomic_fetch_add_explicit(&mount->live_count, 1, memory_order_relaxed);
    done = !fb_node_known(mount->nodes, id, NULL) || lost_name(mount, id) ||
           obtain(mount, id, path, attr);
    atomic_fetch_sub_explicit(&mount->live_count, 1, memory_order_relaxed);
    return done;
}

void fb_live_touch(struct fb_mount *mount, uint32_t id, const char *path,
                   const struct fb_attr *attr)
{
    fb_mutex_lock(&mount->lives_lock);
    /* Without memory the node stays what it was: reads of it may end with ESTALE. */
    (void)obtain_known(mount, id, path, attr);
    fb_mutex_unlock(&mount->lives_lock);
}

int fb_live_open(struct fb_handle *handle, uint32_t id, const char *path,
                 const struct fb_attr *attr, bool named)
{
    struct fb_mount *mount = handle->mount;
    struct live *live;

    fb_mutex_lock(&mount->lives_lock);
    live = obtain(mount, id, path, attr);
    if (live) {
        handle->id = id;
        live->named |= named && live->path;
        fb_list_push_back(&live->writers, &handle->live_link);
        fb_cache_writing(mount->volume, &live->attr, true);
    }
    fb_mutex_unlock(&mount->lives_lock);
    return live ? 0 : -ENOMEM;
}

int fb_live_create(struct fb_handle *handle, const char *path, const struct fb_attr *attr,
                   uint32_t *ret_id)
{
    struct fb_mount *mount = handle->mount;
    const struct live *live;
    uint32_t id = FB_FILE_NONE;
    int rc = 0;

    fb_mutex_lock(&mount->lives_lock);
    live = find_named(mount, path);
    /* Another program was quicker: it is the same file. */
    if (live && is_of(live, attr)) {
        id = live->id;
        fb_files_ref(mount->files, id, 1);
    }
    fb_mutex_unlock(&mount->lives_lock);
    /* A record that nobody finds: it is there to give the node its number. */
    if (id == FB_FILE_NONE)
        rc = fb_cache_learn(mount->volume, path, attr, fb_cache_moment(mount->volume, path), &id);
    if (rc < 0)
        return rc;
    rc = fb_live_open(handle, id, path, attr, true);
    fb_cache_changed(mount->volume, path, attr);
    if (rc < 0)
        fb_files_unref(mount->files, id, 1);
    *ret_id = id;
    return rc;
}

/* ---- and no longer ---- */

void fb_live_unname(struct fb_mount *mount, uint32_t id)
{
    struct live *live;

    fb_mutex_lock(&mount->lives_lock);
    live = find(mount, id);
    if (live)
        live->named = false;
    fb_mutex_unlock(&mount->lives_lock);
}

/* Under the lock. */
static void close_live(struct fb_handle *handle)
{
    struct fb_mount *mount = handle->mount;
    struct live *live;

    if (!fb_list_linked(&handle->live_link))
        return;
    live = find(mount, handle->id);
    FB_ASSERT(live); /* as long as it has writers */
    fb_list_remove(&handle->live_link);
    fb_cache_writing(mount->volume, &live->attr, false);
    if (!fb_list_empty(&live->writers) || !live->named)
        return;
    live->named = false;
    live->named_ns = fb_now_ns();
}

void fb_live_close(struct fb_handle *handle)
{
    fb_mutex_lock(&handle->mount->lives_lock);
    close_live(handle);
    fb_mutex_unlock(&handle->mount->lives_lock);
}

void fb_live_forget(struct fb_mount *mount, uint32_t id)
{
    struct live *live;

    fb_mutex_lock(&mount->lives_lock);
    live = find(mount, id);
    if (live && fb_list_empty(&live->writers)) {
        free_live(live);
        atomic_fetch_sub_explicit(&mount->live_count, 1, memory_order_relaxed);
    }
    fb_mutex_unlock(&mount->lives_lock);
}

/* ---- asking ---- */

/* Who has looked the name up just before it was to lead elsewhere comes to open what he found. To
 * be refused costs him another look-up, beside programs that append and close perhaps as much in
 * vain, and the kernel tries no third time; so he is let in. */
static bool may_open(const struct fb_mount *mount, const struct live *live)
{
    return live->named ||
           (!mount->direct && live->path && fb_now_ns() - live->named_ns < FB_SETTLE_TIME_NS);
}

bool fb_live_get(struct fb_mount *mount, uint32_t id, struct fb_live_view *ret_view)
{
    struct live *live;

    *ret_view = (struct fb_live_view){.handle = NULL};
    if (!fb_is_live(mount, id))
        return false;
    fb_mutex_lock(&mount->lives_lock);
    live = find(mount, id);
    if (live) {
        ret_view->attr = live->attr;
        ret_view->open = may_open(mount, live);
        if (live->path)
            ret_view->path = fb_strdup(live->path);
        if (!fb_list_empty(&live->writers)) {
            ret_view->handle = FB_LIST_ENTRY(live->writers.next, struct fb_handle, live_link);
            fb_handle_get(ret_view->handle);
        }
    }
    fb_mutex_unlock(&mount->lives_lock);
    return live != NULL;
}

void fb_live_seen(struct fb_mount *mount, const struct fb_attr *attr, int64_t asked_ns)
{
    struct fb_list *it, *tmp;

    if (mount->direct || atomic_load_explicit(&mount->live_count, memory_order_relaxed) == 0)
        return;
    fb_mutex_lock(&mount->lives_lock);
    FB_LIST_FOREACH (it, tmp, file_bucket(mount, attr)) {
        struct live *live = FB_LIST_ENTRY(it, struct live, file_link);

        /* Answers may overtake each other; what was asked later is as true at least. */
        if (!is_of(live, attr) || !is_there(live) || live->asked_ns > asked_ns)
            continue;
        live->attr = *attr;
        live->asked_ns = asked_ns;
    }
    fb_mutex_unlock(&mount->lives_lock);
}

void fb_live_view_end(struct fb_live_view *view)
{
    fb_handle_put(fb_steal(view->handle));
    free(fb_steal(view->path));
}

int fb_live_lookup(struct fb_mount *mount, const char *path, uint32_t parent, uint32_t *ret_id,
                   struct fb_handle **ret_handle)
{
    struct live *live;
    int rc = 0;

    fb_mutex_lock(&mount->lives_lock);
    live = find_named(mount, path);
    if (live && !fb_list_empty(&live->writers)) {
        /* Told now: until the answer the kernel cannot forget it. */
        rc = fb_node_tell(mount->nodes, live->id, parent);
        /* Known, as it is open; but a connection that was cut has forgotten everything. */
        if (rc == FB_NODE_NEW)
            fb_files_ref(mount->files, live->id, 1);
        if (rc > 0) {
            *ret_id = live->id;
            *ret_handle = FB_LIST_ENTRY(live->writers.next, struct fb_handle, live_link);
            fb_handle_get(*ret_handle);
        }
    }
    fb_mutex_unlock(&mount->lives_lock);
    return rc;
}

bool fb_live_is_written(struct fb_mount *mount, const char *path)
{
    bool written = false;
    struct fb_list *it, *tmp;

    if (atomic_load_explicit(&mount->live_count, memory_order_relaxed) == 0)
        return false;
    fb_mutex_lock(&mount->lives_lock);
    FB_LIST_FOREACH (it, tmp, path_bucket(mount, path)) {
        const struct live *live = FB_LIST_ENTRY(it, struct live, path_link);

        written |= !fb_list_empty(&live->writers) && strcmp(live->path, path) == 0;
    }
    fb_mutex_unlock(&mount->lives_lock);
    return written;
}

bool fb_live_has_name(struct fb_mount *mount, const char *path)
{
    bool named;

    /* Relaxed: who must see it has waited for the change's answer. */
    if (atomic_load_explicit(&mount->live_count, memory_order_relaxed) == 0)
        return false;
    fb_mutex_lock(&mount->lives_lock);
    named = find_named(mount, path) != NULL;
    fb_mutex_unlock(&mount->lives_lock);
    return named;
}

const char *fb_node_path(struct fb_mount *mount, uint32_t id, char buf[FB_PATH_MAX],
                         size_t *ret_len)
{
    const char *path = NULL;
    struct live *live;

    if (!fb_is_live(mount, id))
        return fb_files_path(mount->files, id, ret_len);
    fb_mutex_lock(&mount->lives_lock);
    live = find(mount, id);
    if (!live)
        path = fb_files_path(mount->files, id, NULL);
    else if (live->path)
        path = memcpy(buf, live->path, strlen(live->path) + 1); /* FB_PATH_MAX bounds all */
    fb_mutex_unlock(&mount->lives_lock);
    if (ret_len)
        *ret_len = path ? strlen(path) : 0;
    return path;
}

const char *fb_node_own_path(struct fb_mount *mount, uint32_t id, char buf[FB_PATH_MAX])
{
    const char *path = fb_node_path(mount, id, buf, NULL);
    struct fb_attr own, other;
    uint32_t current;

    fb_files_attr(mount->files, id, &own);
    if (!path || fb_is_live(mount, id) || S_ISDIR(own.mode))
        return path;
    if (fb_node_flags(mount->nodes, id) & FB_NODE_GONE)
        return NULL;
    current = fb_files_find(mount->files, fb_volume_id(mount->volume), path);
    if (current == FB_FILE_NONE)
        return path;
    fb_files_attr(mount->files, current, &other);
    fb_files_unref(mount->files, current, 1);
    return other.ino == own.ino && other.dev == own.dev ? path : NULL;
}

void fb_job_own(struct fb_mount *mount, uint32_t id, struct fb_source_job *job)
{
    struct fb_live_view view;
    struct fb_attr attr;

    fb_files_attr(mount->files, id, &attr);
    if (mount->direct || !S_ISREG(attr.mode))
        return;
    if (fb_live_get(mount, id, &view))
        attr = view.attr;
    fb_live_view_end(&view);
    job->own_dev = attr.dev;
    job->own_ino = attr.ino;
}

/* ---- names that change ---- */

/* What is being written there is not the file that has the name: it will be, when it is complete,
 * whatever has become of that one. */
static bool stays(const struct fb_mount *mount, const struct live *live)
{
    return mount->direct && !live->named && !fb_list_empty(&live->writers);
}

/* Where `path` lies after `from` has become `to`: malloc'd, or NULL when it lies elsewhere. */
static char *moved_path(const char *path, const char *from, const char *to)
{
    size_t len = strlen(from);

    if (strncmp(path, from, len) != 0 || (path[len] && path[len] != '/'))
        return NULL;
    return fb_asprintf("%s%s", to, path + len);
}

static void move_one(struct fb_mount *mount, struct live *live, const char *from, const char *to,
                     bool exchange)
{
    char *path;

    if (!live->path || stays(mount, live))
        return;
    path = moved_path(live->path, from, to);
    if (!path && exchange)
        path = moved_path(live->path, to, from);
    if (path && strlen(path) >= FB_PATH_MAX) {
        free(path);
        set_path(mount, live, NULL);
    } else if (path) {
        set_path(mount, live, path);
    } else if (strcmp(live->path, to) == 0) {
        live->named = false; /* replaced */
        if (!stays(mount, live))
            set_path(mount, live, NULL);
    }
}

struct collected {
    struct fb_mount *mount;
    const char *from;
    const char *to; /* NULL: what is there goes */
    uint32_t *ids;
    size_t count;
    size_t max;
};

static bool lies_below(const char *path, const char *top)
{
    size_t len = strlen(top);

    return strncmp(path, top, len) == 0 && (!path[len] || path[len] == '/');
}

static void collect(void *arg, uint32_t id)
{
    struct collected *c = arg;
    const char *path = fb_files_path(c->mount->files, id, NULL);

    if (c->count < c->max && (lies_below(path, c->from) || (c->to && lies_below(path, c->to)))) {
        fb_files_ref(c->mount->files, id, 1);
        c->ids[c->count++] = id;
    }
}

/* Nodes that were not live until now, by the paths of their records. */
static void enliven(struct fb_mount *mount, const uint32_t *ids, size_t count)
    FB_REQUIRES(&mount->lives_lock)
{
    for (size_t i = 0; i < count; i++) {
        struct fb_attr attr;

        fb_files_attr(mount->files, ids[i], &attr);
        if (!obtain_known(mount, ids[i], fb_files_path(mount->files, ids[i], NULL), &attr))
            fb_log_warn("%s: no memory to follow what is moved", mount->config.mountpoint);
    }
}

static void enliven_below(struct fb_mount *mount, const char *from, const char *to)
    FB_REQUIRES(&mount->lives_lock)
{
    struct collected c = {.mount = mount, .from = from, .to = to};

    c.max = fb_nodes_count(mount->nodes) + 1024;
    c.ids = fb_alloc_array(c.max, sizeof *c.ids);
    if (!c.ids)
        return;
    fb_nodes_visit(mount->nodes, FB_NODE_ANY_PARENT, collect, &c);
    enliven(mount, c.ids, c.count);
    for (size_t i = 0; i < c.count; i++)
        fb_files_unref(mount->files, c.ids[i], 1);
    free(c.ids);
}

void fb_live_moved(struct fb_mount *mount, const char *from, const char *to, bool exchange,
                   uint32_t file)
{
    fb_mutex_lock(&mount->lives_lock);
    if (file != FB_FILE_NONE)
        enliven(mount, &file, 1);
    else
        enliven_below(mount, from, exchange ? to : NULL);
    for (unsigned i = 0; i < FB_FUSE_LIVE_BUCKETS; i++) {
        struct fb_list *it, *tmp;

        FB_LIST_FOREACH (it, tmp, &mount->lives->by_id[i])
            move_one(mount, FB_LIST_ENTRY(it, struct live, id_link), from, to, exchange);
    }
    fb_mutex_unlock(&mount->lives_lock);
}

void fb_live_removed(struct fb_mount *mount, const char *path)
{
    struct fb_list *it, *tmp;

    if (atomic_load_explicit(&mount->live_count, memory_order_relaxed) == 0)
        return;
    fb_mutex_lock(&mount->lives_lock);
    FB_LIST_FOREACH (it, tmp, path_bucket(mount, path)) {
        struct live *live = FB_LIST_ENTRY(it, struct live, path_link);

        if (strcmp(live->path, path) == 0 && !stays(mount, live))
            set_path(mount, live, NULL);
    }
    fb_mutex_unlock(&mount->lives_lock);
}

/* ---- handles ---- */

struct fb_handle *fb_handle_new(struct fb_mount *mount, const struct fb_source_job *job,
                                uint32_t id)
{
    struct fb_handle *handle = fb_alloc(sizeof *handle);

    if (!handle)
        return NULL;
    handle->mount = mount;
    handle->source = job->handle;
    handle->id = id;
    handle->direct = job->direct;
    if (job->direct)
        handle->process = fb_task_process(job->caller.pid);
    atomic_init(&handle->refs, 1);
    fb_list_init(&handle->live_link);
    fb_mutex_lock(&mount->lives_lock);
    fb_list_push_back(&mount->handles, &handle->link);
    fb_mutex_unlock(&mount->lives_lock);
    return handle;
}

bool fb_handle_publishes(struct fb_handle *handle, const struct fb_version *version)
{
    bool other;

    fb_mutex_lock(&handle->mount->lives_lock);
    other = !fb_version_equal(&handle->published, version);
    handle->published = *version;
    fb_mutex_unlock(&handle->mount->lives_lock);
    return other;
}

void fb_handle_get(struct fb_handle *handle)
{
    /* Relaxed: whoever takes a reference has one, or the lock. */
    atomic_fetch_add_explicit(&handle->refs, 1, memory_order_relaxed);
}

static void close_done(struct fb_source_job *job)
{
    struct fb_mount *mount = job->arg;

    fb_source_job_put(job);
    fb_request_end(mount);
}

void fb_source_close_handle(struct fb_mount *mount, struct fb_source_handle *handle)
{
    struct fb_caller nobody = {.pid = 0};
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);

    /* Without memory for the job the source closes it at its own end. */
    if (!job)
        return;
    job->handle = handle;
    fb_request_begin(mount);
    fb_job_submit(mount, job, &nobody, NULL, close_done, mount);
}

void fb_handle_put(struct fb_handle *handle)
{
    struct fb_mount *mount;

    /* Release and acquire: all use of the handle comes before its end. */
    if (!handle || atomic_fetch_sub_explicit(&handle->refs, 1, memory_order_acq_rel) != 1)
        return;
    mount = handle->mount;
    fb_mutex_lock(&mount->lives_lock);
    close_live(handle);
    fb_list_remove(&handle->link);
    fb_mutex_unlock(&mount->lives_lock);
    fb_source_close_handle(mount, handle->source);
    free(handle);
}

void fb_handles_close(struct fb_mount *mount)
{
    struct fb_list *it, *tmp;

    /* No lock: the threads that take requests in are gone. */
    FB_LIST_FOREACH (it, tmp, &mount->handles)
        fb_handle_put(FB_LIST_ENTRY(it, struct fb_handle, link));
}
