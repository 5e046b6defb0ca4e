/*
 * Walks over whole data sets: in the order of the listings, deeper ones where they stand.
 *
 *     set/  ── a/  b/  c/  d/  e/ ...     the visitor is in a/; b/, c/ and d/ are being listed
 *
 * To list one directory after the other takes two trips to the source each, which adds up to
 * minutes where it is far: longer than the job lasts that is to find its files loaded. So there the
 * next directories are listed before the visitor gets to them, as memory allows. Each level takes
 * half of what those above it have left, so that there are some on every level of a deep tree. Of
 * each the first batch of entries is held, 64 KiB or less.
 *
 *     begin ─► OPENDIR ─► READDIR ─► answered: the visitor sees the batch ─► READDIR ... ─► CLOSE
 *
 * Every job is answered or expires, and every listing is awaited before it goes. The volume is
 * entered for all of the walk, but held only while a job is sent: a source that is closed meanwhile
 * ends the jobs, and no more are sent.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "cache/dirs.h"
#include "core/clock.h"
#include "core/mem.h"

#define AHEAD_OLD (2 * FB_NS_PER_S)

struct walk {
    struct fb_volume *volume;
    fb_walk_fn *visit;
    void *arg;
    bool attrs;
    unsigned ahead_max;     /* 0: the source is near */
    unsigned ahead;         /* listings begun that the visitor has not come to */
    char path[FB_PATH_MAX]; /* where it is */
};

/* One directory. */
struct listing {
    struct fb_list link; /* among those that are ahead */
    struct walk *walk;
    size_t entry; /* where it stands in the batch of the one above */
    struct fb_event answered;
    /* Once it is answered: */
    int result;
    struct fb_source_handle *handle;
    struct fb_source_job *batch; /* NULL: there is none, or no more */
    struct fb_heard heard;       /* the batch */
    char path[];
};

/* ---- one listing ----------------------------------------------------------------------------- */

/* NULL without memory. */
static struct fb_source_job *make_job(const struct listing *l, enum fb_source_op op,
                                      void (*done)(struct fb_source_job *job))
{
    struct fb_volume *volume = l->walk->volume;
    struct fb_source_job *job = fb_source_job_new(op, op == FB_SOURCE_OPENDIR ? l->path : NULL);

    if (!job)
        return NULL;
    job->handle = l->handle;
    job->want_attrs = l->walk->attrs;
    job->max_age_ns = l->walk->attrs ? 0 : fb_meta_age_allowed(volume);
    job->deadline_ns = fb_now_ns() + volume->config.timeout_ns;
    job->done = done;
    job->arg = (void *)l;
    return job;
}

/* By the walking thread; false: the volume is being detached. */
static bool submit(const struct walk *w, struct fb_source_job *job)
{
    if (!fb_volume_hold(w->volume)) {
        fb_source_job_put(job);
        return false;
    }
    fb_source_submit(w->volume->source, job);
    fb_volume_let_go(w->volume);
    return true;
}

static void answer(struct listing *l, int result)
{
    l->result = result;
    fb_event_set(&l->answered); /* the last look at it */
}

static void batch_done(struct fb_source_job *job)
{
    struct listing *l = job->arg;
    int result = job->result;

    if (result == 0) {
        l->batch = job;
        fb_heard_answer(&l->heard, job);
    } else {
        fb_source_job_put(job);
    }
    answer(l, result);
}

static void opendir_done(struct fb_source_job *job)
{
    struct listing *l = job->arg;
    struct fb_source_job *first = NULL;
    int result = job->result;

    if (result == 0) {
        l->handle = job->handle;
        l->heard.seen_ns = fb_now_ns();
        first = make_job(l, FB_SOURCE_READDIR, batch_done);
        result = first ? 0 : -ENOMEM;
    }
    fb_source_job_put(job);
    if (first)
        fb_source_submit(l->walk->volume->source, first);
    else
        answer(l, result);
}

/* NULL without memory. */
static struct listing *begin(struct walk *w, const char *path)
{
    size_t size = strlen(path) + 1;
    struct listing *l = fb_alloc(sizeof *l + size);
    struct fb_source_job *job;

    if (!l)
        return NULL;
    l->walk = w;
    l->heard.asked = fb_cache_moment(w->volume, NULL);
    memcpy(l->path, path, size);
    fb_event_init(&l->answered);
    job = make_job(l, FB_SOURCE_OPENDIR, opendir_done);
    if (!job)
        answer(l, -ENOMEM);
    else if (!submit(w, job))
        answer(l, -ESHUTDOWN);
    return l;
}

/* Waits for what follows the batch at hand, which goes. */
static int next_batch(struct listing *l, uint64_t cookie)
{
    struct fb_source_job *last = fb_steal(l->batch), *job;
    bool at_end = last->at_end;

    fb_source_job_put(last);
    if (at_end)
        return 0;
    /* A bucket's pages may have been fetched before they are asked for. */
    if (!fb_source_is_direct(l->walk->volume->source))
        l->heard.asked = fb_cache_moment(l->walk->volume, NULL);
    l->heard.seen_ns = fb_now_ns();
    job = make_job(l, FB_SOURCE_READDIR, batch_done);
    if (!job)
        return -ENOMEM;
    job->cookie = cookie;
    fb_event_init(&l->answered);
    if (!submit(l->walk, job))
        return -ESHUTDOWN;
    fb_event_wait(&l->answered);
    return l->result;
}

/* It has been awaited. */
static void end(struct listing *l)
{
    struct fb_source_job *job = l->handle ? make_job(l, FB_SOURCE_CLOSE, fb_source_job_put) : NULL;

    /* Else the handle goes with the source. */
    if (job)
        (void)submit(l->walk, job);
    fb_source_job_put(l->batch);
    free(l);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The directories of a batch that are being listed already, in its order. */
struct ahead {
    struct fb_list listings;
    size_t next; /* entry to look at */
    unsigned count, most;
};

/* Where an entry is, in w->path; false: it is none, or too deep a path. */
static bool go_to(struct walk *w, const char *dir, const struct fb_source_dirent *d)
{
    size_t len = strlen(dir), slash = len > 0 ? 1 : 0;

    if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0 ||
        len + slash + d->name_len >= sizeof w->path)
        return false;
    memcpy(w->path, dir, len);
    if (slash)
        w->path[len] = '/';
    memcpy(w->path + len + slash, d->name, d->name_len + 1u);
    return true;
}

static void list_ahead(struct walk *w, const struct listing *l, struct ahead *a)
{
    while (a->count < a->most && a->next < l->batch->data_len) {
        const struct fb_source_dirent *d = (const void *)(l->batch->data + a->next);
        struct listing *below =
            d->type == DT_DIR && go_to(w, l->path, d) ? begin(w, w->path) : NULL;

        if (below) {
            below->entry = a->next;
            fb_list_push_back(&a->listings, &below->link);
            a->count++;
            w->ahead++;
        }
        a->next += d->length;
    }
}

static struct listing *take_first(struct walk *w, struct ahead *a)
{
    struct listing *l = FB_LIST_ENTRY(a->listings.next, struct listing, link);

    fb_list_remove(&l->link);
    a->count--;
    w->ahead--;
    return l;
}

/* The listing of the directory at an entry, whose path w->path is; NULL without memory. */
static struct listing *come_to(struct walk *w, const struct listing *l, size_t entry,
                               struct ahead *a)
{
    struct listing *below = NULL;
    char *path;

    if (!fb_list_empty(&a->listings) &&
        FB_LIST_ENTRY(a->listings.next, struct listing, link)->entry == entry)
        below = take_first(w, a);
    else
        below = begin(w, w->path);
    path = below ? below->path : NULL;
    list_ahead(w, l, a);
    if (path)
        memcpy(w->path, path, strlen(path) + 1);
    return below;
}

static int walk(struct walk *w, struct listing *l, unsigned depth);

/* What the visitor says is positive here, so that it is not taken for a failure of the source. */
static int take_batch(struct walk *w, const struct listing *l, uint64_t *ret_cookie, unsigned depth)
{
    bool deeper = depth + 1 < FB_DIRS_WALK_DEEP;
    struct ahead a = {.most = deeper ? (w->ahead_max - w->ahead) / 2 : 0};
    int rc = 0;

    fb_list_init(&a.listings);
    for (size_t at = 0; rc == 0 && at < l->batch->data_len;) {
        const struct fb_source_dirent *d = (const void *)(l->batch->data + at);
        size_t entry = at;

        at += d->length;
        if (a.next < at)
            a.next = at;
        *ret_cookie = d->cookie;
        if (!go_to(w, l->path, d))
            continue;
        rc = w->visit(w->arg, &(struct fb_walked){.volume = w->volume,
                                                  .path = w->path,
                                                  .type = d->type,
                                                  .attr = d->has_attr ? &d->attr : NULL,
                                                  .heard = l->heard});
        if (rc == 0 && d->type == DT_DIR && deeper) {
            struct listing *below = come_to(w, l, entry, &a);

            rc = below ? walk(w, below, depth + 1) : 0;
            if (rc < 0 && rc != -ESHUTDOWN)
                rc = 0;
        }
    }
    while (!fb_list_empty(&a.listings)) {
        struct listing *left = take_first(w, &a);

        fb_event_wait(&left->answered);
        end(left);
    }
    return rc;
}

/* What lay there for too long until the visitor came is listed again: it is told to others as what
 * the source says now. -ESHUTDOWN: the volume is being detached. */
static int await(struct walk *w, struct listing **l)
{
    fb_event_wait(&(*l)->answered);
    if (!fb_volume_hold(w->volume))
        return -ESHUTDOWN;
    fb_volume_let_go(w->volume);
    if ((*l)->result == 0 && fb_now_ns() - (*l)->heard.seen_ns > AHEAD_OLD) {
        struct listing *again = begin(w, (*l)->path);

        if (!again)
            return -ENOMEM;
        end(*l);
        *l = again;
        fb_event_wait(&again->answered);
    }
    return (*l)->result;
}

/* The listing goes. */
static int walk(struct walk *w, struct listing *l, unsigned depth)
{
    uint64_t cookie = 0;
    int rc = await(w, &l);

    while (rc == 0 && l->batch && l->batch->data_len > 0) {
        rc = take_batch(w, l, &cookie, depth);
        if (rc == 0)
            rc = next_batch(l, cookie);
    }
    end(l);
    return rc;
}

struct visitor {
    fb_walk_fn *visit;
    void *arg;
    int result;
};

static int visit_once(void *arg, const struct fb_walked *walked)
{
    struct visitor *v = arg;

    v->result = v->visit(v->arg, walked);
    return v->result != 0;
}

static unsigned ahead_max(struct fb_cache *cache, uint16_t source)
{
    return fb_pipe_is_far(cache, source) ? fb_dirs_at_once(cache->config.memory_bytes) : 0;
}

int fb_dirs_walk(struct fb_cache *cache, uint16_t source, const char *path, bool attrs,
                 fb_walk_fn *visit, void *arg)
{
    struct visitor v = {.visit = visit, .arg = arg};
    struct fb_volume *volume;
    struct listing *first;
    struct walk *w;
    int rc;

    if (strlen(path) >= FB_PATH_MAX)
        return -ENAMETOOLONG;
    w = fb_alloc(sizeof *w);
    volume = w ? fb_volume_hold_any(cache, source) : NULL;
    if (!volume) {
        rc = w ? -ENODEV : -ENOMEM;
        free(w);
        return rc;
    }
    fb_volume_enter(volume);
    fb_volume_let_go(volume);
    *w = (struct walk){.volume = volume,
                       .visit = visit_once,
                       .arg = &v,
                       .attrs = attrs,
                       .ahead_max = ahead_max(cache, source)};
    first = begin(w, path);
    rc = first ? walk(w, first, 0) : -ENOMEM;
    fb_volume_leave(volume);
    free(w);
    return v.result != 0 ? v.result : rc;
}
