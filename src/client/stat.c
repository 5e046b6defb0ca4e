/*
 * What is known of a file that is open.
 */
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
