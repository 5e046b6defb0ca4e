/*
 * policy/ttl.h - when a stream's job has ended (IGTCache, section 3.3).
 *
 * The times between visits are taken for normally distributed; a silence longer than all but one in
 * a hundred of them (2.33 deviations above the mean), and a base of 60 s on top against mere
 * disturbance, means that nobody reads any more: all the stream has may leave. The paper says so of
 * random streams only, since what is skewed ages by itself in its LRU; where each stream has a
 * share of its own, it does not. Pure.
 */
#ifndef FB_POLICY_TTL_H
#define FB_POLICY_TTL_H

#include <stdbool.h>
#include <stdint.h>

#include "stream/streams.h"

#define FB_TTL_DEVIATIONS 2.33
#define FB_TTL_BASE_NS    (60 * 1000000000LL)

/* INT64_MAX: it never ends by itself. */
int64_t fb_ttl_ns(const struct fb_stream_info *stream, int64_t base_ns);

bool fb_ttl_is_over(const struct fb_stream_info *stream, int64_t base_ns, int64_t now_ns);

#endif
