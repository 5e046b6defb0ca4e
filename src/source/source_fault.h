/*
 * source/source_fault.h - a source that makes another one slow and unreliable, as told.
 *
 * For tests, the demo and benchmarks: latency, bandwidth, errors, short reads and hangs in front of
 * a real source. It speaks to the inner backend through a second source, whose deadlines lie a
 * little later, so deadlines and health are those of the outer one. Settings can be changed while
 * it runs. What happens to a job depends on the seed and on how many jobs came before it. CLOSE
 * goes through untouched.
 */
#ifndef FB_SOURCE_SOURCE_FAULT_H
#define FB_SOURCE_SOURCE_FAULT_H

#include "source/source.h"

struct fb_fault_config {
    int64_t latency_ns; /* before each job */
    int64_t jitter_ns;  /* plus 0 to this, uniform */
    uint64_t bandwidth; /* bytes a second over all READs and WRITEs; 0: no limit */
    double error;       /* share of jobs that fail ... */
    int error_code;     /* ... with this (positive) errno; 0: EIO */
    double short_read; /* share of READs cut short, with result 0: a backend that breaks its word */
    double hang;       /* share of jobs never answered while this is > 0 */
    uint64_t seed;
};

/* "latency=5ms,jitter=1ms,bandwidth=200M,error=1%,errno=5,short=1%,hang=0.1%,seed=7"; what is not
 * named is 0. -EINVAL with a sentence. */
FB_MUST_CHECK int fb_fault_parse(const char *text, struct fb_fault_config *ret_config,
                                 struct fb_error *err);

/* Takes `inner` over, also on failure. The URI is the inner one's. */
FB_MUST_CHECK int fb_source_fault_open(struct fb_source *inner,
                                       const struct fb_fault_config *config,
                                       struct fb_source **ret_source);

/* Jobs that hang are let go when `hang` is set to 0: they go on, unless they expired. A new seed
 * starts the dice anew. */
void fb_source_fault_set(struct fb_source *source, const struct fb_fault_config *config);

#endif
