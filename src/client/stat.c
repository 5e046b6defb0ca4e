/*
 * What is known of a file that is open, and whether this process could have opened it itself.
 */
#include <linux/capability.h>
#include <string.h>

#include "client/client_priv.h"

#define NS_PER_S 1000000000LL

static struct timespec time_of(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};

    if (t.tv_nsec < 0) {
        t.tv_nsec += NS_PER_S;
        t.tv_sec--;
    }
    return t;
}

void fb_client_stat(const struct fb_client_file *file, struct stat *ret_stat)
{
    const struct fb_attr *a = &file->attr;

    memset(ret_stat, 0, sizeof *ret_stat);
    ret_stat->st_dev = a->dev ? a->dev : file->root_dev;
    ret_stat->st_ino = a->ino;
    ret_stat->st_mode = a->mode;
    ret_stat->st_nlink = a->nlink;
    ret_stat->st_uid = a->uid;
    ret_stat->st_gid = a->gid;
    ret_stat->st_rdev = a->rdev;
    ret_stat->st_size = (off_t)a->version.size;
    ret_stat->st_blksize = file->block_bytes;
    ret_stat->st_blocks = (blkcnt_t)a->blocks;
    ret_stat->st_atim = time_of(a->atime_ns);
    ret_stat->st_mtim = time_of(a->version.mtime_ns);
    ret_stat->st_ctim = time_of(a->version.ctime_ns);
}

static int64_t ns_of(const struct timespec *t)
{
    return t->tv_sec * NS_PER_S + t->tv_nsec;
}

/* Of an object the kernel shows no ETag, but its key's number. */
bool fb_client_same_version(const struct fb_client_file *file, const struct stat *st)
{
    const struct fb_version *v = &file->attr.version;

    return (uint64_t)st->st_size == v->size && ns_of(&st->st_mtim) == v->mtime_ns &&
           ns_of(&st->st_ctim) == v->ctime_ns &&
           st->st_ino == (v->tag[1] ? file->attr.ino : v->tag[0]);
}

/* ---- permissions ---- */

enum {
    UNKNOWN,
    CHECKED,
    ANYTHING
};

static int what_we_read(struct fb_client *client)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    uint32_t wide = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;

    atomic_store_explicit(&client->uid, (uint32_t)fb_sys(SYS_geteuid, 0, 0, 0, 0),
                          memory_order_relaxed);
    if (fb_sys(SYS_capget, &head, caps, 0, 0) == 0 && (caps[0].effective & wide) != 0)
        return ANYTHING;
    return CHECKED;
}

bool fb_client_may_read(struct fb_client *client, const struct fb_client_file *file, int flags)
{
    /* Acquire: the user was there before it. */
    int known = atomic_load_explicit(&client->reads, memory_order_acquire);
    uint32_t mode = file->attr.mode, plain = S_IRUSR | S_IRGRP | S_IROTH;

    if (fb_unlikely(known == UNKNOWN)) {
        known = what_we_read(client);
        atomic_store_explicit(&client->reads, known, memory_order_release);
    }
    if (known == ANYTHING)
        return true;
    if (flags & O_NOATIME) /* for owners only */
        return false;
    return (mode & plain) == plain ||
           (file->attr.uid == atomic_load_explicit(&client->uid, memory_order_relaxed) &&
            (mode & S_IRUSR)) ||
           fb_sys(SYS_faccessat2, AT_FDCWD, file->full, R_OK, AT_EACCESS) == 0;
}
