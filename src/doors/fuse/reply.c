/*
 * Attributes, entries and time-outs as the kernel wants them.
 *
 * Time-outs. A name holds for what is left of its record's validity. The attributes of a regular
 * file hold for ever: another size, time, owner or mode is another version, hence another node,
 * which the next look-up of the name brings. So reads, and fstat() of an open file, never cost a
 * round trip. Directories and links are refreshed in place; their attributes hold as long as their
 * names do.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static struct timespec timespec_of(int64_t ns)
{
    int64_t s = ns / FB_NS_PER_S, rest = ns % FB_NS_PER_S;

    if (rest < 0) {
        rest += FB_NS_PER_S;
        s--;
    }
    return (struct timespec){.tv_sec = s, .tv_nsec = rest};
}

void fb_stat_of(const struct fb_attr *attr, struct stat *ret_stat)
{
    *ret_stat = (struct stat){
        .st_ino = attr->ino,
        .st_mode = attr->mode,
        .st_nlink = attr->nlink,
        .st_uid = attr->uid,
        .st_gid = attr->gid,
        .st_rdev = attr->rdev,
        .st_size = (off_t)attr->version.size,
        .st_blocks = (blkcnt_t)attr->blocks,
        .st_blksize = 4096,
        .st_atim = timespec_of(attr->atime_ns),
        .st_mtim = timespec_of(attr->version.mtime_ns),
        .st_ctim = timespec_of(attr->version.ctime_ns),
    };
}

static double entry_timeout(const struct fb_mount *mount, int64_t valid_until_ns)
{
    int64_t left_ns = valid_until_ns - fb_now_ns();

    if (fb_mount_is_static(mount))
        return FB_FUSE_FOREVER_S;
    if (left_ns <= 0)
        return 0;
    return left_ns < FB_FUSE_FOREVER_NS ? (double)left_ns * 1e-9 : FB_FUSE_FOREVER_S;
}

double fb_attr_timeout(const struct fb_mount *mount, const struct fb_attr *attr,
                       int64_t valid_until_ns)
{
    return S_ISREG(attr->mode) ? FB_FUSE_FOREVER_S : entry_timeout(mount, valid_until_ns);
}

bool fb_entry_outdated(const struct fb_mount *mount, uint32_t id, int64_t valid_until_ns)
{
    return !fb_files_current(mount->files, id) ||
           fb_files_valid_until(mount->files, id) < valid_until_ns;
}

int fb_entry_make(struct fb_mount *mount, uint32_t id, uint32_t parent, const struct fb_attr *attr,
                  int64_t valid_until_ns, struct fuse_entry_param *ret_entry)
{
    int outcome = fb_node_tell(mount->nodes, id, parent);

    if (outcome == FB_NODE_NEW)
        fb_shed_pin(mount, id);
    else
        fb_files_unref(mount->files, id, 1);
    if (outcome < 0)
        return outcome;
    *ret_entry = (struct fuse_entry_param){
        .ino = fb_ino_of(id),
        .generation = fb_files_generation(mount->files, id),
        .entry_timeout = entry_timeout(mount, valid_until_ns),
        .attr_timeout = fb_attr_timeout(mount, attr, valid_until_ns),
    };
    fb_stat_of(attr, &ret_entry->attr);
    /* Told after it was retired or evicted, no invalidation will come for it. */
    if (fb_entry_outdated(mount, id, valid_until_ns))
        ret_entry->entry_timeout = 0;
    return 0;
}

void fb_entry_live(struct fb_mount *mount, uint32_t id, const struct fb_attr *attr,
                   struct fuse_entry_param *ret_entry)
{
    *ret_entry = (struct fuse_entry_param){
        .ino = fb_ino_of(id),
        .generation = fb_files_generation(mount->files, id),
    };
    fb_stat_of(attr, &ret_entry->attr);
}

void fb_entry_forget(struct fb_mount *mount, uint32_t id, uint64_t count)
{
    if (!fb_node_forget(mount->nodes, id, count))
        return;
    /* Relaxed: a node that becomes live is counted before it is found to be there. */
    if (atomic_load_explicit(&mount->live_count, memory_order_relaxed) > 0)
        fb_live_forget(mount, id);
    fb_shed_unpin(mount, id);
    fb_files_unref(mount->files, id, 1);
}

int fb_path_join(const char *dir, size_t dir_len, const char *name, char *buf)
{
    size_t name_len = strlen(name), slash = dir_len > 0;

    if (name_len > FB_NAME_MAX || dir_len + slash + name_len >= FB_PATH_MAX)
        return -ENAMETOOLONG;
    memcpy(buf, dir, dir_len);
    if (slash)
        buf[dir_len] = '/';
    memcpy(buf + dir_len + slash, name, name_len + 1);
    return 0;
}

struct fb_caller fb_caller_of(fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);

    return (struct fb_caller){.uid = ctx->uid, .gid = ctx->gid, .pid = (uint32_t)ctx->pid};
}

void fb_job_submit(struct fb_mount *mount, struct fb_source_job *job,
                   const struct fb_caller *caller, const _Atomic bool *cancel,
                   void (*done)(struct fb_source_job *job), void *arg)
{
    job->caller = *caller;
    job->cancel = cancel;
    job->deadline_ns = fb_now_ns() + fb_volume_timeout_ns(mount->volume);
    job->done = done;
    job->arg = arg;
    fb_source_submit(fb_volume_source(mount->volume), job);
}

static void ask_done(struct fb_lookup *lookup)
{
    struct fb_ask *ask = FB_CONTAINER_OF(lookup, struct fb_ask, lookup);
    struct fb_mount *mount = ask->mount;

    fb_interruptible(ask->req, NULL);
    ask->answer(ask);
    if (lookup->result == 0)
        fb_files_unref(mount->files, lookup->file, 1);
    free(ask->path);
    fb_request_free(mount, ask);
}

void fb_ask(fuse_req_t req, fuse_ino_t ino, void (*answer)(const struct fb_ask *ask))
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_ask *ask = fb_request_new(mount, sizeof *ask);
    char buf[FB_PATH_MAX];
    struct fb_attr attr;
    const char *path;

    if (!ask) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    path = fb_node_path(mount, fb_file_of(mount, ino), buf, NULL);
    ask->path = path == buf ? fb_strdup(path) : NULL;
    if (!path || (path == buf && !ask->path)) {
        fuse_reply_err(req, path ? ENOMEM : ESTALE);
        fb_request_free(mount, ask);
        return;
    }
    ask->mount = mount;
    ask->req = req;
    ask->ino = ino;
    ask->id = fb_file_of(mount, ino);
    fb_files_attr(mount->files, ask->id, &attr);
    ask->mode = attr.mode;
    ask->answer = answer;
    ask->lookup = (struct fb_lookup){
        .volume = mount->volume,
        .caller = fb_caller_of(req),
        .path = ask->path ? ask->path : path,
        .cancel = &ask->interrupted,
        .done = ask_done,
    };
    atomic_init(&ask->interrupted, false);
    fb_interruptible(req, &ask->interrupted);
    fb_cache_lookup(&ask->lookup);
}

static void interrupted(fuse_req_t req, void *arg)
{
    _Atomic bool *flag = arg;

    (void)req;
    /* Relaxed: a hint; cache and source look at it ten times a second. */
    atomic_store_explicit(flag, true, memory_order_relaxed);
}

void fb_interruptible(fuse_req_t req, _Atomic bool *flag)
{
    fuse_req_interrupt_func(req, flag ? interrupted : NULL, flag);
}

void fb_request_begin(struct fb_mount *mount)
{
    /* Relaxed: begun by a thread that fb_mount_stop() joins before it looks at the count, or by the
     * end of another request. */
    atomic_fetch_add_explicit(&mount->requests, 1, memory_order_relaxed);
}

void fb_request_end(struct fb_mount *mount)
{
    /* Release: whoever sees the count at zero (fb_mount_stop) may take the mount apart. */
    atomic_fetch_sub_explicit(&mount->requests, 1, memory_order_release);
}

void *fb_request_new(struct fb_mount *mount, size_t size)
{
    void *request = malloc(size);

    if (request)
        fb_request_begin(mount);
    return request;
}

void fb_request_free(struct fb_mount *mount, void *request)
{
    free(request);
    fb_request_end(mount);
}
