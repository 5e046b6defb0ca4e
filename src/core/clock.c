#include "core/clock.h"

#include <errno.h>

void fb_sleep_ns(int64_t duration_ns)
{
    struct timespec until;
    int64_t until_ns;

    if (duration_ns <= 0)
        return;
    if (__builtin_add_overflow(fb_now_ns(), duration_ns, &until_ns))
        until_ns = FB_NEVER_NS;
    until.tv_sec = until_ns / FB_NS_PER_S;
    until.tv_nsec = until_ns % FB_NS_PER_S;
    /* An absolute deadline: however many signals interrupt it, the sleep grows no longer. */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}
