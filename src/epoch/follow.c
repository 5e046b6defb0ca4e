#include "epoch/follow.h"

#include <errno.h>
#include <string.h>

#include "core/mem.h"

#define SPAN_MIN    64u
#define CLOSE_MORE  8u
#define LEAP_CHANCE 1e-3 /* of a leap where there is none */
#define LEAP_MOST   32u  /* accesses that make a leap, at most */
#define RECENT      64u  /* files read last: a second look at one of them says nothing */

/* One of the two epochs that the plan knows. Turns of the next one go on where the current one
 * ends. */
struct lap {
    uint64_t *read;   /* a bit a turn, as the next */
    uint64_t *handed; /* out by next(), and not given up */
    uint64_t count;   /* read */
    uint64_t waiting; /* handed out and not read */
};

struct fb_follow {
    struct fb_plan *plan;
    uint64_t samples;
    uint64_t turns; /* of an epoch; a few of them are of nobody when the last batches are short */
    uint64_t batch; /* samples that a reader has at a time, */
    uint64_t step;  /* and readers side by side that have any */
    uint64_t span;  /* turns that they may be apart */
    uint64_t close; /* turns that the foremost goes at a time, at most: nearer than chance */
    struct lap now, next;
    uint64_t end; /* behind the last turn of somebody */
    uint64_t low, high, ahead;
    uint64_t swept; /* what was given up below it has been told */
    uint64_t skipped;
    uint64_t strange;
    uint64_t leap;                  /* where the last strange access was */
    unsigned leap_near;             /* strange ones in a row close to it */
    unsigned leap_sure;             /* so many are a leap */
    uint64_t hints[FB_FOLLOW_SURE]; /* turns of the next epoch that were read since the last one of
                                     * this epoch was */
    uint32_t recent[RECENT];
    uint32_t recent_at;
};

/* ---- turns ---- */

static uint64_t turn_of(const struct fb_follow *f, uint64_t k)
{
    uint64_t round = k / (f->step * f->batch), rest = k % (f->step * f->batch);

    return round * f->step * f->batch + rest % f->batch * f->step + rest / f->batch;
}

/* False for a turn of nobody. */
static bool access_of(const struct fb_follow *f, uint64_t turn, uint64_t *ret_k)
{
    uint64_t round = turn / (f->step * f->batch), rest = turn % (f->step * f->batch);

    *ret_k = round * f->step * f->batch + rest % f->step * f->batch + rest / f->step;
    return *ret_k < f->samples;
}

static bool get(const uint64_t *bits, uint64_t turn)
{
    return bits[turn / 64] >> turn % 64 & 1;
}

static bool is_read(const struct lap *lap, uint64_t turn)
{
    return get(lap->read, turn);
}

static void hand_out(struct lap *lap, uint64_t turn)
{
    if (get(lap->handed, turn))
        return;
    lap->handed[turn / 64] |= UINT64_C(1) << turn % 64;
    lap->waiting++;
}

static void give_up(struct lap *lap, uint64_t turn)
{
    if (!get(lap->handed, turn))
        return;
    lap->handed[turn / 64] &= ~(UINT64_C(1) << turn % 64);
    lap->waiting--;
}

static bool mark(struct lap *lap, uint64_t turn)
{
    if (is_read(lap, turn))
        return false;
    lap->read[turn / 64] |= UINT64_C(1) << turn % 64;
    lap->count++;
    lap->waiting -= get(lap->handed, turn);
    return true;
}

static size_t lap_words(const struct fb_follow *f)
{
    return f->turns / 64 + 1;
}

/* How far apart the accesses after a leap are, at most. A single reader does not drift. */
static uint64_t leap_near(const struct fb_follow *f)
{
    return f->step == 1 ? f->close : f->span + FB_FOLLOW_SURE;
}

/* In a short epoch strange accesses are near each other by chance: there it takes more of them. */
static unsigned leap_sure(const struct fb_follow *f)
{
    double share = (double)(2 * leap_near(f)) / (double)f->turns, chance = share;
    unsigned count = 2;

    for (; count < LEAP_MOST && (count < FB_FOLLOW_SURE || chance > LEAP_CHANCE); count++)
        chance *= share;
    return count;
}

/* ---- life ---- */

int fb_follow_new(struct fb_plan *plan, struct fb_follow **ret_follow)
{
    const struct fb_split *split = fb_plan_split(plan);
    struct fb_follow *f = fb_alloc(sizeof *f);

    if (!f) {
        fb_plan_free(plan);
        return -ENOMEM;
    }
    f->plan = plan;
    f->samples = fb_split_samples(split);
    /* Turns of nobody take memory, too: of a batch that is larger than what there is to read, and
     * of readers for whom there is no batch, there are none. */
    f->batch = fb_max_u64(fb_min_u64(split->batch, f->samples), 1);
    f->step = fb_max_u64(fb_min_u64(split->workers, fb_div_up(f->samples, f->batch)), 1);
    f->turns = fb_div_up(f->samples, f->step * f->batch) * f->step * f->batch;
    f->span = fb_max_u64(2 * f->step * f->batch, SPAN_MIN);
    f->close = 4 * f->step + CLOSE_MORE;
    f->leap_sure = leap_sure(f);
    for (uint64_t k = f->samples - fb_min_u64(f->samples, f->span); k < f->samples; k++)
        f->end = fb_max_u64(f->end, turn_of(f, k) + 1);
    memset(f->recent, 0xff, sizeof f->recent);
    f->now.read = fb_alloc_array(lap_words(f), sizeof *f->now.read);
    f->next.read = fb_alloc_array(lap_words(f), sizeof *f->next.read);
    f->now.handed = fb_alloc_array(lap_words(f), sizeof *f->now.handed);
    f->next.handed = fb_alloc_array(lap_words(f), sizeof *f->next.handed);
    if (!f->now.read || !f->next.read || !f->now.handed || !f->next.handed) {
        fb_follow_free(f);
        return -ENOMEM;
    }
    *ret_follow = f;
    return 0;
}

void fb_follow_free(struct fb_follow *f)
{
    if (!f)
        return;
    fb_plan_free(f->plan);
    free(f->now.read);
    free(f->next.read);
    free(f->now.handed);
    free(f->next.handed);
    free(f);
}

const struct fb_plan *fb_follow_plan(const struct fb_follow *f)
{
    return f->plan;
}

void fb_follow_stats(const struct fb_follow *f, struct fb_follow_stats *ret_stats)
{
    *ret_stats = (struct fb_follow_stats){
        .epoch = fb_plan_current(f->plan)->number,
        .samples = f->samples,
        .read = f->now.count,
        .skipped = f->skipped,
        .turn = f->high,
        .unread = f->now.waiting + f->next.waiting,
        .strange = f->strange,
        .turns = f->turns,
        .apart = f->step > 1 ? fb_min_u64(2 * f->step * f->batch, f->turns) : 0,
        .ahead = fb_plan_current(f->plan)->number + (f->ahead >= f->turns),
    };
}

/* ---- accesses ---- */

static bool is_recent(const struct fb_follow *f, uint32_t file)
{
    for (unsigned i = 0; i < RECENT; i++) {
        if (f->recent[i] == file)
            return true;
    }
    return false;
}

/* What lies far behind the readers will not be read any more. */
static void raise_low(struct fb_follow *f)
{
    uint64_t k;

    for (; f->low < f->high; f->low++) {
        if (is_read(&f->now, f->low) || !access_of(f, f->low, &k))
            continue;
        if (f->low + f->span >= f->high)
            return;
        f->skipped++;
        give_up(&f->now, f->low);
    }
}

/* The epoch goes on: what looked like the next one was chance, or another rank's. */
static void forget_hints(struct fb_follow *f)
{
    while (f->next.count > 0) {
        uint64_t turn = f->hints[--f->next.count];

        f->next.read[turn / 64] &= ~(UINT64_C(1) << turn % 64);
        f->next.waiting += get(f->next.handed, turn);
    }
}

/* Where the foremost reader goes next. What is farther off is merely possible, and in a short epoch
 * that is as possible by chance. */
static bool is_close(const struct fb_follow *f, uint64_t turn)
{
    return turn + f->close >= f->high && turn <= f->high + f->close;
}

/* Whether a file is among the first `most` turns of the next epoch. */
static bool begins_with(const struct fb_follow *f, uint32_t file, uint64_t most, uint64_t *ret_turn)
{
    uint64_t k;

    if (!fb_plan_access(f->plan, fb_plan_next(f->plan), file, &k))
        return false;
    *ret_turn = turn_of(f, k);
    return *ret_turn < most;
}

static int take(struct fb_follow *f, uint32_t file, uint64_t turn)
{
    bool late = turn < f->low;
    uint64_t first;

    /* Readers that lag behind the foremost hit upon the first of the next epoch now and then, but
     * not in a row. */
    if (is_close(f, turn) || !begins_with(f, file, f->close, &first))
        forget_hints(f);
    (void)mark(&f->now, turn);
    f->recent[f->recent_at++ % RECENT] = file;
    f->high = fb_max_u64(f->high, turn + 1);
    f->strange = 0;
    f->leap_near = 0;
    raise_low(f);
    return late ? FB_FOLLOW_LATE : FB_FOLLOW_READ;
}

static int begin_epoch(struct fb_follow *f, uint32_t file)
{
    struct lap old = f->now;

    f->now = f->next;
    memset(old.read, 0, lap_words(f) * sizeof *old.read);
    memset(old.handed, 0, lap_words(f) * sizeof *old.handed);
    f->next = (struct lap){.read = old.read, .handed = old.handed};
    f->ahead = f->ahead > f->turns ? f->ahead - f->turns : 0;
    f->low = f->high = f->swept = 0;
    f->skipped = 0;
    f->strange = 0;
    for (uint64_t t = 0; t < fb_min_u64(f->turns, f->close); t++) {
        if (is_read(&f->now, t))
            f->high = t + 1;
    }
    f->recent[f->recent_at++ % RECENT] = file;
    raise_low(f);
    return fb_plan_advance(f->plan) < 0 ? -ENOMEM : FB_FOLLOW_EPOCH;
}

/* At the end of an epoch nothing is to be expected but the very first of the next. */
static bool is_first_of_next(const struct fb_follow *f, uint32_t file)
{
    uint64_t turn;

    return f->high + f->step >= f->end && begins_with(f, file, f->step, &turn);
}

/* One more reason to believe that the next epoch has begun; true: reasons enough. What this epoch
 * still waits for is a weak one: it may come late, and be among the first of the next by chance. */
static bool begins_next(struct fb_follow *f, uint32_t file, bool is_due)
{
    uint64_t need = !is_due && is_first_of_next(f, file) ? 1 : FB_FOLLOW_SURE;
    uint64_t turn;

    if (!begins_with(f, file, f->close, &turn))
        return false;
    if (mark(&f->next, turn))
        f->hints[f->next.count - 1] = turn;
    return f->next.count >= need;
}

static bool leaps(struct fb_follow *f, uint64_t turn)
{
    uint64_t near = leap_near(f);
    bool is_near = turn < f->leap + near && f->leap < turn + near;

    f->leap_near = is_near ? f->leap_near + 1 : 1;
    f->leap = turn;
    return f->leap_near >= f->leap_sure;
}

static int leap_to(struct fb_follow *f, uint32_t file, uint64_t turn)
{
    f->high = turn;
    f->ahead = turn + 1;
    raise_low(f);
    return take(f, file, turn);
}

int fb_follow_access(struct fb_follow *f, uint32_t file)
{
    uint64_t k, turn = 0;
    bool ours = fb_plan_access(f->plan, fb_plan_current(f->plan), file, &k);
    bool again;

    if (ours)
        turn = turn_of(f, k);
    again = ours && is_read(&f->now, turn);
    if (ours && !again && turn <= f->high + f->span)
        return !is_close(f, turn) && begins_next(f, file, true) ? begin_epoch(f, file)
                                                                : take(f, file, turn);
    if (again && is_recent(f, file) && !is_first_of_next(f, file))
        return FB_FOLLOW_AGAIN;
    if (begins_next(f, file, false))
        return begin_epoch(f, file);
    if (ours && !again && leaps(f, turn))
        return leap_to(f, file, turn);
    f->strange++;
    return again ? FB_FOLLOW_BACK : FB_FOLLOW_STRANGE;
}

/* ---- what comes ---- */

bool fb_follow_next(struct fb_follow *f, uint32_t *ret_file)
{
    uint64_t k;

    /* Readers that are faster take what is nearest themselves. */
    if (f->ahead < f->high)
        f->ahead = f->high + f->step;
    for (; f->ahead < 2 * f->turns; f->ahead++) {
        bool now = f->ahead < f->turns;
        struct lap *lap = now ? &f->now : &f->next;
        uint64_t turn = now ? f->ahead : f->ahead - f->turns;

        if (is_read(lap, turn) || !access_of(f, turn, &k))
            continue;
        *ret_file =
            fb_plan_file(f->plan, now ? fb_plan_current(f->plan) : fb_plan_next(f->plan), k);
        hand_out(lap, turn);
        f->ahead++;
        return true;
    }
    return false;
}

bool fb_follow_given_up(struct fb_follow *f, uint32_t *ret_file)
{
    uint64_t k;

    while (f->swept < f->low) {
        uint64_t turn = f->swept++;

        if (is_read(&f->now, turn) || !access_of(f, turn, &k))
            continue;
        *ret_file = fb_plan_file(f->plan, fb_plan_current(f->plan), k);
        return true;
    }
    return false;
}

bool fb_follow_is_wanted(const struct fb_follow *f, uint32_t file)
{
    uint64_t k;

    return f->ahead > f->turns && fb_plan_access(f->plan, fb_plan_next(f->plan), file, &k) &&
           turn_of(f, k) < f->ahead - f->turns;
}

bool fb_follow_is_read(const struct fb_follow *f, uint32_t file)
{
    uint64_t k;

    return fb_plan_access(f->plan, fb_plan_current(f->plan), file, &k) &&
           is_read(&f->now, turn_of(f, k));
}

bool fb_follow_next_turn(const struct fb_follow *f, uint32_t file, uint64_t *ret_turn)
{
    uint64_t k;

    if (!fb_plan_access(f->plan, fb_plan_next(f->plan), file, &k))
        return false;
    *ret_turn = turn_of(f, k);
    return true;
}

bool fb_follow_is_due(const struct fb_follow *f, uint32_t file, uint64_t more)
{
    uint64_t end = f->ahead + more, turn, k;

    if (fb_plan_access(f->plan, fb_plan_current(f->plan), file, &k)) {
        turn = turn_of(f, k);
        if (turn >= f->low && turn < end && !is_read(&f->now, turn))
            return true;
    }
    return end > f->turns && fb_follow_next_turn(f, file, &turn) && turn < end - f->turns &&
           !is_read(&f->next, turn);
}
