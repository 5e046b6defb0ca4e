#include "daemon/mounts.h"

#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/paths.h"
#include "daemon/roster.h"
#include "doors/fuse/mount.h"

#define USERS_WAIT_NS (30 * FB_NS_PER_S)

struct entry {
    struct fb_member member;
    struct fb_mounts *mounts;
    char *source;
    char *mountpoint;
    struct fb_mount_settings settings;
    struct fb_mount *mount;
    _Atomic bool ended; /* release by the door, acquire by reap() */
};

struct fb_mounts {
    struct fb_cache *cache;
    struct fb_own_dirs own;
    struct fb_roster roster;
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
    return FB_LIST_ENTRY(link, struct entry, member.link);
}

int fb_mounts_create(struct fb_cache *cache, const struct fb_own_dirs *own,
                     void (*changed)(void *arg), void *arg, struct fb_mounts **ret_mounts)
{
    struct fb_mounts *m = fb_alloc(sizeof *m);

    if (!m)
        return -ENOMEM;
    m->cache = cache;
    m->own = *own;
    fb_roster_init(&m->roster, changed, arg);
    *ret_mounts = m;
    return 0;
}

void fb_mounts_destroy(struct fb_mounts *mounts)
{
    if (!mounts)
        return;
    fb_roster_destroy(&mounts->roster);
    free(mounts);
}

/* ---- the list ---- */

static struct entry *find_entry(struct fb_mounts *m, const char *mountpoint)
    FB_REQUIRES(m->roster.mutex)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, &m->roster.members) {
        if (strcmp(entry_of(it)->mountpoint, mountpoint) == 0)
            return entry_of(it);
    }
    return NULL;
}

static int insert_entry(struct fb_mounts *m, struct entry *e, struct fb_error *err)
{
    const struct entry *other;
    int rc = 0;

    fb_mutex_lock(&m->roster.mutex);
    other = find_entry(m, e->mountpoint);
    if (other) {
        rc = fb_error_set(err, -EBUSY, "%s is mounted already, with the source %s", e->mountpoint,
                          other->source);
    } else if (m->roster.count == FB_CONFIG_MOUNTS_MAX) {
        rc = fb_error_set(err, -ENOSPC, "the daemon has %d mounts and takes no more",
                          FB_CONFIG_MOUNTS_MAX);
    } else {
        fb_roster_enter(&m->roster, &e->member);
    }
    fb_mutex_unlock(&m->roster.mutex);
    return rc;
}

static void drop_entry(struct fb_mounts *m, struct entry *e)
{
    fb_roster_leave(&m->roster, &e->member);
    entry_free(e);
    fb_roster_changed(&m->roster);
}

unsigned fb_mounts_count(struct fb_mounts *mounts)
{
    return fb_roster_count(&mounts->roster);
}

bool fb_mounts_stuck(struct fb_mounts *mounts)
{
    return fb_roster_stuck(&mounts->roster);
}

/* ---- adding ---- */

/* Of the door's threads: only a note for the main thread. */
static void mount_ended(void *arg)
{
    struct entry *e = arg;

    /* Release pairs with the acquire in take_ended(). */
    atomic_store_explicit(&e->ended, true, memory_order_release);
    fb_roster_changed(&e->mounts->roster);
}

static int start_entry(struct fb_mounts *m, struct entry *e, struct fb_error *err)
{
    int rc = fb_source_dir_mount(m->cache, e->source, e->mountpoint, &e->settings, &m->own,
                                 mount_ended, e, &e->mount, err);

    if (rc == FB_MOUNT_STUCK) {
        fb_roster_note_stuck(&m->roster);
        rc = -EIO;
    }
    if (rc)
        return fb_error_set(err, rc, "cannot mount on %s: %s", e->mountpoint, fb_strerror(rc));
    fb_roster_live(&m->roster, &e->member);
    return 0;
}

/* A prefix need not exist to be written to; one that is misspelt looks the same. */
static void look_for_typo(const struct entry *e, struct fb_error *note)
{
    if (!fb_source_is_bare(fb_volume_source(fb_mount_volume(e->mount))))
        return;
    (void)fb_error_set(note, 0, "nothing lies below %s so far; is that its name?", e->source);
    fb_log_warn("%s", note->text);
}

int fb_mounts_add(struct fb_mounts *mounts, const struct fb_mount_request *request,
                  struct fb_error *note, struct fb_error *err)
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
    look_for_typo(e, note);
    /* It may have ended before it counted as live. */
    if (atomic_load_explicit(&e->ended, memory_order_acquire))
        fb_roster_changed(&mounts->roster);
    return 0;
}

/* ---- removing ---- */

/* Claims a live entry for stopping, once nobody works with it. */
static int claim(struct fb_mounts *m, struct entry *e) FB_REQUIRES(m->roster.mutex)
{
    int64_t until_ns = fb_now_ns() + USERS_WAIT_NS;

    if (e->member.state != FB_MEMBER_LIVE)
        return -EBUSY;
    e->member.state = FB_MEMBER_STOPPING;
    while (e->member.users > 0) {
        if (!fb_cond_wait(&m->roster.moved, &m->roster.mutex, until_ns)) {
            e->member.state = FB_MEMBER_LIVE;
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
        fb_roster_note_stuck(&m->roster);
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
    fb_roster_live(&m->roster, &e->member);
    return rc;
}

int fb_mounts_remove(struct fb_mounts *mounts, const char *mountpoint, bool force,
                     struct fb_error *err)
{
    struct entry *e;
    int rc = -ENOENT;

    fb_mutex_lock(&mounts->roster.mutex);
    e = find_entry(mounts, mountpoint);
    if (e)
        rc = claim(mounts, e);
    fb_mutex_unlock(&mounts->roster.mutex);
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

    fb_mutex_lock(&m->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &m->roster.members) {
        struct entry *e = entry_of(it);

        /* Acquire pairs with the release in mount_ended(). */
        if (e->member.state != FB_MEMBER_LIVE ||
            (!any && !atomic_load_explicit(&e->ended, memory_order_acquire)))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (claim(m, e) == 0)
            found = e;
        break;
    }
    fb_mutex_unlock(&m->roster.mutex);
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

    fb_mutex_lock(&m->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &m->roster.members) {
        struct entry *e = entry_of(it);

        if (e->member.state == FB_MEMBER_LIVE && fb_path_below(e->mountpoint, path) &&
            (!best || strlen(e->mountpoint) > strlen(best->mountpoint)))
            best = e;
    }
    if (best)
        best->member.users++;
    fb_mutex_unlock(&m->roster.mutex);
    return best;
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
    fb_roster_let_go(&mounts->roster, &e->member);
    return 0;
}

int fb_mounts_use(struct fb_mounts *mounts, const char *path, fb_volume_use_fn *use, void *arg)
{
    struct entry *e = hold_entry(mounts, path);
    int rc;

    if (!e)
        return -ENOENT;
    rc = use(arg, fb_mount_volume(e->mount), path_below(e, path), e->mountpoint);
    fb_roster_let_go(&mounts->roster, &e->member);
    return rc;
}

void fb_mounts_visit(struct fb_mounts *mounts,
                     void (*visit)(void *arg, const struct fb_mount_view *view), void *arg)
{
    struct fb_list *it;
    struct fb_list *tmp;

    fb_mutex_lock(&mounts->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &mounts->roster.members) {
        const struct entry *e = entry_of(it);
        struct fb_mount_view view = {
            .source = e->source,
            .mountpoint = e->mountpoint,
            .settings = &e->settings,
            .live = e->member.state == FB_MEMBER_LIVE,
        };

        if (view.live) {
            view.age_ns = fb_now_ns() - e->member.since_ns;
            view.volume_id = fb_volume_id(fb_mount_volume(e->mount));
            fb_source_stats(fb_volume_source(fb_mount_volume(e->mount)), &view.stats);
        }
        visit(arg, &view);
    }
    fb_mutex_unlock(&mounts->roster.mutex);
}
