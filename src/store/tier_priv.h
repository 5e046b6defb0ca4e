/*
 * store/tier_priv.h - what the media implement, and the bookkeeping that tier.c does for all of
 * them.
 *
 * States of a slot: OLD (as found at start), TAKEN (lent or sealed), FREE (may be lent; its space
 * is allocated), BARE (may be lent, but has no space in the file system yet). FREE and BARE slots
 * stand in two queues a stripe; a stripe is a directory, and DRAM is a single one.
 */
#ifndef FB_STORE_TIER_PRIV_H
#define FB_STORE_TIER_PRIV_H

#include "core/lock.h"
#include "store/tier.h"

#define FB_TIER_RETRY_NS    1000000000LL /* after the file system was found full */
#define FB_TIER_PATIENCE_NS 5000000000LL /* with a file system that is asked for space, */
#define FB_TIER_LATE_NS     10000000LL   /* and once it was late */
#define FB_SLOT_NONE        UINT32_MAX

enum fb_slot_state {
    FB_SLOT_OLD,
    FB_SLOT_TAKEN,
    FB_SLOT_FREE,
    FB_SLOT_BARE,
};

struct fb_slot {
    uint32_t next;  /* in its queue */
    uint8_t state;  /* enum fb_slot_state */
    bool has_space; /* OLD, TAKEN: blocks are allocated */
    bool returns;   /* who has given it waits until it is free */
};

struct fb_slot_queue {
    uint32_t first; /* FB_SLOT_NONE: empty */
    uint32_t last;
};

struct fb_stripe {
    struct fb_slot_queue free;
    struct fb_slot_queue bare;
    uint32_t held; /* slots OLD and TAKEN */
    uint32_t bare_count;
    int64_t full_until_ns;
    bool is_full;    /* the file system gave no more when it was asked last */
    bool told;       /* the log says so */
    bool stuck;      /* as fb_tier_excess() has seen it last */
    bool keeps;      /* the file system does not take space back */
    unsigned staged; /* staging buffers that its slots have */
    unsigned seals;  /* under way */
    /* Relaxed: hints, the medium is the judge. */
    _Atomic int64_t
        seals_ns; /* the last one has ended then, or the first begun; 0: there is none */
    _Atomic int64_t asked_ns; /* its file system is asked for space since then; 0: it is not */
    _Atomic bool broken;      /* lends nothing more; set once */
};

struct fb_tier_ops {
    const char *name;
    bool persistent;
    size_t state_bytes;
    /* `tier` has slots, segment_bytes and zeroed state. On failure close() follows. */
    int (*open)(struct fb_tier *tier, const struct fb_tier_config *config, struct fb_error *err);
    void (*close)(struct fb_tier *tier);
    /* Memory of a slot; NULL: the tier lends staging memory. */
    uint8_t *(*memory)(struct fb_tier *tier, uint32_t slot);
    /* See fb_tier_smooth(); one slot at a time. May be NULL. */
    void (*smooth)(struct fb_tier *tier, uint32_t slot, bool may_wait);
    /* See fb_tier_touch(). May be NULL. */
    void (*touch)(uint8_t *memory, uint64_t bytes);
    void (*seal)(struct fb_tier *tier, struct fb_tier_seal *seal);
    void (*read)(struct fb_tier *tier, struct fb_tier_read *const *reads, unsigned count);
    /* Whether a directory does not answer, and is to be left alone. NULL: that cannot be. */
    bool (*stuck)(struct fb_tier *tier, unsigned stripe);
    /* The first page of a slot. NULL: there is nothing to scan. */
    int (*scan)(struct fb_tier *tier, uint32_t slot, uint8_t *ret_page);
    /* Scanning is over. May be NULL. */
    void (*scan_end)(struct fb_tier *tier);
};

struct fb_tier_files; /* tier_files.h */

struct fb_tier {
    const struct fb_tier_ops *ops;
    enum fb_tier_kind kind;
    uint32_t slots;
    unsigned stripe_count;
    uint64_t segment_bytes;
    struct fb_tier_files *files; /* persistent media; else NULL */
    void *state;
    int memfd; /* DRAM; else -1 */
    uint8_t *map;
    bool scanning; /* until scan_end() */

    /* Ask the file systems for space and give it back, slot by slot: one thread, and another for
     * each that a file system does not let go of, at most one a directory. */
    pthread_t space_threads[FB_TIER_DIRS_MAX];

    struct fb_mutex lock; /* FB_RANK_TIER: guards all that follows */
    struct fb_cond space_wake;
    struct fb_cond space_told;
    struct fb_slot_queue back; /* slots given back, whose space the file system may want */
    uint64_t space_answers;
    unsigned space_running; /* threads */
    unsigned space_idle;    /* of them */
    bool space_helping;     /* one is being started */
    bool space_stop;
    bool space_wanted;
    bool space_gave; /* the last answer was a slot */
    bool space_late; /* the file system has let somebody wait in vain, and still does */
    unsigned next_stripe;
    struct fb_slot *slot;
    struct fb_stripe stripes[FB_TIER_DIRS_MAX];
    uint8_t *staging;
    unsigned staging_count;
    unsigned staging_free;
    uint8_t **staging_stack;
};

extern const struct fb_tier_ops fb_tier_dram;
extern const struct fb_tier_ops fb_tier_pmem;
extern const struct fb_tier_ops fb_tier_nvme;

/* Makes the slots of a tier: OLD where the medium is persistent, else FREE. */
FB_MUST_CHECK int fb_tier_space_init(struct fb_tier *tier);

/* The thread that asks for space; stop() waits for all, and takes a tier that has none. */
FB_MUST_CHECK int fb_tier_space_start(struct fb_tier *tier);
void fb_tier_space_stop(struct fb_tier *tier);

/* A directory or its medium failed: logs it, once, and lends nothing more of it. */
void fb_tier_break(struct fb_tier *tier, unsigned stripe, int code);

/* A seal of a persistent tier is on its way, and has ended. */
void fb_tier_seal_begins(struct fb_tier *tier, uint32_t slot);
void fb_tier_seal_ends(struct fb_tier *tier, uint32_t slot);

/* Ends a seal: a failure of the medium is taken note of; then done(). */
void fb_tier_seal_end(struct fb_tier_seal *seal, int result);

/* Fills in the header's first page in the memory. */
void fb_tier_seal_header(struct fb_tier_seal *seal);

/* Where the bytes end that a seal has to write: table and all, in whole pages. */
uint64_t fb_tier_seal_bytes(const struct fb_tier_seal *seal);

#endif
