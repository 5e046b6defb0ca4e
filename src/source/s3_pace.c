#include "source/s3_pace.h"

#define SLOWER    2.0 /* so many times longer, and a bit more: enough are on the wire */
#define SLOWER_NS 5e6
#define RECENT    0.1
#define FORGET    (1.0 / 256)

void fb_s3_pace_init(struct fb_s3_pace *pace, unsigned most)
{
    *pace = (struct fb_s3_pace){.limit = FB_S3_PACE_FIRST, .most = most};
    if (pace->limit > most)
        pace->limit = most;
}

void fb_s3_pace_answered(struct fb_s3_pace *pace, enum fb_s3_pace_kind kind, int64_t took_ns,
                         bool waiting)
{
    double *recent = &pace->kinds[kind].recent_ns, *best = &pace->kinds[kind].best_ns;
    double took = (double)took_ns;

    *recent = *recent == 0 ? took : *recent + RECENT * (took - *recent);
    *best = *best == 0 || took < *best ? took : *best + FORGET * (took - *best);
    if (!waiting || *recent > *best * SLOWER + SLOWER_NS)
        return;
    pace->limit += 1 / pace->limit;
    if (pace->limit > pace->most)
        pace->limit = pace->most;
}

void fb_s3_pace_refused(struct fb_s3_pace *pace, int64_t sent_ns, int64_t now_ns)
{
    if (sent_ns < pace->cut_ns)
        return;
    pace->cut_ns = now_ns;
    pace->limit = pace->limit * 2 / 3;
    if (pace->limit < FB_S3_PACE_LEAST)
        pace->limit = FB_S3_PACE_LEAST;
}
