#include "daemon/mounts.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/paths.h"
#include "doors/fuse/mount.h"

#define USERS_WAIT_NS (30 * FB_NS_PER_S)

enum state {
    STARTING,
    LIVE,
    STOPPING,
};

struct entry {
    struct fb_list link;
    struct fb_mounts *mounts;
    enum state state;
    unsigned users; /* who work with `mount` without the lock */
    char *source;
    char *mountpoint;
    struct fb_mount_settings settings;
    struct fb_mount *mount;
    int64_t since_ns;
    _Atomic bool ended; /* release by the door, acquire by reap() */
};

struct fb_mounts {
    struct fb_cache *cache;
    struct fb_own_dirs own;
    void (*changed)(void *arg);
    void *arg;
    struct fb_mutex mutex; /* FB_RANK_DAEMON: guards the list, states, users and stuck */
    struct fb_cond idle;
    struct fb_list entries;
    unsigned count;
    bool stuck; /* a mount did not come apart, and still uses the cache */
};

static void entry_free(struct entry *e)
{
    if (!e)
        return;
    fb_mount_settings_free(&e->settings);
    free(e->source);
    free(e->mountpoint);
    free(e);
}

static struct entry *entry_of(struct fb_list *link)
{
    return FB_LIST_ENTRY(link, struct entry, link);
}

int fb_mounts_create(struct fb_cache *cache, const struct fb_own_dirs *own,
                     void (*changed)(void *arg), void *arg, struct fb_mounts **ret_mounts)
{
    struct fb_mounts *m = fb_alloc(sizeof *m);

    if (!m)
        return -ENOMEM;
    m->cache = cache;
    m->own = *own;
    m->changed = changed;
    m->arg = arg;
    fb_mutex_init(&m->mutex, FB_RANK_DAEMON);
    fb_cond_init(&m->idle);
    fb_list_init(&m->entries);
    *ret_mounts = m;
    return 0;
}

void fb_mounts_destroy(struct fb_mounts *mounts)
{
    if (!mounts)
        return;
    FB_ASSERT(fb_list_empty(&mounts->entries));
    fb_cond_destroy(&mounts->idle);
    fb_mutex_destroy(&mounts->mutex);
    free(mounts);
}

/* ---- the list ---- */

static struct entry *find_entry(struct fb_mounts *m, const char *mountpoint) FB_REQUIRES(m->mutex)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, &m->entries) {
        if (strcmp(entry_of(it)->mountpoint, mountpoint) == 0)
            return entry_of(it);
    }
    return NULL;
}

static int insert_entry(struct fb_mounts *m, struct entry *e, struct fb_error *err)
{
    const struct entry *other;
    int rc = 0;

    fb_mutex_lock(&m->mutex);
    other = find_entry(m, e->mountpoint);
    if (other) {
        rc = fb_error_set(err, -EBUSY, "%s is mounted already, with the source %s", e->mountpoint,
                          other->source);
    } else if (m->count == FB_CONFIG_MOUNTS_MAX) {
        rc = fb_error_set(err, -ENOSPC, "the daemon has %d mounts and takes no more",
                          FB_CONFIG_MOUNTS_MAX);
    } else {
        fb_list_push_back(&m->entries, &e->link);
        m->count++;
    }
    fb_mutex_unlock(&m->mutex);
    return rc;
}

static void drop_entry(struct fb_mounts *m, struct entry *e)
{
    fb_mutex_lock(&m->mutex);
    fb_list_remove(&e->link);
    m->count--;
    fb_mutex_unlock(&m->mutex);
    entry_free(e);
    m->changed(m->arg);
}

unsigned fb_mounts_count(struct fb_mounts *mounts)
{
    unsigned count;

    fb_mutex_lock(&mounts->mutex);
    count = mounts->count;
    fb_mutex_unlock(&mounts->mutex);
    return count;
}

bool fb_mounts_stuck(struct fb_mounts *mounts)
{
    bool stuck;

    fb_mutex_lock(&mounts->mutex);
    stuck = mounts->stuck;
    fb_mutex_unlock(&mounts->mutex);
    return stuck;
}

static void note_stuck(struct fb_mounts *m)
{
    fb_mutex_lock(&m->mutex);
    m->stuck = true;
    fb_mutex_unlock(&m->mutex);
}

/* ---- adding ---- */

/* Of the door's threads: only a note for the main thread. */
static void mount_ended(void *arg)
{
    struct entry *e = arg;
    struct fb_mounts *m = e->mounts;

    /* Release pairs with the acquire in take_ended(). */
    atomic_store_explicit(&e->ended, true, memory_order_release);
    m->changed(m->arg);
}

static int start_entry(struct fb_mounts *m, struct entry *e, struct fb_error *err)
{
    struct fb_mount *mount;
    int rc = fb_source_dir_mount(m->cache, e->source, e->mountpoint, &e->settings, &m->own,
                                 mount_ended, e, &mount, err);

    if (rc == FB_MOUNT_STUCK) {
        note_stuck(m);
        rc = -EIO;
    }
    if (rc)
        return fb_error_set(err, rc, "cannot mount on %s: %s", e->mountpoint, fb_strerror(rc));
    fb_mutex_lock(&m->mutex);
    e->mount = mount;
    e->state = LIVE;
    e->since_ns = fb_now_ns();
    fb_mutex_unlock(&m->mutex);
    return 0;
}

int fb_mounts_add(struct fb_mounts *mounts, const struct fb_mount_request *request,
                  struct fb_error *err)
{
    struct entry *e = fb_alloc(sizeof *e);
    int rc;

    if (!e)
        return fb_error_set(err, -ENOMEM, "out of memory");
    e->mounts = mounts;
    rc = fb_mount_check(request->source, request->mountpoint, &mounts->own, &e->source,
                        &e->mountpoint, err);
    if (rc == 0)
        rc = fb_mount_settings_copy(&e->settings, &request->settings);
    if (rc == 0)
        rc = insert_entry(mounts, e, err);
    if (rc) {
        entry_free(e);
        return fb_error_set(err, rc, "%s", fb_strerror(rc));
    }
    rc = start_entry(mounts, e, err);
    if (rc) {
        drop_entry(mounts, e);
        return rc;
    }
    fb_log_info("mounted %s on %s", e->source, e->mountpoint);
    /* It may have ended before it counted as live. */
    if (atomic_load_explicit(&e->ended, memory_order_acquire))
        mounts->changed(mounts->arg);
    return 0;
}

/* ---- removing ---- */

/* Claims a live entry for stopping, once nobody works with it. */
static int claim(struct fb_mounts *m, struct entry *e) FB_REQUIRES(m->mutex)
{
    int64_t until_ns = fb_now_ns() + USERS_WAIT_NS;

    if (e->state != LIVE)
        return -EBUSY;
    e->state = STOPPING;
    while (e->users > 0) {
        if (!fb_cond_wait(&m->idle, &m->mutex, until_ns)) {
            e->state = LIVE;
            return -EBUSY;
        }
    }
    return 0;
}

/* A claimed entry: unmounted and gone (what the door left in memory knows nothing of it), or live
 * again. */
static int stop_entry(struct fb_mounts *m, struct entry *e, bool force, struct fb_error *err)
{
    int rc = fb_mount_stop(e->mount, force);

    if (rc == FB_MOUNT_STUCK) {
        note_stuck(m);
        rc = 0;
    }
    if (rc == 0) {
        fb_log_info("unmounted %s", e->mountpoint);
        drop_entry(m, e);
        return 0;
    }
    /* Formatted while the entry is still ours. */
    if (rc == -EBUSY)
        (void)fb_error_set(err, rc, "%s is in use; end the programs that use it, or write --force",
                           e->mountpoint);
    (void)fb_error_set(err, rc, "cannot unmount %s: %s", e->mountpoint, fb_strerror(rc));
    fb_mutex_lock(&m->mutex);
    e->state = LIVE;
    fb_mutex_unlock(&m->mutex);
    return rc;
}

int fb_mounts_remove(struct fb_mounts *mounts, const char *mountpoint, bool force,
                     struct fb_error *err)
{
    struct entry *e;
    int rc = -ENOENT;

    fb_mutex_lock(&mounts->mutex);
    e = find_entry(mounts, mountpoint);
    if (e)
        rc = claim(mounts, e);
    fb_mutex_unlock(&mounts->mutex);
    if (rc == -EBUSY)
        return fb_error_set(err, rc, "%s is just being mounted or unmounted; try again",
                            mountpoint);
    return rc ? rc : stop_entry(mounts, e, force, err);
}

/* The next live entry behind `from` in the list that has ended by itself (or any), claimed. */
static struct entry *claim_next(struct fb_mounts *m, bool any, unsigned skip)
{
    struct fb_list *it;
    struct fb_list *tmp;
    struct entry *found = NULL;

    fb_mutex_lock(&m->mutex);
    FB_LIST_FOREACH (it, tmp, &m->entries) {
        struct entry *e = entry_of(it);

        /* Acquire pairs with the release in mount_ended(). */
        if (e->state != LIVE || (!any && !atomic_load_explicit(&e->ended, memory_order_acquire)))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (claim(m, e) == 0)
            found = e;
        break;
    }
    fb_mutex_unlock(&m->mutex);
    return found;
}

void fb_mounts_reap(struct fb_mounts *mounts)
{
    struct entry *e;

    while ((e = claim_next(mounts, false, 0))) {
        if (stop_entry(mounts, e, true, NULL) != 0)
            break;
    }
}

unsigned fb_mounts_remove_all(struct fb_mounts *mounts, bool force)
{
    unsigned kept = 0;
    struct entry *e;

    while ((e = claim_next(mounts, true, kept))) {
        if (stop_entry(mounts, e, force, NULL) != 0)
            kept++;
    }
    return fb_mounts_count(mounts);
}

/* ---- using ---- */

/* The live mount that holds the path, with one more user. */
static struct entry *hold_entry(struct fb_mounts *m, const char *path)
{
    struct fb_list *it;
    struct fb_list *tmp;
    struct entry *best = NULL;

    fb_mutex_lock(&m->mutex);
    FB_LIST_FOREACH (it, tmp, &m->entries) {
        struct entry *e = entry_of(it);

        if (e->state == LIVE && fb_path_below(e->mountpoint, path) &&
            (!best || strlen(e->mountpoint) > strlen(best->mountpoint)))
            best = e;
    }
    if (best)
        best->users++;
    fb_mutex_unlock(&m->mutex);
    return best;
}

static void let_go(struct fb_mounts *m, struct entry *e)
{
    fb_mutex_lock(&m->mutex);
    e->users--;
    fb_cond_broadcast(&m->idle);
    fb_mutex_unlock(&m->mutex);
}

static const char *path_below(const struct entry *e, const char *path)
{
    path += strcmp(e->mountpoint, "/") == 0 ? 0 : strlen(e->mountpoint);
    return path + strspn(path, "/");
}

int fb_mounts_evict(struct fb_mounts *mounts, const char *path, uint64_t *ret_files)
{
    struct entry *e = hold_entry(mounts, path);

    if (!e)
        return -ENOENT;
    *ret_files = fb_cache_evict(fb_mount_volume(e->mount), path_below(e, path));
    fb_mount_flush(e->mount);
    fb_log_info("evicted %llu file%s at %s", (unsigned long long)*ret_files,
                *ret_files == 1 ? "" : "s", path);
    let_go(mounts, e);
    return 0;
}

int fb_mounts_use(struct fb_mounts *mounts, const char *path, fb_volume_use_fn *use, void *arg)
{
    struct entry *e = hold_entry(mounts, path);
    int rc;

    if (!e)
        return -ENOENT;
    rc = use(arg, fb_mount_volume(e->mount), path_below(e, path), e->mountpoint);
    let_go(mounts, e);
    return rc;
}

void fb_mounts_visit(struct fb_mounts *mounts,
                     void (*visit)(void *arg, const struct fb_mount_view *view), void *arg)
{
    struct fb_list *it;
    struct fb_list *tmp;

    fb_mutex_lock(&mounts->mutex);
    FB_LIST_FOREACH (it, tmp, &mounts->entries) {
        const struct entry *e = entry_of(it);
        struct fb_mount_view view = {
            .source = e->source,
            .mountpoint = e->mountpoint,
            .settings = &e->settings,
            .live = e->state == LIVE,
        };

        if (view.live) {
            view.age_ns = fb_now_ns() - e->since_ns;
            view.volume_id = fb_volume_id(fb_mount_volume(e->mount));
            fb_source_stats(fb_volume_source(fb_mount_volume(e->mount)), &view.stats);
        }
        visit(arg, &view);
    }
    fb_mutex_unlock(&mounts->mutex);
}
