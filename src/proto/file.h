/*
 * proto/file.h - what is known of a file: its version and its attributes.
 *
 * A version says which bytes a path stood for. Two equal versions mean equal bytes, provided the
 * file had settled when the version was taken (fb_version_settled): a file written to twice within
 * one tick of its file system's clock shows the same times for different bytes.
 */
#ifndef FB_PROTO_FILE_H
#define FB_PROTO_FILE_H

#include <stdbool.h>
#include <stdint.h>

#define FB_PATH_MAX       4096 /* longest path below a source, with its final zero */
#define FB_NAME_MAX       255
#define FB_SETTLE_TIME_NS 2000000000LL
#define FB_BY_HAND_NS     60000000000LL

struct fb_version {
    uint64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint64_t tag[2]; /* inode number and 0; for an object store, 128 bits of its ETag */
};

static inline bool fb_version_equal(const struct fb_version *a, const struct fb_version *b)
{
    return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->tag[0] == b->tag[0] && a->tag[1] == b->tag[1];
}

/* True when the file was last touched long enough before `wall_ns` for its version to be trusted.
 * Nobody can set a ctime: one that lies ahead comes from a clock that is ahead of ours, and tells
 * nothing of the file's age. An mtime that alone lies more than a minute ahead was set by hand,
 * after the last write, for any write since would show in it: trusted at once. A version with an
 * ETag names the bytes themselves and needs no time; the tag of a file is its inode number and 0.
 */
static inline bool fb_version_settled(const struct fb_version *v, int64_t wall_ns)
{
    bool by_hand = v->mtime_ns > wall_ns + FB_BY_HAND_NS && v->ctime_ns <= wall_ns;
    int64_t touched = v->mtime_ns > v->ctime_ns ? v->mtime_ns : v->ctime_ns;

    return v->tag[1] != 0 || by_hand || wall_ns - touched >= FB_SETTLE_TIME_NS;
}

struct fb_attr {
    struct fb_version version;
    uint64_t dev; /* of the file system it is on; 0: the source has none */
    uint64_t ino;
    uint64_t rdev;
    uint64_t blocks; /* of 512 bytes */
    int64_t atime_ns;
    uint32_t mode; /* type and permissions, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
};

/* Who asks. Space will be charged to a tenant derived from this; today it goes into access
 * records. */
struct fb_caller {
    uint32_t uid;
    uint32_t gid;
    uint32_t pid;
};

#endif
