/*
 * Names: look-ups answered from the file table, or by the source.
 *
 *     lookup(path):
 *         record current and valid ──────────► answer
 *         a question for this path under way ► wait for its answer (unless a fresh one is demanded)
 *         else ask the source:
 *             attributes ───► same version: valid for another TTL
 *                             other version: new record; the old one's items go, the doors are told
 *             no such file ─► record and items go
 *             outage ───────► what is known stays true for a second; unknown: the error
 *
 * A file too young for its version to be trusted (proto/file.h) is not believed beyond this one
 * answer: it may be written to without showing it. forget() makes the next look-up ask, too: those
 * under way when it is called may have asked before the change, and are believed once only.
 *
 * Several mounts of one source share its records. A record is valid for the shortest of their TTLs,
 * and when it is retired all their doors are told.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define SHED_TRIES   8
#define HEARD_OLD_NS (2 * FB_NS_PER_S) /* younger, it may be believed once whatever the TTL */

struct question {
    struct fb_list link; /* in the table */
    struct fb_list waiters;
    struct fb_volume *volume;
    char *path;
    uint64_t asked; /* the moment */
    int64_t asked_ns;
    bool shared; /* others may wait for it */
};

static struct fb_list *bucket(struct fb_volume *volume, const char *path)
{
    uint64_t hash = fb_path_hash(volume->id, path, strlen(path));

    return &volume->cache->lookups[hash % FB_LOOKUP_BUCKETS];
}

/* A record that is no longer current: its bytes go, and the door may tell the kernel. */
static void retire(struct fb_volume *volume, uint32_t old)
{
    struct fb_cache *cache = volume->cache;

    fb_store_forget(cache->store, old);
    fb_volumes_retired(cache, volume->id, old);
    fb_files_unref(cache->files, old, 1);
}

static _Atomic uint32_t *writers_of(const struct fb_volume *volume, const struct fb_attr *attr)
{
    uint64_t hash = fb_mix64(attr->ino ^ fb_mix64(attr->dev ^ fb_mix64(volume->id)));

    return &volume->cache->writers[hash % FB_WRITER_BUCKETS];
}

void fb_cache_writing(struct fb_volume *volume, const struct fb_attr *attr, bool begins)
{
    /* Who learns looks at the count first and then whether anything was changed since it asked; we
     * count first and then tell of a change: one of the two sees the other. */
    if (begins)
        atomic_fetch_add(writers_of(volume, attr), 1);
    else
        atomic_fetch_sub(writers_of(volume, attr), 1);
}

/* How long what the source says of it may be believed. */
static int64_t ttl_of(const struct fb_volume *volume, const struct fb_attr *attr)
{
    if (S_ISREG(attr->mode) && !fb_version_settled(&attr->version, fb_wall_ns()))
        return 0;
    if (S_ISREG(attr->mode) && attr->nlink > 1 && atomic_load(writers_of(volume, attr)) > 0)
        return 0;
    return atomic_load_explicit(&volume->ttl_ns, memory_order_relaxed);
}

static int learn(struct fb_volume *volume, const char *path, const struct fb_attr *attr,
                 uint32_t *ret_file)
{
    struct fb_cache *cache = volume->cache;
    int64_t until_ns = fb_now_ns() + ttl_of(volume, attr);
    uint32_t old = FB_FILE_NONE;
    int rc;

    rc = fb_files_put(cache->files, volume->id, path, attr, until_ns, ret_file, &old);

    /* Every record of the table has items: let the items of a segment go, and their records. */
    for (int i = 0; i < SHED_TRIES && rc == -ENOMEM && fb_place_shed(cache) == 0; i++)
        rc = fb_files_put(cache->files, volume->id, path, attr, until_ns, ret_file, &old);
    if (rc < 0)
        return rc;
    if (rc == FB_FILES_CHANGED) {
        fb_metric_add(&cache->metrics, FB_CM_CHANGED, 1);
        retire(volume, old);
    }
    return 0;
}

/* Nothing was heard from the source: what is known stays true for a moment, unless somebody has
 * said that it is not. */
static int believe(struct fb_volume *volume, const char *path, int result, uint32_t *ret_file)
{
    struct fb_cache *cache = volume->cache;
    uint32_t file = fb_files_find(cache->files, volume->id, path);

    if (file == FB_FILE_NONE)
        return result;
    if (fb_files_valid_until(cache->files, file) == FB_FILES_OUTDATED_NS) {
        fb_files_unref(cache->files, file, 1);
        return result;
    }
    fb_files_set_valid_until(cache->files, file, fb_now_ns() + FB_OUTAGE_GRACE_NS);
    fb_metric_add(&cache->metrics, FB_CM_OUTAGE_ANSWERS, 1);
    *ret_file = file;
    return 0;
}

int fb_meta_settle(struct fb_volume *volume, const char *path, int result,
                   const struct fb_attr *attr, uint32_t *ret_file)
{
    uint32_t old;

    if (result == 0)
        return learn(volume, path, attr, ret_file);
    if (fb_source_is_outage(result))
        return believe(volume, path, result, ret_file);
    if (result == -ENOENT || result == -ENOTDIR) {
        old = fb_files_remove(volume->cache->files, volume->id, path);
        if (old != FB_FILE_NONE)
            retire(volume, old);
    }
    return result;
}

#define ANY_PATH (1ull << 63) /* in a moment: it holds for all paths */

static _Atomic uint64_t *forgets_at(struct fb_volume *volume, const char *path)
{
    uint64_t hash = fb_path_hash(volume->id, path, strlen(path));

    return &volume->cache->forgets_at[hash % FB_FORGET_BUCKETS];
}

void fb_meta_forgetting(struct fb_volume *volume, const char *path)
{
    struct fb_cache *cache = volume->cache;

    atomic_store(&cache->changed_ns, fb_now_ns());
    atomic_fetch_add(path ? forgets_at(volume, path) : &cache->forgets, 1);
    atomic_fetch_add(&cache->forgets_all, 1);
}

/* Counts only grow, so equal sums are equal counts. */
uint64_t fb_cache_moment(struct fb_volume *volume, const char *path)
{
    struct fb_cache *cache = volume->cache;

    if (!path)
        return atomic_load(&cache->forgets_all) | ANY_PATH;
    return atomic_load(&cache->forgets) + atomic_load(forgets_at(volume, path));
}

/* Whoever changes something counts first and then looks for the record: one of us sees the other.
 */
static void doubt(struct fb_volume *volume, const char *path, uint64_t asked, uint32_t file)
{
    if (asked != fb_cache_moment(volume, asked & ANY_PATH ? NULL : path))
        fb_files_set_valid_until(volume->cache->files, file, FB_FILES_OUTDATED_NS);
}

int fb_cache_learn(struct fb_volume *volume, const char *path, const struct fb_attr *attr,
                   uint64_t asked, uint32_t *ret_file)
{
    int rc = learn(volume, path, attr, ret_file);

    if (rc == 0)
        doubt(volume, path, asked, *ret_file);
    return rc;
}

int fb_cache_hear(struct fb_volume *volume, const char *path, const struct fb_attr *attr,
                  const struct fb_heard *heard, uint32_t *ret_file)
{
    struct fb_cache *cache = volume->cache;
    int64_t ttl_ns = ttl_of(volume, attr), age_ns = fb_now_ns() - heard->seen_ns;
    uint32_t old;
    int rc;

    if (age_ns > ttl_ns && age_ns > HEARD_OLD_NS)
        return -ESTALE;
    rc =
        fb_files_hear(cache->files, volume->id, path, attr, heard->seen_ns, ttl_ns, ret_file, &old);
    if (rc < 0)
        return rc;
    if (rc == FB_FILES_CHANGED) {
        fb_metric_add(&cache->metrics, FB_CM_CHANGED, 1);
        retire(volume, old);
    }
    doubt(volume, path, heard->asked, *ret_file);
    return 0;
}

int fb_cache_aside(struct fb_volume *volume, const char *path, const struct fb_attr *attr,
                   uint32_t *ret_file)
{
    struct fb_cache *cache = volume->cache;
    int rc = fb_files_put_aside(cache->files, volume->id, path, attr, ret_file);

    for (int i = 0; i < SHED_TRIES && rc == -ENOMEM && fb_place_shed(cache) == 0; i++)
        rc = fb_files_put_aside(cache->files, volume->id, path, attr, ret_file);
    return rc;
}

static void answer(struct fb_lookup *lookup, int result, uint32_t file)
{
    struct fb_files *files = lookup->volume->cache->files;

    lookup->result = result;
    lookup->file = FB_FILE_NONE;
    if (result == 0) {
        lookup->file = file;
        lookup->valid_until_ns = fb_files_valid_until(files, file);
        fb_files_attr(files, file, &lookup->attr);
    }
    lookup->done(lookup);
}

static void question_free(struct question *q)
{
    free(q->path);
    free(q);
}

static void stat_done(struct fb_source_job *job)
{
    struct question *q = job->arg;
    struct fb_volume *volume = q->volume;
    struct fb_cache *cache = volume->cache;
    struct fb_list waiters, *it, *tmp;
    uint32_t file = FB_FILE_NONE;
    int result;

    if (job->result == 0)
        fb_pipe_stat(volume, fb_now_ns() - q->asked_ns);
    result = fb_meta_settle(volume, q->path, job->result, &job->attr, &file);
    if (job->result == 0 && file != FB_FILE_NONE && job->age_ns > 0)
        fb_files_set_valid_until(cache->files, file,
                                 fb_files_valid_until(cache->files, file) - job->age_ns);
    if (file != FB_FILE_NONE && q->asked != fb_cache_moment(volume, q->path))
        fb_files_set_valid_until(cache->files, file, FB_FILES_OUTDATED_NS);
    fb_list_init(&waiters);
    fb_mutex_lock(&cache->meta_lock);
    fb_list_remove(&q->link);
    fb_list_splice(&waiters, &q->waiters);
    fb_mutex_unlock(&cache->meta_lock);
    FB_LIST_FOREACH (it, tmp, &waiters) {
        fb_list_remove(it);
        if (file != FB_FILE_NONE)
            fb_files_ref(cache->files, file, 1);
        answer(FB_LIST_ENTRY(it, struct fb_lookup, link), result, file);
    }
    if (file != FB_FILE_NONE)
        fb_files_unref(cache->files, file, 1);
    question_free(q);
    fb_source_job_put(job);
    fb_volume_leave(volume);
}

/* How old what is learned of a path for the first time may be: not older than a record may be, nor
 * than the last change that was made through a door. */
int64_t fb_meta_age_allowed(struct fb_volume *volume)
{
    int64_t ttl_ns = atomic_load_explicit(&volume->ttl_ns, memory_order_relaxed);
    int64_t since_ns = fb_now_ns() - atomic_load(&volume->cache->changed_ns);

    return ttl_ns < since_ns ? ttl_ns : since_ns;
}

/* What was there when last seen: a source may need to ask less. */
static void tell_known(struct fb_volume *volume, bool revalidate, struct fb_source_job *job)
{
    struct fb_files *files = volume->cache->files;
    uint32_t file = fb_files_find(files, volume->id, job->path);
    struct fb_attr attr;

    if (file == FB_FILE_NONE) {
        job->max_age_ns = revalidate ? 0 : fb_meta_age_allowed(volume);
        return;
    }
    fb_files_attr(files, file, &attr);
    fb_files_unref(files, file, 1);
    if (!S_ISREG(attr.mode))
        return;
    job->expected = attr.version;
    job->expect = &job->expected;
}

/* Joins a question under way, or asks. */
static int ask(struct fb_lookup *lookup)
{
    struct fb_volume *volume = lookup->volume;
    struct fb_cache *cache = volume->cache;
    bool revalidate = lookup->revalidate;
    bool shared = !revalidate && atomic_load_explicit(&volume->ttl_ns, memory_order_relaxed) > 0;
    struct question *q = fb_alloc(sizeof *q);
    char *path = fb_strdup(lookup->path);
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_STAT, lookup->path);
    struct fb_list *it, *tmp;

    if (!q || !path || !job) {
        free(q);
        free(path);
        fb_source_job_put(job);
        return -ENOMEM;
    }
    *q = (struct question){.volume = volume,
                           .path = path,
                           .asked = fb_cache_moment(volume, path),
                           .asked_ns = fb_now_ns(),
                           .shared = shared};
    fb_list_init(&q->link);
    fb_list_init(&q->waiters);
    job->caller = lookup->caller;
    job->deadline_ns = lookup->deadline_ns;
    job->done = stat_done;
    job->arg = q;
    fb_volume_enter(volume); /* left in stat_done */
    fb_mutex_lock(&cache->meta_lock);
    if (shared) {
        FB_LIST_FOREACH (it, tmp, bucket(volume, path)) {
            struct question *other = FB_LIST_ENTRY(it, struct question, link);

            if (!other->shared || other->volume != volume || other->asked != q->asked ||
                strcmp(other->path, path) != 0)
                continue;
            fb_list_push_back(&other->waiters, &lookup->link);
            fb_mutex_unlock(&cache->meta_lock);
            question_free(q);
            fb_source_job_put(job);
            fb_volume_leave(volume);
            return 0;
        }
    }
    fb_list_push_back(bucket(volume, path), &q->link);
    fb_list_push_back(&q->waiters, &lookup->link);
    fb_mutex_unlock(&cache->meta_lock);
    /* From here on the look-up may be over: its caller may have been killed. */
    fb_metric_add(&cache->metrics, FB_CM_STATS, 1);
    tell_known(volume, revalidate, job);
    fb_source_submit(volume->source, job);
    return 0;
}

void fb_cache_lookup(struct fb_lookup *lookup)
{
    struct fb_volume *volume = lookup->volume;
    struct fb_files *files = volume->cache->files;
    int64_t now_ns = fb_now_ns();
    uint32_t file = FB_FILE_NONE;
    int rc;

    if (lookup->deadline_ns == 0)
        lookup->deadline_ns = now_ns + volume->config.timeout_ns;
    if (strlen(lookup->path) >= FB_PATH_MAX) {
        answer(lookup, -ENAMETOOLONG, FB_FILE_NONE);
        return;
    }
    if (!lookup->revalidate)
        file = fb_files_find(files, volume->id, lookup->path);
    if (file != FB_FILE_NONE && fb_files_valid_until(files, file) > now_ns) {
        answer(lookup, 0, file);
        return;
    }
    if (file != FB_FILE_NONE)
        fb_files_unref(files, file, 1);
    rc = ask(lookup);
    if (rc < 0)
        answer(lookup, rc, FB_FILE_NONE);
}

void fb_cache_forget(struct fb_volume *volume, const char *path)
{
    struct fb_cache *cache = volume->cache;
    uint32_t file;

    /* First, so that a question answered from here on shows it. */
    fb_meta_forgetting(volume, path);
    file = fb_files_find(cache->files, volume->id, path);
    if (file == FB_FILE_NONE)
        return;
    fb_files_set_valid_until(cache->files, file, FB_FILES_OUTDATED_NS);
    fb_files_unref(cache->files, file, 1);
}

/* ---- changes through a door ---- */

static void drop(struct fb_volume *volume, const char *path)
{
    uint32_t old = fb_files_remove(volume->cache->files, volume->id, path);

    if (old != FB_FILE_NONE)
        retire(volume, old);
}

struct links {
    struct fb_volume *volume;
    uint64_t dev;
    uint64_t ino;
};

static void drop_link(void *arg, uint32_t file)
{
    const struct links *l = arg;
    struct fb_files *files = l->volume->cache->files;
    struct fb_attr attr;

    fb_files_attr(files, file, &attr);
    if (!S_ISDIR(attr.mode) && attr.ino == l->ino && attr.dev == l->dev)
        drop(l->volume, fb_files_path(files, file, NULL));
    fb_files_unref(files, file, 1);
}

/* A walk over all records of the source: files with several names are few. */
static void drop_links(struct fb_volume *volume, const struct fb_attr *attr)
{
    struct links l = {.volume = volume, .dev = attr->dev, .ino = attr->ino};

    if (S_ISDIR(attr->mode) || attr->nlink < 2)
        return;
    fb_meta_forgetting(volume, NULL);
    fb_files_visit(volume->cache->files, volume->id, "", drop_link, &l);
}

void fb_cache_changed(struct fb_volume *volume, const char *path, const struct fb_attr *attr)
{
    struct fb_cache *cache = volume->cache;
    struct fb_attr before = {.nlink = 0};
    uint32_t old;

    /* First, so that a question answered from here on shows it. */
    fb_meta_forgetting(volume, path);
    fb_dirs_changed(cache->dirs, volume->id, path);
    old = fb_files_remove(cache->files, volume->id, path);
    if (old != FB_FILE_NONE) {
        fb_files_attr(cache->files, old, &before);
        retire(volume, old);
    }
    if (attr)
        drop_links(volume, attr);
    else
        drop_links(volume, &before);
}

static void drop_visited(void *arg, uint32_t file)
{
    struct fb_volume *volume = arg;
    struct fb_files *files = volume->cache->files;

    drop(volume, fb_files_path(files, file, NULL));
    fb_files_unref(files, file, 1);
}

void fb_cache_changed_below(struct fb_volume *volume, const char *path)
{
    fb_meta_forgetting(volume, NULL);
    fb_dirs_changed(volume->cache->dirs, volume->id, path);
    fb_files_visit(volume->cache->files, volume->id, path, drop_visited, volume);
}

void fb_meta_cancel(struct fb_cache *cache)
{
    struct fb_list cancelled, *it, *tmp, *w, *wtmp;

    fb_list_init(&cancelled);
    fb_mutex_lock(&cache->meta_lock);
    for (unsigned i = 0; i < FB_LOOKUP_BUCKETS; i++) {
        FB_LIST_FOREACH (it, tmp, &cache->lookups[i]) {
            struct question *q = FB_LIST_ENTRY(it, struct question, link);

            FB_LIST_FOREACH (w, wtmp, &q->waiters) {
                struct fb_lookup *lookup = FB_LIST_ENTRY(w, struct fb_lookup, link);

                if (!fb_cancelled(lookup->cancel, &lookup->caller))
                    continue;
                fb_list_remove(w);
                fb_list_push_back(&cancelled, w);
            }
        }
    }
    fb_mutex_unlock(&cache->meta_lock);
    FB_LIST_FOREACH (it, tmp, &cancelled) {
        fb_list_remove(it);
        answer(FB_LIST_ENTRY(it, struct fb_lookup, link), -EINTR, FB_FILE_NONE);
    }
}

/* ---- for those who can wait ---- */

static void wake(struct fb_lookup *lookup)
{
    fb_event_set(lookup->arg);
}

int fb_cache_stat(struct fb_volume *volume, const char *path, uint32_t *ret_file,
                  struct fb_attr *ret_attr)
{
    struct fb_event answered;
    struct fb_lookup lookup = {.volume = volume, .path = path, .done = wake, .arg = &answered};

    fb_event_init(&answered);
    fb_cache_lookup(&lookup);
    fb_event_wait(&answered);
    if (lookup.result == 0) {
        *ret_file = lookup.file;
        if (ret_attr)
            *ret_attr = lookup.attr;
    }
    return lookup.result;
}
