#include "source/s3_pace.h"

#define SLOWER         2.0  /* so many times longer, and a bit more: enough are on the wire. */
#define SLOWER_NS      10e6 /* A queue so long at the server keeps it busy between our rounds. */
#define RECENT         0.1
#define GROWN          1.25
#define FLAT_ROUNDS    2
#define PROBE_ROUNDS   2
#define PATIENCE_FIRST 256u
#define PATIENCE_MOST  16384u
#define NEWS           1.25  /* so much slower is something new */
#define REQUEST_BYTES  256e3 /* that take a server as long as a request does */

void fb_s3_pace_init(struct fb_s3_pace *pace, unsigned most)
{
    *pace = (struct fb_s3_pace){
        .limit = FB_S3_PACE_FIRST, .most = most, .patience = PATIENCE_FIRST, .round_end = -1};
    if (pace->limit > most)
        pace->limit = most;
    pace->good_limit = pace->round_limit = pace->limit;
}

struct fb_s3_pace_mark fb_s3_pace_sent(const struct fb_s3_pace *pace, int64_t now_ns)
{
    return (struct fb_s3_pace_mark){.sent_ns = now_ns, .delivered = pace->delivered};
}

static void set_limit(struct fb_s3_pace *pace, double limit)
{
    pace->limit = limit > pace->most ? pace->most : limit;
    if (pace->limit < FB_S3_PACE_LEAST)
        pace->limit = FB_S3_PACE_LEAST;
}

/* ---- START ----------------------------------------------------------------------------------- */

static bool has_grown(struct fb_s3_pace *pace)
{
    bool grown = false;

    for (unsigned i = 0; i < FB_S3_PACE_KINDS; i++) {
        if (pace->kinds[i].rate >= GROWN * pace->kinds[i].best_rate && pace->kinds[i].rate > 0) {
            pace->kinds[i].best_rate = pace->kinds[i].rate;
            grown = true;
        }
    }
    return grown;
}

static void judge_start(struct fb_s3_pace *pace)
{
    if (has_grown(pace)) {
        pace->good_limit = pace->round_limit;
        pace->rounds = 0;
    } else if (++pace->rounds == FLAT_ROUNDS) {
        pace->state = FB_S3_PACE_STEADY;
        pace->steady_from = pace->delivered;
        set_limit(pace, pace->good_limit);
    }
}

/* ---- STEADY and PROBE ------------------------------------------------------------------------ */

static void begin_probe(struct fb_s3_pace *pace)
{
    pace->state = FB_S3_PACE_PROBE;
    pace->rounds = 0;
    pace->good_limit = pace->limit;
    set_limit(pace, pace->limit / 2 < FB_S3_PACE_FIRST ? pace->limit / 2 : FB_S3_PACE_FIRST);
    for (unsigned i = 0; i < FB_S3_PACE_KINDS; i++)
        pace->kinds[i].probed_ns = 0;
}

static void judge_probe(struct fb_s3_pace *pace)
{
    bool news = false;

    if (++pace->rounds < PROBE_ROUNDS) {
        for (unsigned i = 0; i < FB_S3_PACE_KINDS; i++)
            pace->kinds[i].probed_ns = 0;
        return;
    }
    for (unsigned i = 0; i < FB_S3_PACE_KINDS; i++) {
        if (pace->kinds[i].probed_ns == 0)
            continue;
        news |= pace->kinds[i].probed_ns > NEWS * pace->kinds[i].best_ns;
        pace->kinds[i].best_ns = pace->kinds[i].probed_ns;
    }
    if (news)
        pace->patience = PATIENCE_FIRST;
    else if (pace->patience < PATIENCE_MOST)
        pace->patience *= 2;
    pace->state = FB_S3_PACE_STEADY;
    pace->slow = 0;
    set_limit(pace, pace->good_limit);
}

static void go_on(struct fb_s3_pace *pace, enum fb_s3_pace_kind kind)
{
    double recent = pace->kinds[kind].recent_ns;

    if (recent <= pace->kinds[kind].best_ns * SLOWER + SLOWER_NS) {
        pace->slow = 0;
        set_limit(pace, pace->limit + 1 / pace->limit);
    } else if (++pace->slow >= pace->patience) {
        begin_probe(pace);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void end_round(struct fb_s3_pace *pace)
{
    if (pace->state == FB_S3_PACE_START && pace->round_full)
        judge_start(pace);
    else if (pace->state == FB_S3_PACE_PROBE)
        judge_probe(pace);
    pace->round_end = pace->delivered;
    pace->round_limit = pace->limit;
    pace->round_full = false;
    for (unsigned i = 0; i < FB_S3_PACE_KINDS; i++)
        pace->kinds[i].rate = 0;
}

static void learn(struct fb_s3_pace *pace, const struct fb_s3_pace_answer *answer)
{
    double *recent = &pace->kinds[answer->kind].recent_ns;
    double *best = &pace->kinds[answer->kind].best_ns;
    double *probed = &pace->kinds[answer->kind].probed_ns;
    double first = (double)(answer->first_ns - answer->mark.sent_ns);
    double took = (double)(answer->now_ns - answer->mark.sent_ns);
    double rate = (pace->delivered - answer->mark.delivered) / (took > 1 ? took : 1);

    if (pace->state == FB_S3_PACE_STEADY)
        *recent = *recent == 0 ? first : *recent + RECENT * (first - *recent);
    if (*best == 0 || first < *best)
        *best = first;
    if (*probed == 0 || first < *probed)
        *probed = first;
    if (rate > pace->kinds[answer->kind].rate)
        pace->kinds[answer->kind].rate = rate;
}

void fb_s3_pace_answered(struct fb_s3_pace *pace, const struct fb_s3_pace_answer *answer)
{
    if (answer->mark.delivered > pace->round_end)
        end_round(pace);
    pace->delivered += 1 + (double)answer->bytes / REQUEST_BYTES;
    pace->round_full |= answer->waiting;
    /* What the start had sent too much of is still on its way back. */
    if (pace->state == FB_S3_PACE_STEADY && answer->mark.delivered <= pace->steady_from)
        return;
    learn(pace, answer);
    if (!answer->waiting)
        return;
    if (pace->state == FB_S3_PACE_START)
        set_limit(pace, pace->limit + 1);
    else if (pace->state == FB_S3_PACE_STEADY)
        go_on(pace, answer->kind);
}

void fb_s3_pace_refused(struct fb_s3_pace *pace, int64_t sent_ns, int64_t now_ns)
{
    if (sent_ns < pace->cut_ns)
        return;
    pace->cut_ns = now_ns;
    if (pace->state == FB_S3_PACE_START)
        pace->steady_from = pace->delivered;
    pace->state = FB_S3_PACE_STEADY;
    pace->slow = 0;
    set_limit(pace, pace->limit * 2 / 3);
}
