/*
 * The frame around each operation: resolve from the present root, look whether that root still
 * stands, do it again if it was opened anew meanwhile. See source_posix.h for the rules.
 */
#include "source/source_posix.h"

#include <errno.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "source/posix_priv.h"

#define TRIES_MAX 4 /* of one job whose path, or the root, is being replaced */

struct posix {
    struct fb_posix_base *base;
    struct fb_posix_handles handles;
    struct fb_posix_pool *pool;
};

/* ---- handles --------------------------------------------------------------------------------- */

void *fb_posix_handle_new(struct fb_posix_handles *handles, size_t size, int *fd,
                          struct fb_source_job *job)
{
    struct fb_posix_handle *handle = fb_alloc(size);

    if (!handle)
        return NULL;
    handle->fd = fb_steal_fd(fd);
    fb_mutex_lock(&handles->lock);
    fb_list_push_back(&handles->open, &handle->link);
    fb_mutex_unlock(&handles->lock);
    job->handle = &handle->base;
    return handle;
}

static void free_handle(struct fb_posix_handle *handle)
{
    close(handle->fd);
    free(handle);
}

void fb_posix_handle_close(struct fb_posix_handles *handles, struct fb_source_handle *base)
{
    struct fb_posix_handle *handle = FB_CONTAINER_OF(base, struct fb_posix_handle, base);

    fb_mutex_lock(&handles->lock);
    fb_list_remove(&handle->link);
    fb_mutex_unlock(&handles->lock);
    free_handle(handle);
}

static void destroy_handles(struct fb_posix_handles *handles)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &handles->open)
        free_handle(FB_LIST_ENTRY(it, struct fb_posix_handle, link));
    fb_mutex_destroy(&handles->lock);
}

/* ---- one job --------------------------------------------------------------------------------- */

/* What is in the hands of those who opened it goes on, whatever the root is now. */
static bool by_handle(const struct fb_source_job *job)
{
    return job->handle && job->op != FB_SOURCE_OPENDIR && job->op != FB_SOURCE_OPEN;
}

static int run_change(struct posix *posix, int root, struct fb_source_job *job)
{
    switch (job->op) {
    case FB_SOURCE_OPEN:
        return fb_posix_open(&posix->handles, root, job);
    case FB_SOURCE_PREAD:
        return fb_posix_pread(job);
    case FB_SOURCE_WRITE:
        return fb_posix_write(job);
    case FB_SOURCE_COMMIT:
        return fb_posix_commit(root, job);
    case FB_SOURCE_FALLOCATE:
        return fb_posix_fallocate(job);
    case FB_SOURCE_SETATTR:
        return fb_posix_setattr(root, job);
    case FB_SOURCE_MKNOD:
        return fb_posix_mknod(root, job);
    case FB_SOURCE_SYMLINK:
        return fb_posix_symlink(root, job);
    case FB_SOURCE_LINK:
        return fb_posix_link(root, job);
    case FB_SOURCE_UNLINK:
    case FB_SOURCE_RMDIR:
        return fb_posix_unlink(root, job);
    case FB_SOURCE_RENAME:
        return fb_posix_rename(root, job);
    case FB_SOURCE_SETXATTR:
    case FB_SOURCE_REMOVEXATTR:
        return fb_posix_setxattr(root, job);
    default:
        return -ENOSYS;
    }
}

static int run_op(struct posix *posix, int root, struct fb_source_job *job)
{
    switch (job->op) {
    case FB_SOURCE_STAT:
        return job->handle ? fb_posix_fstat(job) : fb_posix_stat(root, job);
    case FB_SOURCE_READ:
        return fb_posix_read(root, job);
    case FB_SOURCE_OPENDIR:
        return fb_posix_opendir(&posix->handles, root, job);
    case FB_SOURCE_READDIR:
        return fb_posix_readdir(job);
    case FB_SOURCE_READLINK:
        return fb_posix_readlink(root, job);
    case FB_SOURCE_GETXATTR:
        return fb_posix_getxattr(root, job);
    case FB_SOURCE_LISTXATTR:
        return fb_posix_listxattr(root, job);
    case FB_SOURCE_STATFS:
        return fb_posix_statfs(root, job);
    default:
        return run_change(posix, root, job);
    }
}

/* Takes back what an operation gave that must not be answered. What it was given stays. */
static void undo(struct posix *posix, struct fb_source_job *job)
{
    if ((job->op == FB_SOURCE_OPENDIR || job->op == FB_SOURCE_OPEN) && job->handle) {
        fb_posix_handle_close(&posix->handles, job->handle);
        job->handle = NULL;
    }
    if (job->op == FB_SOURCE_SETXATTR)
        return;
    free(job->data);
    job->data = NULL;
    job->data_len = 0;
    job->bytes = 0;
}

/* One try; FB_POSIX_AGAIN when another may give an answer. */
static int try_job(struct posix *posix, struct fb_source_job *job)
{
    struct fb_posix_root *root = fb_posix_root_get(posix->base);
    int result, r = 0;

    /* A lost root's descriptor may still work: look first. Costs nothing while all is well. */
    if (atomic_load_explicit(&posix->base->lost, memory_order_relaxed))
        r = fb_posix_root_check(posix->base, root, true);
    result = r == 0 ? run_op(posix, root->fd, job) : FB_POSIX_AGAIN;
    if (r == 0)
        r = fb_posix_root_check(
            posix->base, root, result == -ENOENT || result == -ENOTDIR || result == FB_POSIX_AGAIN);
    /* What was changed was changed in a tree that is no longer the source, and is not changed a
     * second time. */
    if (r == FB_POSIX_ROOT_CHANGED && !by_handle(job))
        result = result == 0 && job->op >= FB_SOURCE_OPEN ? -EIO : FB_POSIX_AGAIN;
    fb_posix_root_put(root);
    return r < 0 ? r : result;
}

static int run(void *arg, struct fb_source_job *job)
{
    struct posix *posix = arg;
    int r = FB_POSIX_AGAIN;

    if (job->op == FB_SOURCE_CLOSE) {
        fb_posix_handle_close(&posix->handles, job->handle);
        return 0;
    }
    for (int i = 0; i < TRIES_MAX && r == FB_POSIX_AGAIN; i++) {
        r = fb_source_job_expired(job) ? -ETIMEDOUT : try_job(posix, job);
        /* What was read of a file that changed meanwhile is some callers' answer. */
        if (r != 0 && !(r == -ESTALE && job->op == FB_SOURCE_READ))
            undo(posix, job);
    }
    return r == FB_POSIX_AGAIN ? -EIO : r;
}

/* ---- the backend ----------------------------------------------------------------------------- */

static void posix_start(void *backend, struct fb_source_job *job)
{
    fb_posix_pool_start(((struct posix *)backend)->pool, job);
}

static void posix_expired(void *backend, struct fb_source_job *job)
{
    fb_posix_pool_expired(((struct posix *)backend)->pool, job);
}

static bool posix_close(void *backend, int64_t until_ns)
{
    return fb_posix_pool_close(((struct posix *)backend)->pool, until_ns);
}

static void posix_destroy(void *backend)
{
    struct posix *posix = backend;

    fb_posix_pool_destroy(posix->pool);
    destroy_handles(&posix->handles);
    fb_posix_base_destroy(posix->base);
    free(posix);
}

static const struct fb_source_ops posix_ops = {
    .name = "posix",
    .start = posix_start,
    .expired = posix_expired,
    .close = posix_close,
    .destroy = posix_destroy,
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Even the root may hang, so another thread looks at it. Who comes last, it or the caller who
 * stopped waiting, frees this. */
struct opening {
    char *path;
    struct fb_mutex lock;
    struct fb_cond cond;
    bool opened;
    bool deserted;
    int result;
    struct fb_posix_base *base;
    struct fb_error error;
};

static void free_opening(struct opening *o)
{
    fb_cond_destroy(&o->cond);
    fb_mutex_destroy(&o->lock);
    free(o->path);
    free(o);
}

static void *opening_main(void *arg)
{
    struct opening *o = arg;
    int r = fb_posix_base_open(o->path, &o->base, &o->error);
    bool deserted;

    fb_mutex_lock(&o->lock);
    o->result = r;
    o->opened = true;
    deserted = o->deserted;
    fb_cond_signal(&o->cond);
    fb_mutex_unlock(&o->lock);
    if (deserted) {
        fb_posix_base_destroy(o->base);
        free_opening(o);
    }
    return NULL;
}

static struct opening *new_opening(const char *path)
{
    struct opening *o = fb_alloc(sizeof *o);

    if (!o)
        return NULL;
    fb_mutex_init(&o->lock, FB_RANK_SOURCE);
    fb_cond_init(&o->cond);
    o->path = fb_strdup(path);
    if (!o->path) {
        free_opening(o);
        return NULL;
    }
    return o;
}

static int open_base(const char *path, struct fb_posix_base **ret_base, struct fb_error *err)
{
    int64_t until_ns = fb_now_ns() + FB_POSIX_OPEN_NS;
    struct opening *o = new_opening(path);
    bool opened, in_time = true;
    int r;

    if (!o)
        return -ENOMEM;
    r = fb_thread_start_detached("fb-open", opening_main, o);
    if (r < 0) {
        free_opening(o);
        return r;
    }
    fb_mutex_lock(&o->lock);
    while (!o->opened && in_time)
        in_time = fb_cond_wait(&o->cond, &o->lock, until_ns);
    opened = o->opened;
    o->deserted = !opened;
    fb_mutex_unlock(&o->lock);
    if (!opened)
        return fb_error_set(err, -ETIMEDOUT, "the source directory %s does not answer", path);
    r = o->result;
    if (r == 0)
        *ret_base = o->base;
    else
        fb_error_set(err, r, "%s", o->error.text);
    free_opening(o);
    return r;
}

int fb_source_posix_open(const struct fb_posix_config *config, struct fb_source **ret_source,
                         struct fb_error *err)
{
    FB_AUTO_FREE struct posix *posix = fb_alloc(sizeof *posix);
    FB_AUTO_FREE char *uri = NULL;
    int r = posix ? open_base(config->root, &posix->base, err) : -ENOMEM;

    if (r < 0)
        return fb_error_set(err, r, "cannot open the source %s: %s", config->root, fb_strerror(r));
    fb_mutex_init(&posix->handles.lock, FB_RANK_SOURCE);
    fb_list_init(&posix->handles.open);
    r = fb_posix_pool_create(config->threads ? config->threads : FB_POSIX_THREADS_NEAR,
                             config->threads ? config->threads : FB_POSIX_THREADS_FAR, run, posix,
                             &posix->pool);
    uri = fb_asprintf("file://%s", posix->base->path);
    if (r == 0 && !uri)
        r = -ENOMEM;
    if (r < 0)
        posix_destroy(fb_steal(posix));
    else
        r = fb_source_create(&posix_ops, fb_steal(posix), uri, ret_source);
    if (r < 0)
        return fb_error_set(err, r, "cannot serve the source %s: %s", config->root, fb_strerror(r));
    return 0;
}
