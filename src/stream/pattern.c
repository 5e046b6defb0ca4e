#include "stream/pattern.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"

#define NEAR_MAX       8    /* ranks: a step this short may be one of a scan */
#define NEAR_SHARE     0.6  /* of steps that must be short in a scan without a stride */
#define DRIFT_MIN      0.25 /* ranks a short step goes forward on average in a scan */
#define TREND_MIN      0.6  /* six deviations at n = 100 */
#define REPEATS_ALPHA  0.002
#define REPEATS_Z      4.0f /* of the evidence of several windows */
#define REPEATS_DECAY  0.7f
#define CLUSTER_Z      4.0
#define LAG_FIRST      2 /* pairs this far apart stand for "any two visits" */
#define LAG_LAST       9
#define LOCKSTEP_PAIRS 5.0 /* pairs expected before their absence means something */
#define INSERT_MAX     24  /* so few are sorted without heaps */
#define HEAPS_MIN      128
#define HEAPS_MAX      256

/* What the tests share; one pass over the window makes it. */
struct look {
    const struct fb_visits *visits;
    uint64_t sorted[FB_WINDOW_MAX]; /* entry << 16 | place in the window */
    uint16_t rank[FB_WINDOW_MAX];   /* among items */
    uint16_t order[FB_WINDOW_MAX];  /* among orders */
    uint16_t caller[FB_WINDOW_MAX];
    uint16_t
        before[FB_WINDOW_MAX];   /* the same caller's visit before; the last of anybody if none */
    int16_t step[FB_WINDOW_MAX]; /* from there, in orders */
    int32_t raw[FB_WINDOW_MAX];  /* the same as numbered */
    uint32_t n;
    uint32_t items;
    uint32_t orders;
    uint32_t callers;
};

const char *fb_pattern_name(enum fb_pattern pattern)
{
    static const char *const names[] = {"unknown", "sequential", "random", "skewed", "cyclic"};

    FB_ASSERT((size_t)pattern < FB_ARRAY_SIZE(names));
    return names[pattern];
}

const char *fb_pattern_test_name(enum fb_pattern_test test)
{
    static const char *const names[] = {"none", "steps", "trend", "gaps", "repeats", "returns"};

    FB_ASSERT((size_t)test < FB_ARRAY_SIZE(names));
    return names[test];
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static void insert_u64(uint64_t *a, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t value = a[i];
        uint32_t to = i;

        for (; to > 0 && a[to - 1] > value; to--)
            a[to] = a[to - 1];
        a[to] = value;
    }
}

/* Into heaps by the highest bits in which they differ, then each to its place, which is near unless
 * most are in one heap. Keeps the order of equals. */
static void sort_u64(uint64_t *a, uint32_t n)
{
    uint64_t from[FB_WINDOW_MAX], differ = 0;
    uint16_t at[HEAPS_MAX];
    unsigned heaps = n > HEAPS_MIN ? HEAPS_MAX : HEAPS_MIN, shift;
    uint16_t sum = 0;

    if (n <= INSERT_MAX) {
        insert_u64(a, n);
        return;
    }
    for (uint32_t i = 1; i < n; i++)
        differ |= a[i] ^ a[0];
    shift = differ >= heaps ? 64 - (unsigned)__builtin_clzll(differ / heaps) : 0;
    memset(at, 0, heaps * sizeof *at);
    for (uint32_t i = 0; i < n; i++)
        at[a[i] >> shift & (heaps - 1)]++;
    for (unsigned d = 0; d < heaps; d++) {
        uint16_t count = at[d];

        at[d] = sum;
        sum = (uint16_t)(sum + count);
    }
    memcpy(from, a, n * sizeof *a);
    for (uint32_t i = 0; i < n; i++)
        a[at[from[i] >> shift & (heaps - 1)]++] = from[i];
    insert_u64(a, n);
}

static uint32_t entry_of(uint64_t sorted)
{
    return (uint32_t)(sorted >> 16);
}

static uint32_t place_of(uint64_t sorted)
{
    return (uint32_t)(sorted & 0xffff);
}

static void look_at_ranks(struct look *look)
{
    const struct fb_visits *v = look->visits;
    uint32_t items = 0, orders = 0;
    uint8_t shift = v->shift;
    uint32_t last;

    for (uint32_t i = 0; i < look->n; i++)
        look->sorted[i] = (uint64_t)v->entries[i] << 16 | i;
    sort_u64(look->sorted, look->n);
    last = entry_of(look->sorted[0]);
    for (uint32_t i = 0; i < look->n; i++) {
        uint32_t entry = entry_of(look->sorted[i]), at = place_of(look->sorted[i]);

        items += entry != last;
        orders += entry >> shift != last >> shift;
        last = entry;
        look->rank[at] = (uint16_t)items;
        look->order[at] = (uint16_t)orders;
    }
    look->items = items + 1;
    look->orders = orders + 1;
}

static void look_at_callers(struct look *look)
{
    const struct fb_visits *v = look->visits;

    look->callers = 0;
    for (uint32_t i = 0; i < look->n; i++) {
        bool known = v->back[i] != 0 && v->back[i] <= i;
        uint32_t before;

        look->caller[i] = known ? look->caller[i - v->back[i]] : (uint16_t)look->callers++;
        before = known ? i - v->back[i] : i ? i - 1 : 0;
        look->before[i] = (uint16_t)before;
        look->step[i] = (int16_t)(look->order[i] - look->order[before]);
        look->raw[i] = (int32_t)((v->entries[i] >> v->shift) - (v->entries[before] >> v->shift));
    }
}

/* ---- steps ---- */

/* The step forward that holds a majority, if one does (Boyer and Moore), and how often it is. Which
 * way a step goes cannot be foretold where they are random, so there are no branches. */
static uint32_t commonest_step(const struct look *look, int32_t *ret_step)
{
    int32_t forward[FB_WINDOW_MAX], best = 0;
    uint32_t n = 0, votes = 0, count = 0;

    for (uint32_t i = 1; i < look->n; i++) {
        forward[n] = look->raw[i];
        n += look->raw[i] > 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        best = votes == 0 ? forward[i] : best;
        votes += forward[i] == best ? 1U : -1U;
    }
    for (uint32_t i = 0; i < n; i++)
        count += forward[i] == best;
    *ret_step = best;
    return count;
}

/* Correlation of order with time: the trend of a scan whose readers are out of step with each
 * other, in whatever way. Under any law that does not move, its deviation is 1 / sqrt(n). */
static double trend(const struct look *look)
{
    int64_t sum = 0, squares = 0, mixed = 0; /* mixed: twice the sum of products */
    double n = look->n, variance;
    int32_t last = (int32_t)look->n - 1;

    for (int32_t i = 0; i <= last; i++) {
        int32_t order = look->order[i];

        sum += order;
        squares += order * order;
        mixed += (2 * i - last) * order;
    }
    variance = (double)squares - (double)sum * (double)sum / n;
    return variance > 0 ? (double)mixed / 2 / sqrt(variance * n * (n * n - 1) / 12) : 0;
}

/* Steps of each caller, in ranks: how many are short, and which way they lead. */
struct steps {
    uint32_t all;
    uint32_t on; /* short and forward, or of the commonest length */
    uint32_t near;
    int32_t drift; /* sum of the short ones */
};

static struct steps count_steps(const struct look *look, int32_t stride)
{
    int32_t near = (int32_t)look->orders / NEAR_MAX;
    struct steps s = {0};

    near = near < 1 ? 1 : near > NEAR_MAX ? NEAR_MAX : near;
    for (uint32_t i = 1; i < look->n; i++) {
        int32_t step = look->step[i];
        bool moves = step != 0, is_near = moves & (step >= -near) & (step <= near);

        s.all += moves;
        s.on += moves & ((look->raw[i] == stride) | (is_near & (step > 0)));
        s.near += is_near;
        s.drift += is_near ? step : 0;
    }
    return s;
}

static bool is_sequential(const struct look *look, struct fb_verdict *verdict)
{
    int32_t step;
    uint32_t common = commonest_step(look, &step);
    struct steps s = count_steps(look, step);

    verdict->test = FB_TEST_STEPS;
    verdict->stride = common * 2 > look->n ? step : 1;
    if (s.all < look->n / 2)
        return false;
    verdict->statistic = (float)s.on / (float)s.all;
    verdict->limit = 0.5F;
    if (common * 2 > look->n || s.on * 10 > s.all * 9)
        return true;
    verdict->statistic = (float)s.near / (float)s.all;
    verdict->limit = (float)NEAR_SHARE;
    if (verdict->statistic >= NEAR_SHARE && (double)s.drift >= DRIFT_MIN * s.near)
        return true;
    verdict->test = FB_TEST_TREND;
    verdict->statistic = (float)trend(look);
    verdict->limit = (float)TREND_MIN;
    return verdict->statistic >= TREND_MIN && look->items * 2 > look->n;
}

/* ---- repeats ---- */

/* The least k with P(Poisson(mean) >= k) < alpha. */
static uint32_t poisson_limit(double mean, double alpha)
{
    double term = exp(-mean);
    double below = term; /* P(X <= k) */
    uint32_t k = 0;

    if (mean > 500)
        return (uint32_t)(mean + 3.0 * sqrt(mean) + 1);
    while (1 - below >= alpha && k < 2000) {
        k++;
        term *= mean / k;
        below += term;
    }
    return k + 1;
}

struct pairs {
    uint32_t all;
    uint32_t within; /* of one caller with itself */
    uint32_t triples;
    uint32_t most; /* visits of one item */
};

static struct pairs count_pairs(const struct look *look)
{
    struct pairs p = {.most = 1};

    for (uint32_t i = 1, end; i < look->n; i = end + 1) {
        uint32_t k;

        end = i;
        if (entry_of(look->sorted[i]) != entry_of(look->sorted[i - 1]))
            continue;
        while (end < look->n && entry_of(look->sorted[end]) == entry_of(look->sorted[i]))
            end++;
        k = end - i + 1;
        p.most = k > p.most ? k : p.most;
        p.all += k * (k - 1) / 2;
        p.triples += k > 2 ? k * (k - 1) * (k - 2) / 6 : 0;
        for (uint32_t a = i - 1; a < end; a++)
            for (uint32_t b = a + 1; b < end; b++)
                p.within += look->caller[place_of(look->sorted[a])] ==
                            look->caller[place_of(look->sorted[b])];
    }
    return p;
}

/* The share of all pairs of visits that one caller makes with itself. */
static double share_within(const struct look *look)
{
    uint16_t visits[FB_WINDOW_MAX];
    uint64_t own = 0;

    memset(visits, 0, look->callers * sizeof *visits);
    for (uint32_t i = 0; i < look->n; i++)
        visits[look->caller[i]]++;
    for (uint32_t c = 0; c < look->callers; c++)
        own += (uint32_t)visits[c] * (visits[c] - 1U);
    return (double)own / ((double)look->n * (look->n - 1));
}

/* Two jobs that read the same order side by side meet each other, never themselves. Had callers
 * drawn from one skewed law, pairs would fall within and between them alike, and with that many
 * pairs there would be triples. */
static bool in_lockstep(const struct look *look, const struct pairs *p, double within)
{
    double all = (double)look->n * (look->n - 1) / 2;
    double triples = all * (look->n - 2) / 3 * (p->all / all) * (p->all / all);

    if (p->all * within >= LOCKSTEP_PAIRS)
        return p->within * 5 < p->all * within;
    return p->within == 0 && p->most <= 2 && triples >= LOCKSTEP_PAIRS;
}

/* With c unknown the number of pairs says nothing, but how they cluster does: a uniform law that
 * gives so many pairs gives few triples. */
static bool is_clustered(const struct look *look, const struct pairs *p)
{
    double n = look->n;
    double q = p->all / (n * (n - 1) / 2);
    double threes = n * (n - 1) * (n - 2) / 6;
    double expected = threes * q * q;
    double variance = expected + threes * 3 * (n - 3) * q * q * q;

    return p->triples > expected + CLUSTER_Z * sqrt(variance) + CLUSTER_Z;
}

static bool has_repeats(const struct look *look, struct fb_repeats *repeats,
                        struct fb_verdict *verdict)
{
    double within = share_within(look);
    struct pairs p = count_pairs(look);
    double all = (double)look->n * (look->n - 1) / 2;
    double items = (double)(look->visits->items > look->items ? look->visits->items : look->items);
    double expected = all / items;
    uint32_t limit = poisson_limit(expected, REPEATS_ALPHA);
    double most;

    if (look->callers > 1 && p.all > limit && in_lockstep(look, &p, within)) {
        p.all = p.within;
        expected *= within;
        limit = poisson_limit(expected, REPEATS_ALPHA);
    }
    most = 3 + 2 * sqrt(expected); /* so that strong skew is forgotten as fast as weak skew */
    repeats->excess = repeats->excess * REPEATS_DECAY + (float)smaller(p.all - expected, most);
    repeats->spread = repeats->spread * REPEATS_DECAY + (float)expected;
    verdict->test = FB_TEST_REPEATS;
    verdict->statistic = (float)p.all;
    verdict->limit = (float)limit;
    if (p.all >= limit || repeats->excess > REPEATS_Z * sqrtf(repeats->spread) + 2)
        return true;
    return look->visits->items <= look->items && is_clustered(look, &p);
}

/* ---- gaps ---- */

/* Critical value of D for n samples. */
static double ks_limit(double alpha, double n)
{
    return sqrt(-log(alpha / 2) / 2) / sqrt(n);
}

/* Against the triangular law of two different numbers out of c. */
static double ks_triangular(const uint64_t *gaps, uint32_t n, double c)
{
    double d = 0;

    for (uint32_t i = 0; i < n;) {
        uint32_t end = i;
        double k = (double)gaps[i];
        double at = 2 * k / (c - 1) - k * (k + 1) / (c * (c - 1));
        double under = 2 * (k - 1) / (c - 1) - (k - 1) * k / (c * (c - 1));

        while (end < n && gaps[end] == gaps[i])
            end++;
        d = larger(d, fabs((double)end / n - smaller(at, 1)));
        d = larger(d, fabs((double)i / n - smaller(under, 1)));
        i = end;
    }
    return d;
}

static bool gaps_numbered(const struct look *look, double alpha, struct fb_verdict *verdict)
{
    uint64_t low = look->visits->entries[0], high = low, gaps[FB_WINDOW_MAX];
    uint32_t n = 0;
    double range;

    for (uint32_t i = 0; i < look->n; i++) {
        uint64_t e = look->visits->entries[i];

        low = e < low ? e : low;
        high = e > high ? e : high;
    }
    for (uint32_t i = 1; i < look->n; i++) {
        int64_t step = (int64_t)look->visits->entries[i] - look->visits->entries[look->before[i]];

        if (step)
            gaps[n++] = (uint64_t)(step < 0 ? -step : step);
    }
    if (n < look->n / 4)
        return false;
    sort_u64(gaps, n);
    /* The range of what was drawn from lies a little beyond that of the draws. */
    range = (double)(high - low) * (look->items + 1.0) / (look->items - 1.0) + 1;
    if (look->visits->items > 1)
        range = smaller(range, larger((double)look->visits->items, (double)(high - low + 1)));
    verdict->statistic = (float)ks_triangular(gaps, n, larger(range, 2));
    verdict->limit = (float)ks_limit(alpha, n);
    return verdict->statistic <= verdict->limit;
}

/* How often ranks of visits that do not follow each other are so far apart, and of how many pairs;
 * those within one order are of no distance. */
static uint32_t count_pairs_apart(const struct look *look, uint16_t *pairs)
{
    uint16_t apart[FB_WINDOW_MAX];
    uint32_t all = 0;

    memset(pairs, 0, look->items * sizeof *pairs);
    for (uint32_t lag = LAG_FIRST; lag <= LAG_LAST && lag < look->n; lag++) {
        const uint16_t *rank = look->rank + lag, *order = look->order + lag;
        uint32_t count = look->n - lag;

        for (uint32_t i = 0; i < count; i++) {
            int16_t step = (int16_t)(rank[i] - look->rank[i]);
            uint16_t far = (uint16_t)(step < 0 ? -step : step);

            apart[i] = order[i] == look->order[i] ? 0 : far;
        }
        for (uint32_t i = 0; i < count; i++)
            pairs[apart[i]]++;
        all += count;
    }
    all -= pairs[0];
    pairs[0] = 0;
    return all;
}

/* Ranks of items, against pairs of visits that do not follow each other. Pairs within one order are
 * left out on both sides, since one caller's next visit is never to the same child. */
static bool gaps_unnumbered(const struct look *look, double alpha, struct fb_verdict *verdict)
{
    uint16_t steps[FB_WINDOW_MAX], pairs[FB_WINDOW_MAX];
    uint32_t n = 0, m, steps_sum = 0, pairs_sum = 0;
    double d = 0, per_step, per_pair;

    memset(steps, 0, look->items * sizeof *steps);
    for (uint32_t i = 1; i < look->n; i++) {
        int32_t step = (int32_t)look->rank[i] - look->rank[look->before[i]];

        uint16_t counts = look->step[i] != 0;
        uint16_t *to = &steps[step < 0 ? -step : step];

        *to = (uint16_t)(*to + counts);
        n += counts;
    }
    m = count_pairs_apart(look, pairs);
    verdict->statistic = 0;
    if (n < look->n / 4)
        return true; /* names that cannot be put in order say nothing against random */
    per_step = 1.0 / n;
    per_pair = 1.0 / m;
    for (uint32_t i = 0; i < look->items; i++) {
        steps_sum += steps[i];
        pairs_sum += pairs[i];
        d = larger(d, fabs(steps_sum * per_step - pairs_sum * per_pair));
    }
    verdict->statistic = (float)d;
    verdict->limit = (float)ks_limit(alpha, n);
    return d <= verdict->limit;
}

/* False when there are too few children for any pattern. */
static bool look_at(const struct fb_visits *visits, struct look *look)
{
    FB_ASSERT(visits->count >= FB_WINDOW_MIN && visits->count <= FB_WINDOW_MAX);
    look->visits = visits;
    look->n = visits->count;
    look_at_ranks(look);
    if (look->items < FB_CHILDREN_MIN)
        return false;
    look_at_callers(look);
    return true;
}

bool fb_pattern_is_scan(const struct fb_visits *visits, struct fb_verdict *ret_verdict)
{
    struct look look;

    *ret_verdict = (struct fb_verdict){.pattern = FB_PATTERN_UNKNOWN};
    if (!look_at(visits, &look) || !is_sequential(&look, ret_verdict))
        return false;
    ret_verdict->pattern = FB_PATTERN_SEQUENTIAL;
    ret_verdict->spread = (uint16_t)look.orders;
    return true;
}

void fb_pattern_judge(const struct fb_visits *visits, double alpha, struct fb_repeats *repeats,
                      struct fb_verdict *ret_verdict)
{
    struct fb_verdict steps = {0}, pairs = {0}, gaps = {.test = FB_TEST_GAPS};
    struct look look;
    bool random;

    *ret_verdict = (struct fb_verdict){.pattern = FB_PATTERN_UNKNOWN};
    if (!look_at(visits, &look))
        return;
    if (is_sequential(&look, &steps)) {
        *ret_verdict = steps;
        ret_verdict->pattern = FB_PATTERN_SEQUENTIAL;
        *repeats = (struct fb_repeats){0};
    } else if (has_repeats(&look, repeats, &pairs)) {
        *ret_verdict = pairs;
        ret_verdict->pattern = FB_PATTERN_SKEWED;
    } else {
        random = visits->numbered ? gaps_numbered(&look, alpha, &gaps)
                                  : gaps_unnumbered(&look, alpha, &gaps);
        *ret_verdict = gaps;
        ret_verdict->pattern = random ? FB_PATTERN_RANDOM : FB_PATTERN_SKEWED;
    }
    ret_verdict->spread = (uint16_t)look.orders;
}
