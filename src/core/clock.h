/*
 * core/clock.h - the two clocks. Deadlines, ages and validity use the monotonic one; only versions
 * of files are compared with the wall clock.
 */
#ifndef FB_CORE_CLOCK_H
#define FB_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define FB_NS_PER_US 1000LL
#define FB_NS_PER_MS 1000000LL
#define FB_NS_PER_S  1000000000LL
#define FB_NEVER_NS  INT64_MAX

/* Wraps beyond the year 2262, which a file's time may be: it still tells versions apart. */
static inline int64_t fb_timespec_ns(const struct timespec *ts)
{
    return (int64_t)((uint64_t)ts->tv_sec * FB_NS_PER_S + (uint64_t)ts->tv_nsec);
}

static inline int64_t fb_clock_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return fb_timespec_ns(&ts);
}

static inline int64_t fb_now_ns(void)
{
    return fb_clock_ns(CLOCK_MONOTONIC);
}

/* A few milliseconds late, and three times cheaper: for stamps on the hit path. */
static inline int64_t fb_now_coarse_ns(void)
{
    return fb_clock_ns(CLOCK_MONOTONIC_COARSE);
}

static inline int64_t fb_wall_ns(void)
{
    return fb_clock_ns(CLOCK_REALTIME);
}

void fb_sleep_ns(int64_t duration_ns);

#endif
