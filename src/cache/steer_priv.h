/*
 * cache/steer_priv.h - what steer.c decides by, for steer_show.c to look at.
 */
#ifndef FB_CACHE_STEER_PRIV_H
#define FB_CACHE_STEER_PRIV_H

#include "cache/cache_priv.h"
#include "cache/steer.h"
#include "cache/want.h"
#include "policy/brain.h"

#define FB_STEER_PLACES   16384u
#define FB_STEER_GONE_MAX 4096u

static_assert(FB_BRAIN_STREAMS <= 256, "a stream's number fits into a byte");

/* What request threads see of a stream, and what belongs to its count. */
struct fb_steer_stream {
    _Atomic uint8_t keep; /* enum fb_keep */
    _Atomic uint64_t quota_bytes;
    _Atomic uint64_t held_bytes;
    double due; /* items read less often are; 0: it takes no turns. Under the brain's lock */
    uint64_t counted_bytes;
    uint16_t source;
    bool known; /* it was met in an access */
    bool ended;
    uint64_t forgot_bytes; /* that it held when it was last gone over */
    uint64_t node;         /* it was of when last looked at */
    int64_t cut_ns;        /* not before: the first shares of a new stream are guesses */
    int64_t measure_ns;    /* not measured again before, */
    int64_t fill_ns;       /* nor loaded */
    int64_t turns_ns;      /* no walk for what is due before, */
    int64_t turns_wait_ns; /* so long after the last one */
    double turns_due;      /* what was due then */
    uint64_t fill_bytes;   /* asked for the last time, */
    uint64_t fill_held;    /* when it held that much */
};

/* An item that was evicted. */
struct fb_steer_gone {
    uint64_t key;
    uint32_t stream;
};

/* What is raised into DRAM (steer_raise.c): the background thread's, but for what is atomic. */
struct fb_steer_raise {
    uint32_t below;                /* reads from a disk, since they were last looked at, */
    struct fb_access below_access; /* and the last of them */
    bool under_way;
    int64_t next_ns;         /* nothing is raised before, */
    int64_t again_ns;        /* nor the same */
    _Atomic uint32_t reads;  /* of what is being raised, since it is, */
    _Atomic uint32_t found;  /* of them in DRAM, */
    _Atomic int64_t read_ns; /* the last of them then */
    uint16_t source;
    size_t path_len;
    char path[FB_PATH_MAX];
};

struct fb_steer {
    struct fb_cache *cache;
    struct fb_mutex lock;
    struct fb_brain *brain;
    struct fb_prefetch_config prefetch;
    int64_t round_ns; /* of space */
    struct fb_wants *wants;
    int64_t now_ns;  /* of this round */
    int64_t look_ns; /* when next */
    int64_t count_ns;
    unsigned filled; /* the last stream that was measured or loaded; the next ones come first */
    bool forgetting; /* the files of a stream were gone over, in this look */
    struct fb_mutex gone_lock;
    struct fb_steer_gone
        gone[FB_STEER_GONE_MAX]; /* more are not told of: ghosts are a sample anyway */
    unsigned gone_count;
    struct fb_steer_raise raise;
    struct fb_steer_stream
        planned; /* what plans are read of: nothing of it goes for another of it */
    struct fb_steer_stream streams[FB_BRAIN_STREAMS];
    _Atomic uint64_t places[FB_STEER_PLACES]; /* hash, with the stream's number in its low byte */
};

/* The stream that owns a file; NULL for what none does. What a user has ordered for it. The caller
 * holds a reference. */
struct fb_steer_stream *fb_steer_stream_of(struct fb_steer *steer, uint32_t file);
bool fb_steer_order_of(struct fb_steer *steer, uint32_t file, struct fb_order *ret_order);

/* steer_raise.c: an access to a file. */
void fb_steer_raise_watch(struct fb_steer *steer, const struct fb_access *access, const char *path,
                          size_t len);

#endif
