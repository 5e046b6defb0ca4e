/*
 * Telling the kernel to forget.
 *
 * A record that is no longer current must not be found by its name any more. The cache says so from
 * any thread; the kernel is told from one of our own, since it takes locks that a request under way
 * may hold.
 *
 * Told is the name: the kernel drops it and everything below it, and the next access looks it up
 * anew. The pages of a regular file are left alone: they are true for that version, and whoever has
 * it open or mapped goes on with it; they go when the last of them lets go. A directory or link
 * also loses its listing, target, attributes and ACLs.
 *
 * The name is not told of what programs change or remove through this mount: the kernel knows, and
 * the source is asked at every use of a live node (live.c). To tell it would take the lock of the
 * directory, which a program holds while it waits for the answer to its rename; were the daemon
 * killed then, the thread that waits for the lock would keep the connection open, and the two would
 * wait for ever.
 *
 * Sampling. Where opens are not sent to us (static mounts), pages that the kernel has are read
 * without our knowledge: a data set would be seen once and never again. So the pages of one file in
 * FB_FUSE_SAMPLE, chosen by the hash of its path, are dropped a second after it was read to
 * its end, no more than one in FB_FUSE_SAMPLE_GAP_NS; its next read is ours, and what the sample
 * does stands for all. Only pages are dropped, no names: no lock of a directory is taken. Files
 * that only the kernel is asked for look unused to us, and so leave DRAM first, as they should.
 *
 * The queue is bounded. When it overflows, all names in the root directory are invalidated instead,
 * and with them everything: costly, but never wrong.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct fb_notifier {
    struct fb_mount *mount;
    pthread_t thread;
    bool started;

    struct fb_mutex lock; /* guards what follows */
    struct fb_cond wake;
    struct fb_cond idle;
    bool stop;
    bool overflow; /* invalidate everything */
    bool logged;
    bool shed;      /* ask the kernel to drop what nobody uses: down to the bound, */
    bool shed_hard; /* or half of it */
    bool busy;
    unsigned head;
    unsigned count;
    uint32_t queue[FB_FUSE_NOTIFY_MAX]; /* records, with a reference each */
    unsigned sample_head;
    unsigned sample_count;
    int64_t sampled_ns; /* when the last one was dropped */
    int64_t sweep_ns;   /* when what was read early is looked at; FB_NEVER_NS: there is nothing */

    struct sample {
        uint32_t id; /* with a reference */
        int64_t read_ns;
    } sample[FB_FUSE_SAMPLE_MAX]; /* files whose pages go */
};

int fb_notifier_create(struct fb_mount *mount, struct fb_notifier **ret_notifier)
{
    struct fb_notifier *n = fb_alloc(sizeof *n);

    if (!n)
        return -ENOMEM;
    n->mount = mount;
    n->sweep_ns = FB_NEVER_NS;
    fb_mutex_init(&n->lock, FB_RANK_DOOR);
    fb_cond_init(&n->wake);
    fb_cond_init(&n->idle);
    *ret_notifier = n;
    return 0;
}

void fb_notifier_destroy(struct fb_notifier *n)
{
    if (!n)
        return;
    for (unsigned i = 0; i < n->count; i++)
        fb_files_unref(n->mount->files, n->queue[(n->head + i) % FB_FUSE_NOTIFY_MAX], 1);
    for (unsigned i = 0; i < n->sample_count; i++)
        fb_files_unref(n->mount->files, n->sample[(n->sample_head + i) % FB_FUSE_SAMPLE_MAX].id, 1);
    fb_cond_destroy(&n->idle);
    fb_cond_destroy(&n->wake);
    fb_mutex_destroy(&n->lock);
    free(n);
}

void fb_notifier_retired(struct fb_notifier *n, uint32_t id)
{
    struct fb_files *files = n->mount->files;
    bool queued = false, log = false;
    size_t len;

    fb_files_path(files, id, &len);
    if (len > 0 && !fb_node_known(n->mount->nodes, id, NULL))
        return;
    fb_files_ref(files, id, 1);
    fb_mutex_lock(&n->lock);
    if (n->stop || n->overflow) {
        /* Nobody listens, or everything goes anyway. */
    } else if (n->count == FB_FUSE_NOTIFY_MAX) {
        log = !n->logged;
        n->logged = true;
        n->overflow = true;
    } else {
        n->queue[(n->head + n->count++) % FB_FUSE_NOTIFY_MAX] = id;
        queued = true;
    }
    fb_cond_signal(&n->wake);
    fb_mutex_unlock(&n->lock);
    if (!queued)
        fb_files_unref(files, id, 1);
    if (log)
        fb_log_info("%s: many files changed at once, the kernel forgets all names",
                    n->mount->config.mountpoint);
}

void fb_notifier_read(struct fb_notifier *n, uint32_t id, uint64_t end)
{
    struct fb_files *files = n->mount->files;
    bool queued;

    if (!n->mount->no_open || fb_files_path_hash(files, id) % FB_FUSE_SAMPLE != 0 ||
        end < fb_files_version(files, id)->size)
        return;
    fb_files_ref(files, id, 1);
    fb_mutex_lock(&n->lock);
    queued = !n->stop && n->sample_count < FB_FUSE_SAMPLE_MAX;
    if (queued) {
        n->sample[(n->sample_head + n->sample_count++) % FB_FUSE_SAMPLE_MAX] =
            (struct sample){.id = id, .read_ns = fb_now_ns()};
        fb_cond_signal(&n->wake);
    }
    fb_mutex_unlock(&n->lock);
    if (!queued)
        fb_files_unref(files, id, 1);
}

void fb_notifier_shed(struct fb_notifier *n, bool hard)
{
    fb_mutex_lock(&n->lock);
    n->shed = true;
    n->shed_hard |= hard;
    fb_cond_signal(&n->wake);
    fb_mutex_unlock(&n->lock);
}

/* ---- the thread ---- */

static const char *last_component(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* ENOENT: the kernel had forgotten it by itself. */
void fb_notify_entry(struct fb_mount *mount, uint32_t id, uint32_t parent)
{
    size_t len;
    const char *path = fb_files_path(mount->files, id, &len);
    const char *name = last_component(path);
    int rc = fuse_lowlevel_notify_inval_entry(mount->session, (fuse_ino_t)parent + FUSE_ROOT_ID,
                                              name, strlen(name));

    if (rc < 0 && rc != -ENOENT)
        fb_log_debug("%s: invalidating %s: %s", mount->config.mountpoint, path, fb_strerror(rc));
}

static void tell(struct fb_mount *mount, uint32_t id)
{
    struct fb_attr attr;
    uint32_t parent;
    size_t len;
    int rc;

    fb_files_attr(mount->files, id, &attr);
    fb_files_path(mount->files, id, &len);
    if (len == 0) {
        rc = fuse_lowlevel_notify_inval_inode(mount->session, FUSE_ROOT_ID, 0, 0);
    } else if (fb_node_known(mount->nodes, id, &parent)) {
        /* A negative offset leaves the pages. */
        rc = fuse_lowlevel_notify_inval_inode(mount->session, fb_ino_of(id),
                                              S_ISREG(attr.mode) ? -1 : 0, 0);
        if (!(fb_node_flags(mount->nodes, id) & (FB_NODE_LIVE | FB_NODE_GONE)))
            fb_notify_entry(mount, id, parent);
    } else {
        rc = 0;
    }
    if (rc < 0 && rc != -ENOENT)
        fb_log_debug("%s: invalidating an inode: %s", mount->config.mountpoint, fb_strerror(rc));
}

struct collected {
    struct fb_mount *mount;
    uint32_t *ids;
    size_t count;
    size_t max;
};

static void collect(void *arg, uint32_t id)
{
    struct collected *c = arg;

    if (c->count == c->max)
        return;
    fb_files_ref(c->mount->files, id, 1);
    c->ids[c->count++] = id;
}

static void tell_everything(struct fb_mount *mount)
{
    struct collected c = {.mount = mount, .max = fb_nodes_count(mount->nodes) + 1024};

    c.ids = fb_alloc_array(c.max, sizeof *c.ids);
    if (!c.ids) {
        fb_log_warn("%s: no memory to invalidate names: they are used until they expire",
                    mount->config.mountpoint);
        return;
    }
    /* All of them: what is in use below a name that is forgotten comes back with the name. */
    fb_nodes_visit(mount->nodes, FB_NODE_ANY_PARENT, collect, &c);
    for (size_t i = 0; i < c.count; i++) {
        tell(mount, c.ids[i]);
        fb_files_unref(mount->files, c.ids[i], 1);
    }
    fuse_lowlevel_notify_inval_inode(mount->session, FUSE_ROOT_ID, 0, 0);
    free(c.ids);
}

/* When something of the sample may be dropped; FB_NEVER_NS: there is nothing. */
static int64_t sample_due_ns(const struct fb_notifier *n) FB_REQUIRES(n->lock)
{
    int64_t read_ns = n->sample[n->sample_head].read_ns + FB_FUSE_SAMPLE_NS;
    int64_t gap_ns = n->sampled_ns + FB_FUSE_SAMPLE_GAP_NS;

    if (n->sample_count == 0)
        return FB_NEVER_NS;
    return read_ns > gap_ns ? read_ns : gap_ns;
}

static void drop_sampled(struct fb_notifier *n) FB_REQUIRES(n->lock)
{
    uint32_t id = n->sample[n->sample_head].id;
    struct fb_mount *mount = n->mount;

    n->sample_head = (n->sample_head + 1) % FB_FUSE_SAMPLE_MAX;
    n->sample_count--;
    fb_mutex_unlock(&n->lock);
    if (fb_node_known(mount->nodes, id, NULL))
        fuse_lowlevel_notify_inval_inode(mount->session, fb_ino_of(id), 0, 0);
    fb_files_unref(mount->files, id, 1);
    fb_mutex_lock(&n->lock);
    n->sampled_ns = fb_now_ns();
}

/* The next thing to do, and doing it. False: nothing. */
static bool step(struct fb_notifier *n) FB_REQUIRES(n->lock)
{
    struct fb_mount *mount = n->mount;
    uint32_t id = FB_FILE_NONE;
    bool everything = false, hard = n->shed_hard;

    if (n->count > 0) {
        id = n->queue[n->head];
        n->head = (n->head + 1) % FB_FUSE_NOTIFY_MAX;
        n->count--;
    } else if (n->overflow) {
        everything = true;
        n->overflow = false;
    } else if (n->shed) {
        n->shed_hard = false;
    } else {
        return false;
    }
    n->busy = true;
    fb_mutex_unlock(&n->lock);
    if (id != FB_FILE_NONE) {
        tell(mount, id);
        fb_files_unref(mount->files, id, 1);
    } else if (everything) {
        tell_everything(mount);
    } else {
        fb_shed(mount, hard);
    }
    fb_mutex_lock(&n->lock);
    n->busy = false;
    /* Who asked meanwhile has been served by this round. */
    if (id == FB_FILE_NONE && !everything)
        n->shed = n->shed_hard;
    return true;
}

static void sweep(struct fb_notifier *n) FB_REQUIRES(n->lock)
{
    bool more;

    n->sweep_ns = FB_NEVER_NS;
    fb_mutex_unlock(&n->lock);
    more = fb_crowd_sweep(n->mount);
    fb_mutex_lock(&n->lock);
    if (more)
        n->sweep_ns = fb_now_ns() + FB_FUSE_SWEEP_NS;
}

void fb_notifier_sweep(struct fb_notifier *n)
{
    fb_mutex_lock(&n->lock);
    n->sweep_ns = fb_now_ns() + FB_FUSE_SWEEP_NS;
    fb_cond_signal(&n->wake);
    fb_mutex_unlock(&n->lock);
}

static void *run(void *arg)
{
    struct fb_notifier *n = arg;

    fb_mutex_lock(&n->lock);
    while (!n->stop) {
        int64_t now_ns = fb_now_ns(), due_ns = sample_due_ns(n);

        if (step(n))
            continue;
        fb_cond_broadcast(&n->idle);
        if (now_ns >= due_ns)
            drop_sampled(n);
        else if (now_ns >= n->sweep_ns)
            sweep(n);
        else
            fb_cond_wait(&n->wake, &n->lock, due_ns < n->sweep_ns ? due_ns : n->sweep_ns);
    }
    fb_cond_broadcast(&n->idle);
    fb_mutex_unlock(&n->lock);
    return NULL;
}

bool fb_notifier_flush(struct fb_notifier *n, int64_t until_ns)
{
    bool done;

    fb_mutex_lock(&n->lock);
    while ((n->busy || n->count > 0 || n->overflow) && !n->stop)
        if (!fb_cond_wait(&n->idle, &n->lock, until_ns))
            break;
    done = !n->busy && n->count == 0 && !n->overflow;
    fb_mutex_unlock(&n->lock);
    return done;
}

int fb_notifier_start(struct fb_notifier *n)
{
    int rc = fb_thread_start(&n->thread, "fb-fuse-notify", run, n);

    n->started = rc == 0;
    return rc;
}

void fb_notifier_stop(struct fb_notifier *n)
{
    if (!n)
        return;
    fb_mutex_lock(&n->lock);
    n->stop = true;
    fb_cond_broadcast(&n->wake);
    fb_mutex_unlock(&n->lock);
    if (n->started)
        pthread_join(n->thread, NULL);
    n->started = false;
}
