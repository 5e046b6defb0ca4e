/*
 * policy/glcache.h - GL-Cache (Yang, Mao, Yue, Rashmi, FAST 2023): learned eviction of groups.
 *
 * A group is what was written at about the same time: a segment. This part learns how useful groups
 * are and ranks them; the owner has the objects, writes groups and merges them. Group numbers are
 * the owner's slots, 0 to groups - 1.
 *
 *   utility of an object at time t: 1 / (size * time until it is asked for), 0 if it never is;
 *   of a group: the sum over its objects
 *   features: request rate, write rate and miss ratio in the window in which the group was opened;
 *   mean object size; age; requests; objects asked for
 *
 * Training: groups are sampled and their features copied; from then on every object that is asked
 * for adds its utility once, also when the group has been evicted since (ghosts). At the end of the
 * interval these rows and those of intervals before, at most 2,048, train a model. Where the paper
 * does so once a day, an interval here is half a turnover of the cache, and longer later on, so the
 * first model comes after half a turnover. When a tenth more of the requests go on missing and
 * hardly anything old is asked for, what was learned is of a time that is over: it begins anew.
 *
 * Where the paper's words alone do worse than its authors' code, or squared loss does:
 * - Groups are ranked by utility per byte. They have equal numbers of objects, not of bytes.
 * - A merged group is as old as the merge, not as its parts were in the mean. Else it would be
 *   merged again at once, and again, until nothing of it is left.
 * - A tenth of the interval is added to every wait. What is asked for right after the sampling is
 *   kept by a merge anyway, and one such request would outweigh all others of a group.
 *
 * An object costs 5 bytes. Times are counted in requests, as the authors' code does, apart from the
 * rates, which need seconds. Pure: no I/O, no locks, no clock; calls come one at a time.
 */
#ifndef FB_POLICY_GLCACHE_H
#define FB_POLICY_GLCACHE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_GL_NONE UINT32_MAX

enum fb_gl_feature {
    FB_GL_REQUEST_RATE,
    FB_GL_WRITE_RATE,
    FB_GL_MISS_RATIO,
    FB_GL_SIZE,
    FB_GL_AGE,
    FB_GL_REQUESTS,
    FB_GL_ACTIVE,
    FB_GL_FEATURES,
};

struct fb_gl_meta {
    uint32_t last; /* request number of the last access */
    uint8_t
        mark; /* bit 7: asked for since its group was opened; below: the sampling it counted in */
} __attribute__((packed));

static_assert(sizeof(struct fb_gl_meta) == 5, "per object");

#define FB_GL_ACTIVE_BIT 0x80u
#define FB_GL_TURNS      0x7fu

struct fb_gl_group {
    float request_rate;
    float write_rate;
    float miss_ratio;
    uint32_t opened; /* request number */
    uint32_t requests;
    uint32_t active;
    uint32_t objects;
    uint32_t row;  /* of the sample that is being counted, or NONE */
    uint64_t size; /* of all objects */
    uint8_t turn;  /* changes with every sampling */
    bool used;
    bool open; /* still written: neither sampled nor evicted */
};

struct fb_gl_settings {
    double evict;      /* share of the groups that are evicted by one ranking */
    double interval;   /* of training, in turnovers of the cache; 0: a half, later up to 8 */
    unsigned features; /* a bit for each that is used, 1 << enum fb_gl_feature */
};

#define FB_GL_FEATURES_ALL ((1u << FB_GL_FEATURES) - 1)

struct fb_gl {
    uint32_t now; /* requests */
    struct fb_gl_group *group;
    size_t groups;
    uint32_t ghosts; /* how many there are */
    struct fb_gl_state *state;
};

FB_MUST_CHECK int fb_gl_create(const struct fb_gl_settings *settings, uint64_t seed,
                               struct fb_gl **ret_gl);
void fb_gl_destroy(struct fb_gl *gl);

/* Makes room for groups numbered below `groups`. */
FB_MUST_CHECK int fb_gl_reserve(struct fb_gl *gl, size_t groups);

/* A group begins, and is complete. */
void fb_gl_open(struct fb_gl *gl, uint32_t group);
void fb_gl_close(struct fb_gl *gl, uint32_t group);

/* `group` becomes what remains of these; it may be one of them. The owner add()s the objects. */
void fb_gl_merge(struct fb_gl *gl, const uint32_t *merged, unsigned count, uint32_t group);

/* An object is in the group now: it was written, or kept in a merge. */
void fb_gl_add(struct fb_gl *gl, uint32_t group, uint32_t size, struct fb_gl_meta *meta);

/* An object of the group, which has not been merged away yet, is evicted. */
void fb_gl_evicted(struct fb_gl *gl, uint32_t group, uint64_t hash, const struct fb_gl_meta *meta);

/* For fb_gl_hit(). */
void fb_gl_count(struct fb_gl *gl, struct fb_gl_group *group, uint32_t size,
                 struct fb_gl_meta *meta);
void fb_gl_ghost(struct fb_gl *gl, uint64_t hash, uint32_t size);

/* A request for an object in the group. */
static inline void fb_gl_hit(struct fb_gl *gl, uint32_t group, uint32_t size,
                             struct fb_gl_meta *meta)
{
    struct fb_gl_group *g = &gl->group[group];

    gl->now++;
    meta->last = gl->now;
    g->requests++;
    if (!(meta->mark & FB_GL_ACTIVE_BIT)) {
        meta->mark |= FB_GL_ACTIVE_BIT;
        g->active++;
    }
    if (fb_unlikely(g->row != FB_GL_NONE))
        fb_gl_count(gl, g, size, meta);
}

/* A request for one that is not cached. */
void fb_gl_miss(struct fb_gl *gl, uint64_t hash, uint32_t size, uint32_t now_s,
                struct fb_gl_meta *meta);

/* The full cache tells how many objects it has: sampling and training when it is time. */
FB_MUST_CHECK int fb_gl_step(struct fb_gl *gl, uint64_t cached);

/* The next victim by the last ranking, or by a new one; NONE: there is no model yet, so the owner
 * goes through the groups in the order of writing. */
FB_MUST_CHECK int fb_gl_victim(struct fb_gl *gl, uint32_t *ret_group);

unsigned fb_gl_trainings(const struct fb_gl *gl);
unsigned fb_gl_drifts(const struct fb_gl *gl); /* how often it began anew */
void fb_gl_importance(const struct fb_gl *gl, double ret_shares[FB_GL_FEATURES]);

#endif
