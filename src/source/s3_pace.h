/*
 * source/s3_pace.h - how many requests a server takes well at once.
 *
 *     answered: one more per round trip while more of them wait and first bytes come as quickly as
 *               they do when the server has little to do
 *     refused (SlowDown, 503, 429): a third fewer, once for all that were under way by then
 *
 * What is quick is learned for each kind of request, as a HEAD is answered sooner than a GET, and
 * forgotten in a few hundred answers: a server that is slower for good is no reason to stay with
 * few. Pure: no clock, no lock.
 */
#ifndef FB_SOURCE_S3_PACE_H
#define FB_SOURCE_S3_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define FB_S3_PACE_FIRST 8
#define FB_S3_PACE_LEAST 2

enum fb_s3_pace_kind {
    FB_S3_PACE_BYTES, /* GET of an object */
    FB_S3_PACE_WORDS, /* everything else */
    FB_S3_PACE_KINDS,
};

struct fb_s3_pace {
    double limit;
    unsigned most;
    int64_t cut_ns; /* when it was made less the last time */

    struct {
        double recent_ns; /* to the first byte, as of late, */
        double best_ns;   /* and at best; 0: unknown */
    } kinds[FB_S3_PACE_KINDS];
};

void fb_s3_pace_init(struct fb_s3_pace *pace, unsigned most);
/* `waiting`: there are more than may be sent. */
void fb_s3_pace_answered(struct fb_s3_pace *pace, enum fb_s3_pace_kind kind, int64_t took_ns,
                         bool waiting);
void fb_s3_pace_refused(struct fb_s3_pace *pace, int64_t sent_ns, int64_t now_ns);

#endif
