#include "stream/window.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"

#define RETURNS_MIN   8  /* before a cycle is believed */
#define RETURNS_MANY  16 /* enough to judge by their mean */
#define RETURNS_ROUND 64 /* then counts are halved */

#define IRREGULAR_IN   0.15F
#define IRREGULAR_EACH 0.0125F
#define IRREGULAR_OUT  0.25F
#define MEAN_WEIGHT    4 /* a new interval has one part in this many of the mean */
#define AGREED_MIN     4
#define REST           4    /* one window in so many is judged when verdicts agree */
#define GUESS_SHARE    0.7F /* of steps that go on */
#define LEVEL_MAX      31

void fb_window_init(struct fb_window *w, uint32_t size, enum fb_numbering numbering, uint8_t shift)
{
    FB_ASSERT(size >= FB_WINDOW_MIN && size <= FB_WINDOW_MAX);
    w->size = (uint16_t)size;
    w->numbering = (uint8_t)numbering;
    w->shift = shift;
}

/* ---- samples ---- */

#define MARKS_A_WORD 8
#define EACH_BYTE    0x0101010101010101ULL

static_assert(FB_SAMPLES % MARKS_A_WORD == 0, "marks are looked at eight at a time");

static uint8_t mark_of(uint32_t tag)
{
    return (uint8_t)(tag >> 24);
}

static void thin_out(struct fb_window *w)
{
    uint8_t kept = 0;

    w->sample_level++;
    for (uint8_t i = 0; i < w->sample_count; i++) {
        if (!fb_window_is_sampled(w->sample[i].tag, w->sample_level))
            continue;
        w->sample[kept] = w->sample[i];
        w->sample_mark[kept++] = w->sample_mark[i];
    }
    w->sample_count = kept;
}

/* FB_SAMPLES when it is not among them. */
static unsigned find_sample(const struct fb_window *w, uint32_t tag)
{
    for (unsigned first = 0; first < w->sample_count; first += MARKS_A_WORD) {
        uint64_t marks, equal;

        memcpy(&marks, &w->sample_mark[first], sizeof marks);
        marks ^= EACH_BYTE * mark_of(tag);
        /* The highest bit of each byte that is 0, and of some above one that is. */
        equal = (marks - EACH_BYTE) & ~marks & (EACH_BYTE << 7);
        for (; equal; equal &= equal - 1) {
            unsigned i = first + (unsigned)__builtin_ctzll(equal) / 8;

            if (i < w->sample_count && w->sample[i].tag == tag)
                return i;
        }
    }
    return FB_SAMPLES;
}

static void count_return(struct fb_window *w, uint32_t interval)
{
    int64_t off = (int64_t)interval - w->interval;

    if (w->again >= RETURNS_ROUND) {
        w->again /= 2;
        w->irregular /= 2;
    }
    if (w->again++ == 0) {
        w->interval = interval;
        return;
    }
    w->irregular += fminf(fabsf((float)off) / (float)w->interval, 2);
    w->interval = (uint32_t)(w->interval + off / MEAN_WEIGHT);
}

void fb_window_sample(struct fb_window *w, uint32_t tag, uint32_t visit)
{
    unsigned at = find_sample(w, tag);

    if (at < FB_SAMPLES) {
        count_return(w, visit - w->sample[at].visit);
        w->sample[at].visit = visit;
        return;
    }
    while (w->sample_count == FB_SAMPLES && w->sample_level < LEVEL_MAX)
        thin_out(w);
    if (w->sample_count < FB_SAMPLES && fb_window_is_sampled(tag, w->sample_level)) {
        w->sample_mark[w->sample_count] = mark_of(tag);
        w->sample[w->sample_count++] = (struct fb_sample){.tag = tag, .visit = visit};
    }
}

uint64_t fb_window_items(const struct fb_window *w)
{
    return (uint64_t)w->sample_count << w->sample_level;
}

/* ---- verdicts ---- */

/* The fewer returns there are, the more regular they must be: three deviations from shuffled
 * epochs. Once believed, it takes more to doubt a cycle than it took to believe in it. */
static bool is_cyclic(const struct fb_window *w)
{
    float limit = IRREGULAR_IN;

    if (w->again < RETURNS_MIN)
        return false;
    if (w->verdict.pattern == FB_PATTERN_CYCLIC)
        limit = IRREGULAR_OUT;
    else if (w->again < RETURNS_MANY)
        limit -= IRREGULAR_EACH * (float)(RETURNS_MANY - w->again);
    return w->irregular < limit * (float)w->again;
}

/* True when the pattern changes to that of `v`. */
static bool confirm(struct fb_window *w, const struct fb_verdict *v)
{
    if (v->pattern == w->verdict.pattern || w->trials == 0 || v->pattern == FB_PATTERN_CYCLIC)
        return true;
    if (w->candidate == v->pattern)
        return true;
    w->candidate = v->pattern;
    return false;
}

static struct fb_visits unpack(const struct fb_window *w, uint64_t items,
                               uint32_t entries[FB_WINDOW_MAX], uint8_t back[FB_WINDOW_MAX])
{
    uint64_t seen = fb_window_items(w);

    for (uint16_t i = 0; i < w->count; i++) {
        memcpy(&entries[i], &w->visits[i * FB_VISIT_BYTES], sizeof *entries);
        back[i] = w->visits[i * FB_VISIT_BYTES + sizeof *entries];
    }
    return (struct fb_visits){
        .entries = entries,
        .back = back,
        .count = w->count,
        .shift = w->shift,
        .numbered = w->numbering == FB_NUMBER_POSITION,
        .items = items > seen ? items : seen,
    };
}

bool fb_window_guess(struct fb_window *w)
{
    uint32_t entries[FB_WINDOW_MAX];
    uint8_t back[FB_WINDOW_MAX];
    struct fb_visits visits = unpack(w, 0, entries, back);
    struct fb_verdict v;

    if (!fb_pattern_is_scan(&visits, &v) || v.test != FB_TEST_STEPS || v.statistic < GUESS_SHARE)
        return false;
    w->verdict = v;
    return true;
}

bool fb_window_judge(struct fb_window *w, uint64_t items, double alpha)
{
    uint32_t entries[FB_WINDOW_MAX];
    uint8_t back[FB_WINDOW_MAX];
    struct fb_visits visits;
    uint8_t old = w->verdict.pattern;
    struct fb_verdict v;

    if (w->agreed >= AGREED_MIN && ++w->rested < REST &&
        is_cyclic(w) == (old == FB_PATTERN_CYCLIC)) {
        w->count = 0;
        return false;
    }
    w->rested = 0;
    visits = unpack(w, items, entries, back);
    fb_pattern_judge(&visits, alpha, &w->repeats, &v);
    if (is_cyclic(w) && v.pattern != FB_PATTERN_UNKNOWN) {
        v.pattern = FB_PATTERN_CYCLIC;
        v.test = FB_TEST_RETURNS;
        v.statistic = w->irregular / (float)w->again;
        v.limit = IRREGULAR_IN;
        v.period = w->interval;
    }
    w->agreed = v.pattern != old ? 0 : w->agreed < UINT8_MAX ? (uint8_t)(w->agreed + 1) : UINT8_MAX;
    if (confirm(w, &v)) {
        w->verdict = v;
        w->candidate = FB_PATTERN_UNKNOWN;
    }
    if (w->trials < UINT8_MAX)
        w->trials++;
    w->count = 0;
    return w->verdict.pattern != old;
}

/* ---- below ---- */

uint32_t fb_below_block(uint32_t block, uint32_t blocks)
{
    if (blocks > 8 && block + 2 >= blocks)
        return 0x80000000U | (blocks - 1 - block);
    return block & 0x7fffffffU;
}

void fb_window_below_halve(struct fb_window *w)
{
    w->below_visits /= 2;
    w->below_whole /= 2;
    for (unsigned i = 0; i < FB_BELOW; i++)
        w->below[i].count /= 2;
}

void fb_window_below_add(struct fb_window *w, uint32_t key, uint32_t visit, float share)
{
    struct fb_below *least = &w->below[0];

    w->below_whole += share;
    for (unsigned i = 0; i < FB_BELOW; i++) {
        struct fb_below *b = &w->below[i];

        if (b->key == key && b->count) {
            if (b->visit != (uint16_t)visit && b->count < UINT8_MAX)
                b->count++;
            b->visit = (uint16_t)visit;
            return;
        }
    }
    for (unsigned i = 1; i < FB_BELOW; i++)
        least = w->below[i].count < least->count ? &w->below[i] : least;
    /* What is read in few children makes room for what may be read in more. */
    if (least->count * 4 <= w->below_visits)
        *least = (struct fb_below){.key = key, .count = 1, .visit = (uint16_t)visit};
}

double fb_window_below_share(const struct fb_window *w, uint32_t key)
{
    for (unsigned i = 0; i < FB_BELOW; i++) {
        if (w->below[i].count && w->below[i].key == key && w->below_visits)
            return fmin((double)w->below[i].count / w->below_visits, 1);
    }
    return 0;
}

double fb_window_below_whole(const struct fb_window *w)
{
    return w->below_visits ? fmin((double)w->below_whole / w->below_visits, 1) : 0;
}
