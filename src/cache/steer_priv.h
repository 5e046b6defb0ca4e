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
    uint64_t node;       /* it was of when last looked at */
    int64_t cut_ns;      /* not before: the first shares of a new stream are guesses */
    int64_t measure_ns;  /* not measured again before, */
    int64_t fill_ns;     /* nor loaded */
    uint64_t fill_bytes; /* asked for the last time, */
    uint64_t fill_held;  /* when it held that much */
};

/* An item that was evicted. */
struct fb_steer_gone {
    uint64_t key;
    uint32_t stream;
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
    struct fb_mutex gone_lock;
    struct fb_steer_gone
        gone[FB_STEER_GONE_MAX]; /* more are not told of: ghosts are a sample anyway */
    unsigned gone_count;
    struct fb_steer_stream
        planned; /* what plans are read of: nothing of it goes for another of it */
    struct fb_steer_stream streams[FB_BRAIN_STREAMS];
    _Atomic uint64_t places[FB_STEER_PLACES]; /* hash, with the stream's number in its low byte */
};

#endif
