/*
 * Walks over whole data sets: listings one after the other, deeper ones where they stand.
 *
 * Each job is awaited. The volume is entered for all of the walk, but held only while a job is
 * sent: a source that is closed meanwhile ends the job, and the next one is not sent.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "cache/dirs.h"
#include "core/clock.h"
#include "core/mem.h"

struct walk {
    struct fb_volume *volume;
    fb_walk_fn *visit;
    void *arg;
    bool attrs;
    char path[FB_PATH_MAX]; /* where it is */
};

static void answered(struct fb_source_job *job)
{
    fb_event_set(job->arg);
}

/* The job with its answer, or NULL; *ret_result says why. */
static struct fb_source_job *ask(struct walk *w, enum fb_source_op op,
                                 struct fb_source_handle *handle, uint64_t cookie, int *ret_result)
{
    struct fb_source_job *job = fb_source_job_new(op, op == FB_SOURCE_OPENDIR ? w->path : NULL);
    struct fb_event event;

    *ret_result = -ENOMEM;
    if (!job)
        return NULL;
    *ret_result = -ESHUTDOWN;
    if (!fb_volume_hold(w->volume)) {
        fb_source_job_put(job);
        return NULL;
    }
    job->handle = handle;
    job->cookie = cookie;
    job->want_attrs = w->attrs;
    job->max_age_ns = fb_meta_age_allowed(w->volume);
    job->deadline_ns = fb_now_ns() + w->volume->config.timeout_ns;
    job->done = answered;
    job->arg = &event;
    fb_event_init(&event);
    fb_source_submit(w->volume->source, job);
    fb_volume_let_go(w->volume);
    fb_event_wait(&event);
    *ret_result = job->result;
    if (job->result == 0)
        return job;
    fb_source_job_put(job);
    return NULL;
}

static int walk(struct walk *w, size_t len, unsigned depth);

static int take_entry(struct walk *w, size_t len, const struct fb_source_dirent *d, uint64_t asked,
                      unsigned depth)
{
    size_t slash = len > 0 ? 1 : 0;
    struct fb_walked walked = {.volume = w->volume,
                               .path = w->path,
                               .type = d->type,
                               .attr = d->has_attr ? &d->attr : NULL,
                               .asked = asked};
    int rc;

    if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0 ||
        len + slash + d->name_len >= sizeof w->path)
        return 0;
    if (slash)
        w->path[len] = '/';
    memcpy(w->path + len + slash, d->name, d->name_len + 1u);
    rc = w->visit(w->arg, &walked);
    if (rc == 0 && d->type == DT_DIR && depth + 1 < FB_DIRS_WALK_DEEP) {
        rc = walk(w, len + slash + d->name_len, depth + 1);
        if (rc < 0 && rc != -ESHUTDOWN)
            rc = 0;
    }
    w->path[len] = '\0';
    return rc;
}

/* What the visitor says is positive here, so that it is not taken for a failure of the source. */
static int walk(struct walk *w, size_t len, unsigned depth)
{
    int rc, ignored;
    struct fb_source_job *job = ask(w, FB_SOURCE_OPENDIR, NULL, 0, &rc);
    struct fb_source_handle *handle = job ? job->handle : NULL;
    uint64_t cookie = 0;
    bool more = handle != NULL;

    fb_source_job_put(job);
    while (rc == 0 && more) {
        uint64_t asked = fb_cache_moment(w->volume, NULL);

        job = ask(w, FB_SOURCE_READDIR, handle, cookie, &rc);
        more = job && job->data_len > 0;
        for (size_t at = 0; rc == 0 && more && at < job->data_len;) {
            const struct fb_source_dirent *d = (const void *)(job->data + at);

            rc = take_entry(w, len, d, asked, depth);
            cookie = d->cookie;
            at += d->length;
        }
        fb_source_job_put(job);
    }
    if (handle)
        fb_source_job_put(ask(w, FB_SOURCE_CLOSE, handle, 0, &ignored));
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

int fb_dirs_walk(struct fb_cache *cache, uint16_t source, const char *path, bool attrs,
                 fb_walk_fn *visit, void *arg)
{
    struct visitor v = {.visit = visit, .arg = arg};
    struct fb_volume *volume;
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
    *w = (struct walk){.volume = volume, .visit = visit_once, .arg = &v, .attrs = attrs};
    memcpy(w->path, path, strlen(path) + 1);
    rc = walk(w, strlen(path), 0);
    fb_volume_leave(volume);
    free(w);
    return v.result != 0 ? v.result : rc;
}
