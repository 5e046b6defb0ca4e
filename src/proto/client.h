/*
 * proto/client.h - how programs on this machine talk to the daemon: messages on its client socket,
 * and the area of memory that each of them shares with it.
 *
 * The socket is a Unix stream. One request at a time on a connection, then its reply; a process
 * that wants several things at once opens several connections. The first request on each is HELLO:
 *
 *     HELLO    the reply carries a welcome and, when asked for, descriptors of the shared memory:
 *              tables, DRAM (both read-only, sealed), an area of the client's own, and the files of
 *              the NVMe tier (read-only); DRAM, area and files only where there are any
 *     OPEN     path -> file record, attributes, until when they may be believed
 *     READ     bytes of a file in one version, from wherever they are
 *     FORGET   the caller is about to change, or has changed, a path: ask the source next time;
 *              without a path: it has changed something, and no longer knows what
 *     PIN      how many segments this process may keep from being reused
 *
 * Neither side believes the other: lengths and numbers are checked at both ends, and the daemon
 * reads the area as one that anybody may scribble on.
 */
#ifndef FB_PROTO_CLIENT_H
#define FB_PROTO_CLIENT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/hash.h"
#include "proto/access.h"
#include "proto/file.h"

#define FB_CLIENT_MAGIC        0x62634246u /* "FBcb" */
#define FB_CLIENT_VERSION      1u
#define FB_CLIENT_FDS_MAX      19u /* tables, DRAM, area, 16 files */
#define FB_CLIENT_FILES_MAX    16u
#define FB_CLIENT_READ_MAX     (1u << 20) /* bytes of one READ */
#define FB_CLIENT_ROOTS_MAX    64u
#define FB_CLIENT_WELCOME_MAX  (1u << 19) /* bytes, roots included */
#define FB_CLIENT_HAZARDS      256u
#define FB_CLIENT_RING_SLOTS   4096u
#define FB_CLIENT_BEAT_NS      100000000LL  /* the daemon shows that it lives so often */
#define FB_CLIENT_BEAT_LATE_NS 2000000000LL /* later than that it is taken for hung */

enum fb_client_op {
    FB_CLIENT_HELLO = 1,
    FB_CLIENT_OPEN,
    FB_CLIENT_READ,
    FB_CLIENT_FORGET,
    FB_CLIENT_PIN,
};

#define FB_CLIENT_WANT_MEMORY 1u /* HELLO: send the descriptors */
/* FORGET: the path is open for writing. It is forgotten once more when the connection ends before a
 * FORGET without this came: the kernel closes files, too, of processes that say nothing. */
#define FB_CLIENT_WRITES 2u

struct fb_client_request {
    uint32_t magic;
    uint16_t op;
    uint16_t source; /* OPEN, READ, FORGET */
    uint32_t length; /* READ: bytes; PIN: segments asked for; HELLO: version */
    uint32_t flags;
    uint64_t offset;           /* READ */
    struct fb_version version; /* READ: what was opened */
    uint32_t reserved;
    uint32_t path_len; /* so many bytes follow: the path below the source, no final zero */
};

static_assert(sizeof(struct fb_client_request) == 72, "wire format");

struct fb_client_reply {
    uint32_t magic;
    int32_t result; /* 0 or more, or a negative errno */
    uint32_t bytes; /* so many follow */
    uint32_t file;  /* OPEN: record and its generation */
    uint32_t file_gen;
    uint32_t reserved;
    int64_t valid_until_ns; /* OPEN */
    struct fb_attr attr;    /* OPEN */
};

static_assert(sizeof(struct fb_client_reply) == 128, "wire format");

/* What follows the reply to HELLO; then `roots` times a root and its path. */
struct fb_client_welcome {
    uint64_t instance; /* of the daemon, as in the tables */
    uint64_t tables_bytes;
    uint64_t dram_bytes;
    uint64_t area_bytes;  /* 0: there is no area for this client */
    uint64_t groups_hash; /* fb_client_groups_hash() of the daemon's supplementary groups */
    uint32_t uid;         /* effective ids of the daemon */
    uint32_t gid;
    uint32_t reads_anything; /* it may read whatever the permissions (CAP_DAC_*) */
    uint32_t roots;
    /* The NVMe tier: segment `medium_base` + s lies in file s % medium_files at
     * s / medium_files * medium_segment_bytes. */
    uint64_t medium_segment_bytes;
    uint32_t medium_base;
    uint32_t medium_slots;
    uint32_t medium_files; /* 0: none to read */
    uint32_t reserved;
};

/* A directory whose files are served: `path`, without a final slash, stands for the root of
 * `source`. Several roots may stand for one source. */
struct fb_client_root {
    uint64_t dev; /* of the directory */
    uint64_t ino;
    uint16_t source;
    uint16_t path_len;    /* so many bytes follow, no final zero */
    uint32_t block_bytes; /* st_blksize of its files */
};

static_assert(sizeof(struct fb_client_welcome) == 80, "wire format");
static_assert(sizeof(struct fb_client_root) == 24, "wire format");

/* Order does not matter and duplicates do not cancel out. */
static inline uint64_t fb_client_groups_hash(const uint32_t *groups, int count)
{
    uint64_t sum = 0;

    for (int i = 0; i < count; i++)
        sum += fb_mix64(groups[i] + 1ULL);
    return sum;
}

/* A process's area. The ring's slots come last. Hazards: a segment number + 1 keeps that DRAM
 * segment from being reused, once its generation has been seen unchanged after the store; 0: free.
 */
struct fb_client_area {
    /* Reads this process served itself, since the beginning: from DRAM, and from a medium. */
    _Atomic uint64_t reads;
    _Atomic uint64_t read_bytes;
    _Atomic uint64_t medium_reads;
    _Atomic uint64_t medium_bytes;
    _Atomic uint32_t hazards[FB_CLIENT_HAZARDS] FB_ALIGNED(FB_CACHELINE);
    struct fb_access_ring ring;
};

static inline uint64_t fb_client_area_bytes(void)
{
    return fb_align_up(
        offsetof(struct fb_client_area, ring) + fb_access_ring_bytes(FB_CLIENT_RING_SLOTS), 4096);
}

#endif
