/*
 * The backend: jobs come in from any thread, through the inbox, and are operations on the loop from
 * there on. What was read is handed on by a few threads of their own: whoever asked copies,
 * checks or keeps it there and then, for a millisecond each megabyte or until a disk has room, and
 * meanwhile the loop receives. Ends in order: the loop is told, cancels every operation, aborts the
 * uploads that are left as far as it can in the time given, and stops.
 */
#include "source/source_s3.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "source/posix_pool.h"
#include "source/s3_priv.h"

#define STALL_NS      (10 * FB_NS_PER_S)
#define TIMEOUT_NS    (30 * FB_NS_PER_S)
#define FIRST_WAIT_NS (8 * FB_NS_PER_S)
#define REGION        "us-east-1"
#define STATFS_BYTES  (1ULL << 50) /* free, as far as anybody can tell */
#define ANSWERERS     4            /* threads that hand on what was read */

/* ---- operations ------------------------------------------------------------------------------ */

void *fb_s3_op_new(struct fb_s3 *s3, struct fb_source_job *job, size_t size,
                   void (*cancel)(struct fb_s3_op *op))
{
    struct fb_s3_op *op = fb_alloc(size);

    if (!op) {
        fb_source_job_finish(job, -ENOMEM);
        return NULL;
    }
    op->s3 = s3;
    op->job = job;
    op->cancel = cancel;
    fb_list_push_back(&s3->ops, &op->link);
    return op;
}

void fb_s3_op_end(struct fb_s3_op *op, int result)
{
    struct fb_source_job *job = op->job;

    struct fb_s3 *s3 = op->s3;

    fb_list_remove(&op->link);
    free(op);
    /* Who gets bytes has something to do with them. */
    if (job->op == FB_SOURCE_READ && result == 0)
        fb_posix_pool_start(s3->answers, job);
    else
        fb_source_job_finish(job, result);
    fb_s3_pump_unlinks(s3);
}

/* Of a job that was read: all that is left is done(). */
static int answered(void *arg, struct fb_source_job *job)
{
    (void)arg;
    (void)job;
    return 0;
}

static void s3_statfs(struct fb_source_job *job)
{
    job->statfs = (struct statvfs){
        .f_bsize = 1 << 20,
        .f_frsize = 4096,
        .f_blocks = STATFS_BYTES / 4096,
        .f_bfree = STATFS_BYTES / 4096,
        .f_bavail = STATFS_BYTES / 4096,
        .f_files = UINT32_MAX,
        .f_ffree = UINT32_MAX,
        .f_favail = UINT32_MAX,
        .f_namemax = FB_NAME_MAX,
    };
    fb_source_job_finish(job, 0);
}

static void no_xattrs(struct fb_source_job *job)
{
    job->data = fb_alloc(1);
    fb_source_job_finish(job, job->data ? 0 : -ENOMEM);
}

static void close_handle(struct fb_s3 *s3, struct fb_source_job *job)
{
    if (fb_s3_is_file(s3, job->handle))
        fb_s3_closefile(s3, job->handle);
    else
        fb_s3_closedir(job->handle);
    fb_source_job_finish(job, 0);
}

static bool changes(enum fb_source_op op)
{
    return op >= FB_SOURCE_OPEN && op != FB_SOURCE_PREAD;
}

bool fb_s3_is_changing(const struct fb_s3 *s3)
{
    const struct fb_list *it;

    if (!fb_list_empty(&s3->files) || s3->ending)
        return true;
    for (it = s3->ops.next; it != &s3->ops; it = it->next) {
        if (changes(FB_LIST_ENTRY(it, struct fb_s3_op, link)->job->op))
            return true;
    }
    return false;
}

static void run(struct fb_s3 *s3, struct fb_source_job *job)
{
    if (changes(job->op))
        fb_s3_seen_forget(s3);
    if (job->op == FB_SOURCE_UNLINK || job->op == FB_SOURCE_RMDIR || job->op == FB_SOURCE_RENAME)
        fb_s3_filled_forget(s3);
    switch (job->op) {
    case FB_SOURCE_STAT:
        fb_s3_stat(s3, job);
        break;
    case FB_SOURCE_READ:
        fb_s3_read(s3, job);
        break;
    case FB_SOURCE_OPENDIR:
        fb_s3_opendir(s3, job);
        break;
    case FB_SOURCE_READDIR:
        fb_s3_readdir(s3, job);
        break;
    case FB_SOURCE_CLOSE:
        close_handle(s3, job);
        break;
    case FB_SOURCE_READLINK:
        fb_source_job_finish(job, -EINVAL);
        break;
    case FB_SOURCE_GETXATTR:
    case FB_SOURCE_REMOVEXATTR:
        fb_source_job_finish(job, -ENODATA);
        break;
    case FB_SOURCE_LISTXATTR:
        no_xattrs(job);
        break;
    case FB_SOURCE_STATFS:
        s3_statfs(job);
        break;
    case FB_SOURCE_OPEN:
        fb_s3_open(s3, job);
        break;
    case FB_SOURCE_PREAD:
        fb_s3_pread(s3, job);
        break;
    case FB_SOURCE_WRITE:
        fb_s3_write(s3, job);
        break;
    case FB_SOURCE_COMMIT:
        fb_s3_commit(s3, job);
        break;
    case FB_SOURCE_SETATTR:
        fb_s3_setattr(s3, job);
        break;
    case FB_SOURCE_MKNOD:
        fb_s3_mknod(s3, job);
        break;
    case FB_SOURCE_UNLINK:
        fb_s3_unlink(s3, job);
        break;
    case FB_SOURCE_RMDIR:
        fb_s3_rmdir(s3, job);
        break;
    case FB_SOURCE_RENAME:
        fb_s3_rename(s3, job);
        break;
    case FB_SOURCE_SYMLINK:
    case FB_SOURCE_LINK:
        /* What file systems without them answer. */
        fb_source_job_finish(job, -EPERM);
        break;
    case FB_SOURCE_FALLOCATE:
    case FB_SOURCE_SETXATTR:
    case FB_SOURCE_OPS:
        fb_source_job_finish(job, -ENOTSUP);
        break;
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* A probe whose deadline has passed goes on: its answer is one, however late it comes. Else who
 * takes longer than that to list one key would be down for ever. */
static bool is_over(const struct fb_source_job *job)
{
    return fb_source_job_expired(job) && !job->urgent;
}

static struct fb_s3_op *to_cancel(const struct fb_s3 *s3, bool all)
{
    for (struct fb_list *it = s3->ops.next; it != &s3->ops; it = it->next) {
        struct fb_s3_op *op = FB_LIST_ENTRY(it, struct fb_s3_op, link);

        if (all || is_over(op->job))
            return op;
    }
    return NULL;
}

/* From the front each time: the end of one may be that of others, which waited for it. */
static void cancel_ops(struct fb_s3 *s3, bool all)
{
    struct fb_s3_op *op;

    while ((op = to_cancel(s3, all)))
        op->cancel(op);
}

static void maybe_stop(struct fb_s3 *s3)
{
    if (s3->orphans > 0)
        return;
    fb_mutex_lock(&s3->lock);
    s3->closed = true;
    fb_cond_signal(&s3->quiet);
    fb_mutex_unlock(&s3->lock);
    fb_s3_http_stop(s3->http);
}

void fb_s3_orphan_done(struct fb_s3 *s3)
{
    bool closing;

    s3->orphans--;
    fb_mutex_lock(&s3->lock);
    closing = s3->closing;
    fb_mutex_unlock(&s3->lock);
    if (closing)
        maybe_stop(s3);
}

static void end_all(struct fb_s3 *s3)
{
    s3->ending = true;
    cancel_ops(s3, true);
    fb_s3_seen_free(s3);
    while (!fb_list_empty(&s3->dirs))
        fb_s3_closedir(fb_s3_dir_of(s3->dirs.next));
    while (!fb_list_empty(&s3->files))
        fb_s3_closefile(s3, fb_s3_file_of(s3->files.next));
    maybe_stop(s3);
}

static void woken(void *arg)
{
    struct fb_s3 *s3 = arg;
    struct fb_list jobs;
    bool cancels, closing;

    fb_s3_abort_left(s3);
    fb_s3_pump_unrecorded(s3);
    fb_list_init(&jobs);
    fb_mutex_lock(&s3->lock);
    fb_list_splice(&jobs, &s3->inbox);
    cancels = s3->cancels;
    s3->cancels = false;
    closing = s3->closing;
    fb_mutex_unlock(&s3->lock);
    while (!fb_list_empty(&jobs)) {
        struct fb_source_job *job = FB_LIST_ENTRY(jobs.next, struct fb_source_job, backend_link);

        fb_list_remove(&job->backend_link);
        run(s3, job);
    }
    if (cancels)
        cancel_ops(s3, false);
    if (closing)
        end_all(s3);
}

/* ---- the backend ----------------------------------------------------------------------------- */

static void s3_start(void *backend, struct fb_source_job *job)
{
    struct fb_s3 *s3 = backend;
    bool first;

    fb_mutex_lock(&s3->lock);
    first = fb_list_empty(&s3->inbox);
    fb_list_push_back(&s3->inbox, &job->backend_link);
    fb_mutex_unlock(&s3->lock);
    if (first)
        fb_s3_http_wake(s3->http);
}

static void s3_expired(void *backend, struct fb_source_job *job)
{
    struct fb_s3 *s3 = backend;

    (void)job;
    fb_mutex_lock(&s3->lock);
    s3->cancels = true;
    fb_mutex_unlock(&s3->lock);
    fb_s3_http_wake(s3->http);
}

static bool s3_close(void *backend, int64_t until_ns)
{
    struct fb_s3 *s3 = backend;
    bool closed;

    fb_mutex_lock(&s3->lock);
    s3->closing = true;
    fb_mutex_unlock(&s3->lock);
    fb_s3_http_wake(s3->http);
    fb_mutex_lock(&s3->lock);
    while (!s3->closed && fb_cond_wait(&s3->quiet, &s3->lock, until_ns))
        ;
    closed = s3->closed;
    fb_mutex_unlock(&s3->lock);
    return closed && (!s3->answers || fb_posix_pool_close(s3->answers, until_ns));
}

/* On the journal's thread. */
static void journal_moved(void *arg)
{
    struct fb_s3 *s3 = arg;

    fb_s3_http_wake(s3->http);
}

static void s3_free(struct fb_s3 *s3)
{
    if (s3->journal)
        fb_s3_journal_unwatch(s3->journal, &s3->watch);
    if (s3->http)
        fb_s3_http_destroy(s3->http);
    fb_posix_pool_destroy(s3->answers);
    fb_s3_creds_close(s3->creds);
    fb_s3_journal_close(s3->journal);
    fb_s3_kept_free(s3);
    fb_cond_destroy(&s3->quiet);
    fb_mutex_destroy(&s3->lock);
    free(s3->bucket);
    free(s3->prefix);
    free(s3);
}

static void s3_destroy(void *backend)
{
    s3_free(backend);
}

static bool s3_is_direct(void *backend)
{
    (void)backend;
    return true;
}

static bool s3_is_far(void *backend)
{
    (void)backend;
    return true;
}

static bool s3_is_bare(void *backend)
{
    const struct fb_s3 *s3 = backend;

    return atomic_load_explicit(&s3->bare, memory_order_relaxed);
}

static const struct fb_source_ops s3_ops = {
    .name = "s3",
    .start = s3_start,
    .expired = s3_expired,
    .close = s3_close,
    .destroy = s3_destroy,
    .is_direct = s3_is_direct,
    .is_far = s3_is_far,
    .is_bare = s3_is_bare,
};

/* ---- opening --------------------------------------------------------------------------------- */

bool fb_source_is_s3(const char *uri)
{
    return strncmp(uri, "s3://", 5) == 0;
}

int fb_s3_uri_canonical(const char *uri, char **ret_uri, struct fb_error *err)
{
    FB_AUTO_FREE char *bucket = NULL;
    FB_AUTO_FREE char *prefix = NULL;
    size_t len;
    int r = fb_s3_url_parse(uri, &bucket, &prefix, err);

    if (r < 0)
        return r;
    len = strlen(prefix);
    *ret_uri = fb_asprintf("s3://%s%s%.*s", bucket, len > 0 ? "/" : "", len > 0 ? (int)len - 1 : 0,
                           prefix);
    return *ret_uri ? 0 : fb_error_set(err, -ENOMEM, "out of memory");
}

static int why_not(const struct fb_s3 *s3, int result, struct fb_error *err)
{
    char why[FB_S3_WHY_MAX], base[FB_S3_WHY_MAX];

    fb_s3_http_why(s3->http, why);
    fb_s3_http_where(s3->http, base);
    if (result == -EACCES)
        return fb_error_set(err, result,
                            "the bucket %s refuses access (%s); check the access key, its secret "
                            "and what they are allowed",
                            s3->bucket, why);
    if (strstr(why, "NoSuchBucket"))
        return fb_error_set(err, -ENOENT, "there is no bucket %s at %s", s3->bucket, base);
    return fb_error_set(err, result, "the bucket %s does not answer at %s (%s)", s3->bucket, base,
                        why[0] ? why : fb_strerror(result));
}

/* The first answer: wrong names and keys are told now, not by the first program that reads. */
static int try_out(const struct fb_s3 *s3, struct fb_source *source, struct fb_error *err)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_STAT, "");
    int r;

    if (!job)
        return fb_error_set(err, -ENOMEM, "out of memory");
    job->deadline_ns = fb_now_ns() + FIRST_WAIT_NS;
    r = fb_source_wait(source, job);
    fb_source_job_put(job);
    return r < 0 ? why_not(s3, r, err) : 0;
}

static const char *given(const char *text)
{
    return text && *text ? text : NULL;
}

static const char *variable(const char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    }
    return NULL;
}

static int build(const struct fb_s3_config *config, struct fb_s3 *s3, struct fb_error *err)
{
    struct fb_s3_http_config http = {
        .endpoint = given(config->endpoint),
        .path_style = config->path_style,
        .region = given(config->region),
        .ca_bundle = given(variable(config->env, "AWS_CA_BUNDLE")),
        .connections = config->connections ? config->connections : FB_S3_CONNECTIONS,
        .stall_ns = config->stall_ns ? config->stall_ns : STALL_NS,
        .woken = woken,
        .arg = s3,
    };
    struct fb_s3_creds_config creds = {.env = config->env,
                                       .profile = given(config->profile),
                                       .no_sign = config->unsigned_requests};
    int r = fb_s3_url_parse(config->uri, &s3->bucket, &s3->prefix, err);

    if (r == 0)
        r = fb_s3_creds_open(&creds, &s3->creds, err);
    if (r == 0 &&
        (r = fb_posix_pool_create(ANSWERERS, ANSWERERS, answered, NULL, &s3->answers)) < 0)
        fb_error_set(err, r, "out of memory");
    if (r < 0)
        return r;
    if (!http.endpoint)
        http.endpoint = given(fb_s3_creds_endpoint(s3->creds));
    if (!http.region)
        http.region = given(fb_s3_creds_region(s3->creds));
    if (!http.region)
        http.region = REGION;
    http.bucket = s3->bucket;
    http.creds = s3->creds;
    http.env = config->env;
    return fb_s3_http_create(&http, &s3->http, err);
}

int fb_source_s3_open(const struct fb_s3_config *config, struct fb_source **ret_source,
                      struct fb_error *err)
{
    FB_AUTO_FREE char *uri = NULL;
    struct fb_s3 *s3 = fb_alloc(sizeof *s3);
    struct fb_source *source;
    int r;

    if (!s3)
        return fb_error_set(err, -ENOMEM, "out of memory");
    s3->uid = config->uid;
    s3->gid = config->gid;
    s3->umask = config->umask;
    s3->part_bytes = config->part_bytes ? config->part_bytes : FB_S3_PART_BYTES;
    s3->timeout_ns = config->timeout_ns ? config->timeout_ns : TIMEOUT_NS;
    s3->born_ns = fb_wall_ns();
    fb_mutex_init(&s3->lock, FB_RANK_SOURCE);
    fb_cond_init(&s3->quiet);
    fb_list_init(&s3->inbox);
    fb_list_init(&s3->ops);
    fb_list_init(&s3->dirs);
    fb_list_init(&s3->files);
    fb_list_init(&s3->unrecorded);
    fb_list_init(&s3->holds);
    fb_list_init(&s3->unlinks);
    fb_list_init(&s3->left);
    s3->journal = fb_s3_journal_share(config->journal);
    s3->journal_wait_ns = config->journal_wait_ns;
    if (s3->journal_wait_ns == 0)
        s3->journal_wait_ns = (int64_t)fb_min_u64(
            FB_S3_JOURNAL_WAIT_NS, (uint64_t)s3->timeout_ns / FB_S3_JOURNAL_WAIT_SHARE);
    s3->watch = (struct fb_s3_journal_watch){.moved = journal_moved, .arg = s3};
    fb_list_init(&s3->watch.link);
    r = build(config, s3, err);
    if (r == 0 && s3->journal)
        fb_s3_journal_watch(s3->journal, &s3->watch);
    if (r == 0)
        r = fb_s3_uri_canonical(config->uri, &uri, err);
    if (r < 0) {
        if (s3->http)
            s3_close(s3, FB_NEVER_NS);
        s3_free(s3);
        return r;
    }
    r = fb_source_create(&s3_ops, s3, uri, &source);
    if (r < 0)
        return fb_error_set(err, r, "no memory for %s", uri);
    r = try_out(s3, source, err);
    if (r == 0 && fb_s3_find_left(s3) == 0)
        fb_s3_http_wake(s3->http);
    if (r < 0) {
        fb_source_close(source);
        return r;
    }
    *ret_source = source;
    return 0;
}
