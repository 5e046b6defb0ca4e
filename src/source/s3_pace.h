/*
 * source/s3_pace.h - how many requests a server takes well at once.
 *
 *     START    one more for each answer, so twice as many a round, while what the server delivers
 *        │     grows by a quarter a round. After two rounds in which it did not, as many as in the
 *        │     last round in which it did: what was sent beyond that only waited.
 *        ▼
 *     STEADY   one more a round while first bytes come about as quickly as they do when the server
 *        │▲    has little to do
 *        ▼│
 *     PROBE    when they have not for some hundred answers: is the server slower, or do requests
 *              wait for each other there? With few for two rounds it is seen: what is quick is what
 *              the second of them says. When nothing new is learned the next probe comes after
 *              twice as many answers.
 *
 *     refused (SlowDown, 503, 429): a third fewer, once for all that were under way by then, and
 *              the start is over
 *
 * A round is the time in which all that was under way is answered: it ends with the first answer to
 * a request that was sent after it began. What is delivered counts requests and bytes, as a small
 * object costs a server its request and a large one its bytes; over the time that a request took,
 * so that neither pauses of ours nor answers that come in heaps matter. Both it and what is quick
 * are learned for each kind of request, as a HEAD is answered sooner than a GET. Nothing is learned
 * from rounds in which nobody waited to be sent.
 *
 * The start is that of BBR (Cardwell et al., 2016): Amazon's answers take 30 ms, and one more a
 * round would need two seconds for what a few rounds do. Pure: no clock, no lock.
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

enum fb_s3_pace_state {
    FB_S3_PACE_START,
    FB_S3_PACE_STEADY,
    FB_S3_PACE_PROBE,
};

struct fb_s3_pace {
    enum fb_s3_pace_state state;
    double limit;
    unsigned most;
    int64_t cut_ns;   /* when it was made less the last time */
    double delivered; /* so far */

    double round_end;   /* when somebody is answered who was sent with so much delivered */
    double round_limit; /* as it was when the round began */
    bool round_full;    /* some waited */
    unsigned rounds;    /* START: in a row without more; PROBE: so far */
    double good_limit;  /* START: of the last round with more; PROBE: what it was before */
    double steady_from; /* delivered when the start was over */
    unsigned slow;      /* answers that came late, in a row */
    unsigned patience;  /* with how many of them */

    struct {
        double recent_ns; /* to the first byte, as of late, */
        double best_ns;   /* and at best; 0: unknown */
        double probed_ns; /* at best in the last round of a probe */
        double rate;      /* delivered a nanosecond, at best in this round, */
        double best_rate; /* and in all */
    } kinds[FB_S3_PACE_KINDS];
};

/* Of a request that is sent, kept for its answer. */
struct fb_s3_pace_mark {
    int64_t sent_ns;
    double delivered;
};

struct fb_s3_pace_answer {
    enum fb_s3_pace_kind kind;
    struct fb_s3_pace_mark mark;
    int64_t first_ns; /* when its first byte came, */
    int64_t now_ns;   /* and its last */
    uint64_t bytes;
    bool waiting; /* there are more than may be sent */
};

void fb_s3_pace_init(struct fb_s3_pace *pace, unsigned most);
struct fb_s3_pace_mark fb_s3_pace_sent(const struct fb_s3_pace *pace, int64_t now_ns);
void fb_s3_pace_answered(struct fb_s3_pace *pace, const struct fb_s3_pace_answer *answer);
void fb_s3_pace_refused(struct fb_s3_pace *pace, int64_t sent_ns, int64_t now_ns);

#endif
