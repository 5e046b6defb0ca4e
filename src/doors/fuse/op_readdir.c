/*
 * READDIR and READDIRPLUS: an answer is filled from a batch of entries; what does not fit stays for
 * the next call. See dir_priv.h.
 *
 * PLUS tells the kernel of every entry as a LOOKUP would, and only of those that fit. An entry
 * without attributes (it vanished meanwhile, the source would take too long, or there is no room
 * for it) is listed by name alone; the kernel looks it up when somebody asks.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/dir_priv.h"
#include "store/files.h"

#define OFFSET_START 2u   /* of the source's own entries */
#define PLUS_MIN     152u /* bytes of the shortest entry of READDIRPLUS */
#define UNKNOWN_INO  0xffffffffu

/* ---- positions ---- */

/* The largest cookie is the end of the directory on more than one file system; plus two it would be
 * negative, which lseek(2) refuses. */
static off_t offset_of(uint64_t cookie)
{
    return cookie <= INT64_MAX - OFFSET_START ? (off_t)(cookie + OFFSET_START) : INT64_MAX;
}

static uint64_t cookie_of(uint64_t offset)
{
    if (offset <= OFFSET_START)
        return 0;
    return offset < INT64_MAX ? offset - OFFSET_START : INT64_MAX;
}

/* ---- the answer ---- */

static void finish(struct fb_dir *dir, int result)
{
    struct fb_mount *mount = dir->mount;
    fuse_req_t req = dir->req;
    FB_AUTO_FREE char *reply = fb_steal(dir->reply);
    FB_AUTO_FREE uint32_t *told = fb_steal(dir->told);
    unsigned told_count = dir->told_count;
    size_t used = dir->used;
    int rc;

    fb_interruptible(req, NULL);
    /* Release: the next READDIR, on another thread, finds the handle as we leave it. After the
     * reply the handle may be gone. */
    atomic_flag_clear_explicit(&dir->busy, memory_order_release);
    rc = result < 0 ? fuse_reply_err(req, -result) : fuse_reply_buf(req, reply, used);
    for (unsigned i = 0; i < told_count && (rc != 0 || result < 0); i++)
        fb_entry_forget(mount, told[i], 1);
    fb_request_end(mount);
}

/* Adds an entry by name alone; false when it does not fit. */
static bool add_name(struct fb_dir *dir, const char *name, uint64_t ino, uint8_t type, off_t off)
{
    struct fuse_entry_param entry = {
        .attr = {.st_ino = ino, .st_mode = DTTOIF(type)},
    };
    char *at = dir->reply + dir->used;
    size_t room = dir->size - dir->used, length;

    if (dir->plus)
        length = fuse_add_direntry_plus(dir->req, at, room, name, &entry, off);
    else
        length = fuse_add_direntry(dir->req, at, room, name, &entry.attr, off);
    if (length > room)
        return false;
    dir->used += length;
    return true;
}

/* Learns the entry as a LOOKUP would; false when the kernel cannot be told of it. */
static bool tell(struct fb_dir *dir, const struct fb_source_dirent *d,
                 struct fuse_entry_param *ret_entry)
{
    struct fb_mount *mount = dir->mount;
    char path[FB_PATH_MAX], buf[FB_PATH_MAX];
    size_t dir_len;
    const char *dir_path = fb_node_path(mount, dir->id, buf, &dir_len);
    uint32_t id;

    if (!d->has_attr || fb_shed_is_full(mount) || !dir_path ||
        fb_path_join(dir_path, dir_len, d->name, path) < 0 || fb_live_has_name(mount, path) ||
        fb_cache_hear(mount->volume, path, &d->attr, &dir->heard, &id) < 0 ||
        fb_entry_make(mount, id, dir->node, &d->attr, fb_files_valid_until(mount->files, id),
                      ret_entry) < 0)
        return false;
    if (d->no_xattrs)
        fb_node_set_flags(mount->nodes, id, FB_NODE_NO_XATTRS, 0);
    dir->told[dir->told_count++] = id;
    return true;
}

static bool add_entry(struct fb_dir *dir, const struct fb_source_dirent *d)
{
    struct fuse_entry_param entry;
    size_t room = dir->size - dir->used;
    off_t off = offset_of(d->cookie);

    if (!dir->plus)
        return add_name(dir, d->name, d->ino, d->type, off);
    if (fuse_add_direntry_plus(dir->req, NULL, 0, d->name, NULL, 0) > room)
        return false;
    if (!tell(dir, d, &entry))
        return add_name(dir, d->name, d->ino, d->type, off);
    dir->used +=
        fuse_add_direntry_plus(dir->req, dir->reply + dir->used, room, d->name, &entry, off);
    return true;
}

static uint64_t ino_of_parent(struct fb_dir *dir)
{
    struct fb_mount *mount = dir->mount;
    char buf[FB_PATH_MAX];
    size_t len;
    const char *path = fb_node_path(mount, dir->id, buf, &len);
    FB_AUTO_FREE char *parent = path ? fb_strdup(path) : NULL;
    struct fb_attr attr;
    uint32_t id;

    if (!parent)
        return UNKNOWN_INO;
    while (len > 0 && parent[len - 1] != '/')
        len--;
    parent[len > 0 ? len - 1 : 0] = '\0';
    id = fb_files_find(mount->files, fb_volume_id(mount->volume), parent);
    if (id == FB_FILE_NONE)
        return UNKNOWN_INO;
    fb_files_attr(mount->files, id, &attr);
    fb_files_unref(mount->files, id, 1);
    return attr.ino;
}

static void add_dots(struct fb_dir *dir)
{
    struct fb_attr attr;

    fb_files_attr(dir->mount->files, dir->id, &attr);
    if (dir->offset == 0 && add_name(dir, ".", attr.ino, DT_DIR, 1))
        dir->offset = 1;
    if (dir->offset == 1 && add_name(dir, "..", ino_of_parent(dir), DT_DIR, OFFSET_START))
        dir->offset = OFFSET_START;
}

/* Takes entries from the batch until the answer is full or the batch used up. */
static void fill(struct fb_dir *dir)
{
    while (dir->at < dir->batch->data_len) {
        const struct fb_source_dirent *d = (const void *)(dir->batch->data + dir->at);

        if (!add_entry(dir, d))
            return;
        dir->at += d->length;
        dir->cookie = d->cookie;
    }
}

static void go_on(struct fb_dir *dir);

static void opendir_done(struct fb_source_job *job)
{
    struct fb_dir *dir = job->arg;
    int result = job->result;

    if (result == 0)
        dir->source = job->handle;
    fb_source_job_put(job);
    if (result < 0)
        finish(dir, result);
    else
        go_on(dir);
}

static void readdir_done(struct fb_source_job *job)
{
    struct fb_dir *dir = job->arg;

    if (job->result < 0) {
        int result = job->result;

        fb_source_job_put(job);
        finish(dir, result);
        return;
    }
    dir->batch = job;
    dir->with_attrs = job->want_attrs;
    fb_heard_answer(&dir->heard, job);
    dir->at = 0;
    dir->cookie = job->cookie;
    fill(dir);
    finish(dir, 0);
}

/* Asks the source for what is missing. */
static void ask(struct fb_dir *dir, enum fb_source_op op, uint64_t cookie)
{
    const char *path = NULL;
    struct fb_source_job *job;
    char buf[FB_PATH_MAX];

    if (op == FB_SOURCE_OPENDIR)
        path = fb_node_path(dir->mount, dir->id, buf, NULL);
    job = path || op != FB_SOURCE_OPENDIR ? fb_source_job_new(op, path) : NULL;
    if (!job) {
        finish(dir, path || op != FB_SOURCE_OPENDIR ? -ENOMEM : -ESTALE);
        return;
    }
    /* A bucket's pages may have been fetched before they are asked for. */
    if (op == FB_SOURCE_OPENDIR || !fb_source_is_direct(fb_volume_source(dir->mount->volume)))
        dir->heard.asked = fb_cache_moment(dir->mount->volume, NULL);
    dir->heard.seen_ns = fb_now_ns();
    job->handle = dir->source;
    job->cookie = cookie;
    job->want_attrs = dir->plus;
    fb_job_submit(dir->mount, job, &dir->caller, &dir->interrupted,
                  op == FB_SOURCE_OPENDIR ? opendir_done : readdir_done, dir);
}

static void go_on(struct fb_dir *dir)
{
    uint64_t cookie = cookie_of(dir->offset);
    bool follows = dir->batch && dir->cookie == cookie;
    bool used_up = follows && dir->at >= dir->batch->data_len;
    bool at_end = used_up && cookie > 0 && dir->batch->at_end; /* 0: it may be rewound */
    bool at_hand = follows && !used_up && (dir->with_attrs || !dir->plus);

    if (dir->offset < OFFSET_START || at_end) {
        finish(dir, 0);
    } else if (at_hand) {
        fill(dir);
        finish(dir, 0);
    } else if (!dir->source) {
        ask(dir, FB_SOURCE_OPENDIR, 0);
    } else {
        fb_source_job_put(fb_steal(dir->batch));
        ask(dir, FB_SOURCE_READDIR, cookie);
    }
}

static void begin(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_dir *dir = (struct fb_dir *)(uintptr_t)fi->fh;

    /* Acquire: see finish(). */
    if (atomic_flag_test_and_set_explicit(&dir->busy, memory_order_acquire)) {
        fuse_reply_err(req, EBUSY);
        return;
    }
    dir->req = req;
    dir->caller = fb_caller_of(req);
    dir->plus = plus;
    dir->offset = (uint64_t)off;
    dir->size = size < FB_FUSE_DIR_BYTES ? size : FB_FUSE_DIR_BYTES;
    dir->used = 0;
    dir->reply = malloc(dir->size);
    dir->told = plus ? malloc((dir->size / PLUS_MIN + 1) * sizeof *dir->told) : NULL;
    dir->told_count = 0;
    atomic_init(&dir->interrupted, false);
    fb_interruptible(req, &dir->interrupted);
    fb_request_begin(mount); /* until finish() */
    if (!dir->reply || (plus && !dir->told)) {
        finish(dir, -ENOMEM);
        return;
    }
    if (dir->offset < OFFSET_START)
        add_dots(dir);
    go_on(dir);
}

void fb_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                   struct fuse_file_info *fi)
{
    (void)ino;
    begin(req, size, off, fi, false);
}

void fb_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    (void)ino;
    begin(req, size, off, fi, true);
}
