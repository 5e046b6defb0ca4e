/*
 * LOOKUP: a name in a directory becomes a node. Also FORGET, its opposite.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct lookup_request {
    struct fb_lookup lookup;
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    uint32_t parent;
    pthread_t thread; /* that took it in */
    char path[];
};

/* The kernel may believe in an absence, too, but not for long: somebody may wait for the file; and
 * not when somebody writes what will be there. */
static void reply_absent(struct fb_mount *mount, fuse_req_t req, const char *path)
{
    struct fuse_entry_param entry = {.ino = 0};

    if (!fb_live_is_written(mount, path))
        entry.entry_timeout = (double)mount->config.metadata_ttl_ns * 1e-9;
    if (!fb_mount_is_static(mount) && entry.entry_timeout > FB_FUSE_NEGATIVE_MAX_S)
        entry.entry_timeout = FB_FUSE_NEGATIVE_MAX_S;
    if (entry.entry_timeout <= 0)
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_entry(req, &entry);
}

/* Takes the look-up's reference. */
static void reply_entry(struct lookup_request *r)
{
    struct fb_mount *mount = r->mount;
    struct fb_lookup *lookup = &r->lookup;
    uint32_t id = lookup->file;
    /* A mount that is written to may change the file while we reply. */
    bool watch = fb_mount_is_static(mount) || !mount->config.read_only;
    struct fuse_entry_param entry;
    int rc;

    /* Held over the reply, for the last look at it below. */
    if (watch)
        fb_files_ref(mount->files, id, 1);
    rc = fb_entry_make(mount, id, r->parent, &lookup->attr, lookup->valid_until_ns, &entry);
    if (rc < 0)
        fuse_reply_err(r->req, -rc);
    else if (fuse_reply_entry(r->req, &entry) != 0)
        fb_entry_forget(mount, id, 1); /* interrupted: the kernel never heard of it */
    else if (watch && fb_entry_outdated(mount, id, lookup->valid_until_ns))
        /* Evicted or changed while we replied: the invalidation may have come before the reply,
         * and there is no time-out, or a long one, to make up for it. */
        fb_notifier_retired(mount->notifier, id);
    if (watch)
        fb_files_unref(mount->files, id, 1);
}

/* Answers, and frees the request. */
static void reply(struct lookup_request *r)
{
    struct fb_mount *mount = r->mount;
    struct fb_lookup *lookup = &r->lookup;

    if (lookup->result == 0)
        reply_entry(r);
    else if (lookup->result == -ENOENT)
        reply_absent(mount, r->req, r->path);
    else
        fuse_reply_err(r->req, -lookup->result);
    if (lookup->result == -ENOMEM)
        fb_notifier_shed(mount->notifier, true);
    fb_request_free(mount, r);
}

struct late_reply {
    struct fb_meanwhile meanwhile;
    struct lookup_request *request; /* NULL: answered */
};

static void reply_meanwhile(struct fb_meanwhile *self)
{
    struct late_reply *late = FB_CONTAINER_OF(self, struct late_reply, meanwhile);

    reply(fb_steal(late->request));
}

static void lookup_done(struct fb_lookup *lookup)
{
    struct lookup_request *r = FB_CONTAINER_OF(lookup, struct lookup_request, lookup);
    struct fb_mount *mount = r->mount;
    struct late_reply late = {.meanwhile.run = reply_meanwhile, .request = r};

    fb_interruptible(r->req, NULL);
    /* In the thread that took it in: nobody there is kept waiting. */
    if (lookup->result == 0 && S_ISREG(lookup->attr.mode) &&
        pthread_equal(r->thread, pthread_self())) {
        struct fb_caller caller = lookup->caller;
        uint32_t file = lookup->file;

        fb_files_ref(mount->files, file, 1);
        fb_early_lookup(mount, file, &caller, &late.meanwhile);
        fb_files_unref(mount->files, file, 1);
    }
    if (late.request)
        reply(late.request);
}

/* ---- names of live nodes ---- */

struct live_request {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    uint32_t id; /* the kernel counts as told of it */
    int64_t asked_ns;
    struct fb_handle *handle;
};

static void live_done(struct fb_source_job *job)
{
    struct live_request *r = job->arg;
    struct fb_mount *mount = r->mount;
    struct fuse_entry_param entry;
    bool told = false;

    fb_interruptible(r->req, NULL);
    if (job->result < 0) {
        fuse_reply_err(r->req, -job->result);
    } else {
        fb_live_seen(mount, &job->attr, r->asked_ns);
        fb_entry_live(mount, r->id, &job->attr, &entry);
        told = fuse_reply_entry(r->req, &entry) == 0;
    }
    if (!told)
        fb_entry_forget(mount, r->id, 1);
    fb_source_job_put(job);
    fb_handle_put(r->handle);
    fb_request_free(mount, r);
}

/* A file that is open for writing keeps its node. True: it has been answered, or will be. */
static bool lookup_live(fuse_req_t req, uint32_t parent, const char *path)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_caller caller = fb_caller_of(req);
    struct live_request *r;
    struct fb_source_job *job;
    struct fb_handle *handle;
    uint32_t id;
    int rc = fb_live_has_name(mount, path) ? fb_live_lookup(mount, path, parent, &id, &handle) : 0;

    if (rc == 0)
        return false;
    job = rc > 0 ? fb_source_job_new(FB_SOURCE_STAT, NULL) : NULL;
    r = job ? fb_request_new(mount, sizeof *r) : NULL;
    if (!r) {
        fuse_reply_err(req, ENOMEM);
        fb_source_job_put(job);
        if (rc > 0) {
            fb_entry_forget(mount, id, 1);
            fb_handle_put(handle);
        }
        return true;
    }
    *r = (struct live_request){
        .mount = mount, .req = req, .id = id, .asked_ns = fb_now_ns(), .handle = handle};
    job->handle = handle->source;
    fb_interruptible(req, &r->interrupted);
    fb_job_submit(mount, job, &caller, &r->interrupted, live_done, r);
    return true;
}

void fb_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct lookup_request *r;
    char path[FB_PATH_MAX];
    size_t size;

    if (!fb_child_path(req, parent, name, path) ||
        fb_claim_lookup(req, fb_parent_of(parent), path) ||
        lookup_live(req, fb_parent_of(parent), path))
        return;
    size = strlen(path) + 1;
    r = fb_request_new(mount, sizeof *r + size);
    if (!r) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    r->mount = mount;
    r->req = req;
    r->parent = fb_parent_of(parent);
    r->thread = pthread_self();
    memcpy(r->path, path, size);
    r->lookup = (struct fb_lookup){
        .volume = mount->volume,
        .caller = fb_caller_of(req),
        .path = r->path,
        .cancel = &r->interrupted,
        .done = lookup_done,
    };
    atomic_init(&r->interrupted, false);
    fb_interruptible(req, &r->interrupted);
    fb_cache_lookup(&r->lookup);
}

void fb_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    struct fb_mount *mount = fb_mount_of(req);

    if (ino != FUSE_ROOT_ID)
        fb_entry_forget(mount, fb_file_of(mount, ino), count);
    fuse_reply_none(req);
}

void fb_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct fb_mount *mount = fb_mount_of(req);

    for (size_t i = 0; i < count; i++)
        if (forgets[i].ino != FUSE_ROOT_ID)
            fb_entry_forget(mount, fb_file_of(mount, forgets[i].ino), forgets[i].nlookup);
    fuse_reply_none(req);
}
