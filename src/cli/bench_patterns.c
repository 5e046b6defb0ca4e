/*
 * forebay bench patterns: is every kind of stream recognised, and what does it cost?
 *
 * Streams are generated (stream/synth.h) and fed to a tree like any access; the verdict is read
 * when the node has had one window of visits (a cycle: when it has come round). Every setting is
 * tried on the same streams. The paper's own test (a majority of equal steps, else
 * Kolmogorov-Smirnov of the gaps, nothing else) is run beside ours on the same visits.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "core/clock.h"
#include "core/mem.h"
#include "sim/plot.h"
#include "stream/synth.h"

#define FIGURE_SHARE  5 /* figures take one stream in so many */
#define MIX           8 /* workloads that interleave */
#define WINDOW        100
#define ALPHA         0.01
#define LATER_WINDOWS 10
#define KINDS         FB_SYNTH_KINDS

/* ---- one stream ---- */

struct trial {
    enum fb_synth_kind kind;
    enum fb_synth_form form;
    uint64_t seed;
    unsigned workers;
    uint32_t window;
    double alpha;
    uint32_t more_visits; /* beyond the first window */
};

struct outcome {
    bool right;
    bool paper_right;
};

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* One positive step that holds a majority. */
static bool paper_sequential(const uint32_t *index, uint32_t n)
{
    uint32_t steps[FB_WINDOW_MAX];
    uint32_t count = 0, run = 0;

    for (uint32_t i = 1; i < n; i++) {
        if (index[i] > index[i - 1])
            steps[count++] = index[i] - index[i - 1];
    }
    qsort(steps, count, sizeof *steps, compare_u32);
    for (uint32_t i = 0; i < count; i++) {
        run = i > 0 && steps[i] == steps[i - 1] ? run + 1 : 1;
        if (run * 2 > n)
            return true;
    }
    return false;
}

/* IGTCache, section 3.2; it knows no cycles. */
static enum fb_pattern paper_pattern(const uint32_t *index, uint32_t n, double c, double alpha)
{
    uint32_t gaps[FB_WINDOW_MAX];
    uint32_t count = 0;
    double d = 0;

    if (paper_sequential(index, n))
        return FB_PATTERN_SEQUENTIAL;
    for (uint32_t i = 1; i < n; i++) {
        int64_t step = (int64_t)index[i] - index[i - 1];

        if (step)
            gaps[count++] = (uint32_t)(step < 0 ? -step : step);
    }
    if (count == 0)
        return FB_PATTERN_SKEWED;
    qsort(gaps, count, sizeof *gaps, compare_u32);
    for (uint32_t i = 0; i < count; i++) {
        double k = gaps[i], f = 2 * k / (c - 1) - k * (k + 1) / (c * (c - 1));

        d = fmax(d, fmax(fabs((i + 1.0) / count - f), fabs((double)i / count - f)));
    }
    return d <= sqrt(-log(alpha / 2) / 2 / count) ? FB_PATTERN_RANDOM : FB_PATTERN_SKEWED;
}

static bool is_right(enum fb_pattern pattern, enum fb_synth_kind kind)
{
    return pattern == fb_synth_pattern(kind);
}

static int try_stream(const struct trial *t, struct outcome *ret_outcome)
{
    struct fb_streams_config config = {
        .window = t->window, .nodes_max = FB_STREAM_NODES_MIN, .alpha = t->alpha};
    uint32_t last[FB_WINDOW_MAX] = {0}, ordered[FB_WINDOW_MAX]; /* indices; from the oldest on */
    char path[FB_SYNTH_PATH_MAX];
    struct fb_stream_info info = {0};
    struct fb_synth *synth = NULL;
    struct fb_streams *streams = NULL;
    struct fb_fact fact;
    struct fb_fed fed;
    uint32_t goal, n = 0;
    enum fb_pattern paper;
    int rc = fb_synth_new(t->kind, t->seed, t->workers, &synth);

    if (rc == 0)
        rc = fb_streams_new(&config, &streams);
    if (rc)
        goto out;
    goal = fb_synth_patience(synth, t->window) + t->more_visits;
    while (info.visits < goal) {
        uint64_t before = info.visits;

        fb_synth_fact(synth, t->form, 1, path, &fact);
        fact.time_ns = ++n * FB_NS_PER_MS;
        fb_streams_feed(streams, &fact, &fed);
        if (!fb_streams_get(streams, fed.steps[fed.depth - 1].id, &info))
            break;
        if (info.visits != before)
            last[info.visits % t->window] = t->form == FB_SYNTH_BLOCKS ? fact.block : fact.position;
    }
    for (uint32_t i = 0; i < t->window; i++)
        ordered[i] = last[(info.visits + 1 + i) % t->window];
    paper = paper_pattern(ordered, t->window, fb_synth_items(synth), t->alpha);
    ret_outcome->right = is_right(info.verdict.pattern, t->kind);
    ret_outcome->paper_right = is_right(paper, t->kind);
out:
    fb_synth_free(synth);
    fb_streams_free(streams);
    return rc;
}

/* The share that is right, of `count` streams. A form below 0: blocks and listed files in turn. */
static int try_many(struct trial t, int form, uint64_t seed, uint64_t count, double *ret_ours,
                    double *ret_paper)
{
    static const unsigned crowds[] = {2, 4, 8, 16};
    bool crowded = t.workers == 0;
    uint64_t right = 0, paper = 0;
    struct outcome o = {0};

    for (uint64_t i = 0; i < count; i++) {
        int rc;

        t.seed = seed + i;
        t.form = form >= 0 ? (enum fb_synth_form)form : i % 2 ? FB_SYNTH_LISTED : FB_SYNTH_BLOCKS;
        if (crowded)
            t.workers = crowds[i / 2 % FB_ARRAY_SIZE(crowds)];
        rc = try_stream(&t, &o);
        if (rc)
            return rc;
        right += o.right;
        paper += o.paper_right;
    }
    *ret_ours = (double)right / (double)count;
    if (ret_paper)
        *ret_paper = (double)paper / (double)count;
    return 0;
}

/* ---- eight at a time ---- */

struct mixed {
    struct fb_synth *synth;
    enum fb_synth_kind kind;
    enum fb_synth_form form;
    uint32_t goal;
    bool done;
};

/* All kinds but the weak one, and one of them twice; taken in turn at random, each from a directory
 * of its own. `one_pid`: all by one process, as behind a file server. */
static int try_mix(uint64_t seed, bool one_pid, uint64_t right[KINDS], uint64_t tried[KINDS])
{
    struct fb_streams_config config = {.window = WINDOW, .alpha = ALPHA};
    struct fb_rand rand = {fb_mix64(seed)};
    struct mixed mix[MIX] = {0};
    struct fb_streams *streams = NULL;
    unsigned left = MIX;
    int rc = fb_streams_new(&config, &streams);

    for (unsigned i = 0; rc == 0 && i < MIX; i++) {
        mix[i].kind = i < FB_SYNTH_WEAK ? (enum fb_synth_kind)i : (enum fb_synth_kind)(seed % i);
        mix[i].form = fb_rand_below(&rand, 2) ? FB_SYNTH_LISTED : FB_SYNTH_BLOCKS;
        rc = fb_synth_new(mix[i].kind, seed * MIX + i, 1, &mix[i].synth);
        if (rc == 0)
            mix[i].goal = fb_synth_patience(mix[i].synth, WINDOW);
    }
    for (int64_t now = 0; rc == 0 && left; now += FB_NS_PER_MS) {
        unsigned who = (unsigned)fb_rand_below(&rand, MIX);
        char path[FB_SYNTH_PATH_MAX];
        struct fb_stream_info info;
        struct fb_fact fact;
        struct fb_fed fed;

        fb_synth_fact(mix[who].synth, mix[who].form, who, path, &fact);
        fact.time_ns = now;
        if (one_pid)
            fact.pid = 1;
        fb_streams_feed(streams, &fact, &fed);
        if (mix[who].done || !fb_streams_get(streams, fed.steps[fed.depth - 1].id, &info) ||
            info.visits < mix[who].goal)
            continue;
        mix[who].done = true;
        left--;
        tried[mix[who].kind]++;
        right[mix[who].kind] += is_right(info.verdict.pattern, mix[who].kind);
    }
    for (unsigned i = 0; i < MIX; i++)
        fb_synth_free(mix[i].synth);
    fb_streams_free(streams);
    return rc;
}

/* ---- what a wrong call costs ---- */

/* Hit ratios of a cache of `share` of the items, over a weakly skewed stream: LRU, which is right,
 * and keeping what came first, which is what a random stream gets. */
struct cost {
    double share;
    double lru;
    double uniform;
};

#define COST_ITEMS    100000 /* the most a generated stream has */
#define COST_ACCESSES 200000
#define COST_STREAMS  20

static int measure_cost(uint64_t seed, struct cost *cost)
{
    uint32_t capacity, held = 0, hand = 0, kept = 0;
    FB_AUTO_FREE uint32_t *queue = fb_alloc_array(COST_ACCESSES + 1, sizeof *queue);
    FB_AUTO_FREE uint32_t *used = fb_alloc_array(COST_ITEMS + 1, sizeof *used);
    FB_AUTO_FREE bool *in_uniform = fb_alloc_array(COST_ITEMS + 1, sizeof *in_uniform);
    uint32_t hits = 0, uniform_hits = 0, counted = 0;
    struct fb_synth *synth = NULL;
    int rc = -ENOMEM;

    if (queue && used && in_uniform)
        rc = fb_synth_new(FB_SYNTH_WEAK, seed, 1, &synth);
    if (rc)
        return rc;
    capacity = (uint32_t)(cost->share * fb_synth_items(synth));
    /* LRU by a queue of all accesses: an entry counts if it is its item's latest. used: its place
     * plus one, 0 when it is not held. */
    for (uint32_t i = 0; i < COST_ACCESSES; i++) {
        uint32_t worker, item = fb_synth_next(synth, &worker);
        bool counts = i >= COST_ACCESSES / 2;

        counted += counts;
        hits += counts && used[item];
        uniform_hits += counts && in_uniform[item];
        held += !used[item];
        used[item] = i + 1;
        queue[i] = item;
        while (held > capacity) {
            if (used[queue[hand]] == hand + 1) {
                used[queue[hand]] = 0;
                held--;
            }
            hand++;
        }
        if (!in_uniform[item] && kept < capacity) {
            in_uniform[item] = true;
            kept++;
        }
    }
    cost->lru += (double)hits / counted;
    cost->uniform += (double)uniform_hits / counted;
    fb_synth_free(synth);
    return 0;
}

/* ---- overhead ---- */

#define SETS       100
#define DIRS       99 /* of each set: with sets and root 10,001 nodes are asked for */
#define FILES      1000
#define FACTS      (1U << 17) /* a pass */
#define PASSES     16         /* so that each directory is visited 200 times */
#define TURNS      4          /* all of it anew */
#define PATH_STEP  48
#define BIG_BLOCKS 100000

enum {
    WORK_RANDOM,
    WORK_SCAN,
    WORK_BLOCKS,
    WORKS
};

static const char *const work_names[] = {"files at random in 9,900 directories",
                                         "files in order, directory by directory",
                                         "blocks at random of 100 files"};

struct overhead {
    double ns[WORKS];
    uint32_t nodes;
    size_t bytes;
};

static char *put(char *at, const char *text)
{
    size_t len = strlen(text);

    memcpy(at, text, len);
    return at + len;
}

static char *put_number(char *at, uint32_t number, unsigned digits)
{
    for (unsigned i = digits; i-- > 0; number /= 10)
        at[i] = (char)('0' + number % 10);
    return at + digits;
}

static void make_fact(int work, uint64_t i, struct fb_rand *rand, char *path, struct fb_fact *fact)
{
    uint64_t at = work == WORK_SCAN ? i : fb_rand_below(rand, (uint64_t)SETS * DIRS * FILES);
    char *end = put_number(put(path, "data/set"), (uint32_t)(at / FILES / DIRS % SETS), 2);

    if (work == WORK_BLOCKS) {
        end = put(end, "/all.bin");
    } else {
        end = put_number(put(end, "/n"), (uint32_t)(at / FILES % DIRS), 4);
        end = put(put_number(put(end, "/img_"), (uint32_t)(at % FILES), 5), ".jpg");
    }
    *fact = (struct fb_fact){
        .time_ns = (int64_t)i * 1000,
        .path = path,
        .path_len = (uint32_t)(end - path),
        .pid = 100 + (uint32_t)(i % 16),
        .block = work == WORK_BLOCKS ? (uint32_t)fb_rand_below(rand, BIG_BLOCKS) : 0,
        .blocks = work == WORK_BLOCKS ? BIG_BLOCKS : 1,
        .position = FB_POSITION_UNKNOWN,
    };
}

static int64_t cpu_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * FB_NS_PER_S + t.tv_nsec;
}

/* One turn: a tree from its first access on; the shortest time of each pass is kept. */
static int time_feeds(int work, uint64_t seed, struct fb_fact *facts, char *paths,
                      int64_t best[PASSES], struct overhead *overhead)
{
    struct fb_streams_config config = {0};
    struct fb_rand rand = {seed};
    struct fb_streams *streams;
    int rc = fb_streams_new(&config, &streams);

    if (rc)
        return rc;
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        int64_t begin;

        for (uint32_t i = 0; i < FACTS; i++)
            make_fact(work, (uint64_t)pass * FACTS + i, &rand, paths + (size_t)i * PATH_STEP,
                      &facts[i]);
        begin = cpu_now_ns();
        for (uint32_t i = 0; i < FACTS; i++)
            fb_streams_feed(streams, &facts[i], NULL);
        best[pass] = (int64_t)fb_min_u64((uint64_t)best[pass], (uint64_t)(cpu_now_ns() - begin));
    }
    if (work == WORK_RANDOM) {
        overhead->nodes = fb_streams_count(streams);
        overhead->bytes = fb_streams_bytes(streams);
    }
    fb_streams_free(streams);
    return 0;
}

/* Nanoseconds of CPU a feed takes, amortised: nodes are made and windows judged as they come. All
 * turns do the same, so that a pass takes as long in each, but for what others do to the machine:
 * the shortest of each pass are added up. */
static int measure_overhead(uint64_t seed, struct overhead *ret_overhead)
{
    FB_AUTO_FREE char *paths = fb_alloc_array(FACTS, PATH_STEP);
    FB_AUTO_FREE struct fb_fact *facts = fb_alloc_array(FACTS, sizeof *facts);

    if (!paths || !facts)
        return -ENOMEM;
    for (int work = 0; work < WORKS; work++) {
        int64_t best[PASSES], sum = 0;

        for (unsigned pass = 0; pass < PASSES; pass++)
            best[pass] = INT64_MAX;
        for (unsigned turn = 0; turn < TURNS; turn++) {
            int rc = time_feeds(work, seed, facts, paths, best, ret_overhead);

            if (rc)
                return rc;
        }
        for (unsigned pass = 0; pass < PASSES; pass++)
            sum += best[pass];
        ret_overhead->ns[work] = (double)sum / FACTS / PASSES;
    }
    return 0;
}

/* ---- all of it ---- */

static const uint32_t windows[] = {10, 20, 50, 100, 200, 500, 1000};
static const double alphas[] = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1};
static const double shares[] = {0.1, 0.35, 0.5};
#define N_WINDOWS FB_ARRAY_SIZE(windows)
#define N_ALPHAS  FB_ARRAY_SIZE(alphas)
#define N_SHARES  FB_ARRAY_SIZE(shares)

struct results {
    uint64_t count;
    uint64_t figure_count;
    double paper[KINDS];   /* the paper's test, one reader, listing known */
    double one[KINDS];     /* one reader, listing known */
    double workers[KINDS]; /* 2 to 16 of a loader */
    double named[KINDS];   /* no listing known, after one window */
    double later[KINDS];   /* the same after LATER_WINDOWS more */
    double mix[KINDS];     /* with seven others */
    double server[KINDS];  /* with seven others, by one process */
    double by_window[KINDS][N_WINDOWS];
    double by_alpha[KINDS][N_ALPHAS];
    double paper_by_alpha[KINDS][N_ALPHAS];
    struct cost cost[N_SHARES];
    struct overhead overhead;
};

static int measure_kind(struct results *r, enum fb_synth_kind kind, uint64_t seed)
{
    struct trial t = {.kind = kind, .workers = 1, .window = WINDOW, .alpha = ALPHA};
    struct trial crowd = t, later = t;
    double ignored;
    int rc = try_many(t, -1, seed, r->count, &r->one[kind], &r->paper[kind]);

    crowd.workers = 0;
    later.more_visits = LATER_WINDOWS * WINDOW;
    if (rc == 0)
        rc = try_many(crowd, -1, seed, r->count, &r->workers[kind], NULL);
    if (rc == 0)
        rc = try_many(t, FB_SYNTH_NAMED, seed, r->count, &r->named[kind], NULL);
    if (rc == 0)
        rc = try_many(later, FB_SYNTH_NAMED, seed, r->count, &r->later[kind], NULL);
    for (size_t i = 0; rc == 0 && i < N_WINDOWS; i++) {
        t.window = windows[i];
        rc = try_many(t, -1, seed, r->figure_count, &r->by_window[kind][i], &ignored);
    }
    t.window = WINDOW;
    for (size_t i = 0; rc == 0 && i < N_ALPHAS; i++) {
        t.alpha = alphas[i];
        rc = try_many(t, -1, seed, r->figure_count, &r->by_alpha[kind][i],
                      &r->paper_by_alpha[kind][i]);
    }
    return rc;
}

static int measure_mixes(struct results *r, uint64_t seed)
{
    for (int server = 0; server < 2; server++) {
        uint64_t right[KINDS] = {0}, tried[KINDS] = {0};

        for (uint64_t i = 0; i < r->count; i++) {
            int rc = try_mix(seed + i, server, right, tried);

            if (rc)
                return rc;
        }
        for (int k = 0; k < KINDS; k++)
            (server ? r->server : r->mix)[k] = tried[k] ? (double)right[k] / (double)tried[k] : NAN;
    }
    return 0;
}

static int measure(struct results *r, uint64_t seed)
{
    int rc = 0;

    for (int k = 0; rc == 0 && k < KINDS; k++)
        rc = measure_kind(r, (enum fb_synth_kind)k, seed);
    if (rc == 0)
        rc = measure_mixes(r, seed);
    for (size_t i = 0; rc == 0 && i < N_SHARES; i++) {
        r->cost[i].share = shares[i];
        for (uint64_t j = 0; rc == 0 && j < COST_STREAMS; j++)
            rc = measure_cost(seed + j, &r->cost[i]);
        r->cost[i].lru /= COST_STREAMS;
        r->cost[i].uniform /= COST_STREAMS;
    }
    return rc ? rc : measure_overhead(seed, &r->overhead);
}

/* ---- output ---- */

static int write_figures(const struct results *r, const char *dir)
{
    static const enum fb_synth_kind compared[] = {FB_SYNTH_RANDOM, FB_SYNTH_SCATTERED,
                                                  FB_SYNTH_CLUSTERED};

    static const char *const compared_names[] = {"gaps alone: uniform", "gaps alone: scattered",
                                                 "gaps alone: clustered"};
    struct fb_plot_series by_window[KINDS], by_alpha[KINDS + FB_ARRAY_SIZE(compared)];
    struct fb_plot plot = {.title = "Recognition by window, alpha 0.01",
                           .x_label = "window (visits)",
                           .y_label = "share recognised",
                           .x_log = true,
                           .y_from_0 = true,
                           .series = by_window,
                           .count = KINDS};
    double x[N_WINDOWS];
    int rc;

    for (size_t i = 0; i < N_WINDOWS; i++)
        x[i] = windows[i];
    for (int k = 0; k < KINDS; k++) {
        const char *name = fb_synth_name((enum fb_synth_kind)k);

        by_window[k] = (struct fb_plot_series){name, x, r->by_window[k], N_WINDOWS};
        by_alpha[k] = (struct fb_plot_series){name, alphas, r->by_alpha[k], N_ALPHAS};
    }
    for (size_t i = 0; i < FB_ARRAY_SIZE(compared); i++)
        by_alpha[KINDS + i] = (struct fb_plot_series){compared_names[i], alphas,
                                                      r->paper_by_alpha[compared[i]], N_ALPHAS};
    rc = cli_bench_plot(dir, "patterns-window", &plot);
    plot.title = "Recognition by level of significance, window 100";
    plot.x_label = "alpha of the gap test";
    plot.series = by_alpha;
    plot.count = FB_ARRAY_SIZE(by_alpha);
    return rc ? rc : cli_bench_plot(dir, "patterns-alpha", &plot);
}

static void print_share(double share)
{
    if (isnan(share))
        printf(" %8s", "-");
    else
        printf(" %7.1f%%", share * 100);
}

static void print_table(const struct results *r)
{
    printf("%llu streams of each kind, window %d, alpha %g: share recognised\n\n",
           (unsigned long long)r->count, WINDOW, ALPHA);
    printf("%-28s %8s %8s %8s %8s %8s %8s %8s\n", "", "gap test", "one", "2-16", "8 inter-",
           "8, one", "no", "the same");
    printf("%-28s %8s %8s %8s %8s %8s %8s %8s\n", "", "alone", "reader", "workers", "leaved",
           "process", "listing", "later");
    for (int k = 0; k < KINDS; k++) {
        printf("%-28s", fb_synth_name((enum fb_synth_kind)k));
        print_share(r->paper[k]);
        print_share(r->one[k]);
        print_share(r->workers[k]);
        print_share(r->mix[k]);
        print_share(r->server[k]);
        print_share(r->named[k]);
        print_share(r->later[k]);
        putchar('\n');
    }
    printf("\nHit ratio of a weakly skewed stream (Zipf 0.6-0.8):\n");
    for (size_t i = 0; i < N_SHARES; i++)
        printf("  cache %2.0f%% of the items: LRU %.1f%%, taken for random and kept uniformly "
               "%.1f%%\n",
               r->cost[i].share * 100, r->cost[i].lru * 100, r->cost[i].uniform * 100);
    printf("\n%u nodes, %.2f MB, %.0f bytes a node; nanoseconds an access:\n", r->overhead.nodes,
           (double)r->overhead.bytes / 1e6, (double)r->overhead.bytes / r->overhead.nodes);
    for (int w = 0; w < WORKS; w++)
        printf("  %-40s %6.0f\n", work_names[w], r->overhead.ns[w]);
}

static json_t *share_json(double share)
{
    return isnan(share) ? json_null() : json_real(share);
}

static json_t *array_json(const double *values, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}

static json_t *kind_json(const struct results *r, int k)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind",
                     fb_synth_name((enum fb_synth_kind)k), "pattern",
                     fb_pattern_name(fb_synth_pattern((enum fb_synth_kind)k)), "gap_test_alone",
                     share_json(r->paper[k]), "one_reader", share_json(r->one[k]), "workers",
                     share_json(r->workers[k]), "interleaved", share_json(r->mix[k]),
                     "interleaved_one_process", share_json(r->server[k]), "no_listing",
                     share_json(r->named[k]), "no_listing_later", share_json(r->later[k]),
                     "by_window", array_json(r->by_window[k], N_WINDOWS), "by_alpha",
                     array_json(r->by_alpha[k], N_ALPHAS), "gap_test_alone_by_alpha",
                     array_json(r->paper_by_alpha[k], N_ALPHAS));
}

static int print_json(const struct results *r)
{
    double x[N_WINDOWS];
    json_t *kinds = json_array(), *costs = json_array(), *works = json_array();
    json_t *object;

    for (size_t i = 0; i < N_WINDOWS; i++)
        x[i] = windows[i];
    for (int k = 0; k < KINDS; k++)
        json_array_append_new(kinds, kind_json(r, k));
    for (size_t i = 0; i < N_SHARES; i++)
        json_array_append_new(costs, json_pack("{s:f, s:f, s:f}", "cache_share", r->cost[i].share,
                                               "lru_hit_ratio", r->cost[i].lru, "uniform_hit_ratio",
                                               r->cost[i].uniform));
    for (int w = 0; w < WORKS; w++)
        json_array_append_new(works, json_pack("{s:s, s:f}", "accesses", work_names[w],
                                               "ns_per_access", r->overhead.ns[w]));
    object = json_pack(
        "{s:I, s:i, s:f, s:o, s:o, s:o, s:o, s:{s:I, s:I, s:f, s:o}}", "streams",
        (json_int_t)r->count, "window", WINDOW, "alpha", ALPHA, "windows", array_json(x, N_WINDOWS),
        "alphas", array_json(alphas, N_ALPHAS), "kinds", kinds, "wrong_call", costs, "overhead",
        "nodes", (json_int_t)r->overhead.nodes, "bytes", (json_int_t)r->overhead.bytes,
        "bytes_per_node", (double)r->overhead.bytes / r->overhead.nodes, "feeds", works);
    if (!object)
        return cli_fail(CLI_FAILED, "the results cannot be written as JSON");
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    json_decref(object);
    return CLI_OK;
}

int cli_bench_patterns(const struct cli_bench_options *options)
{
    FB_AUTO_FREE struct results *r = fb_alloc(sizeof *r);
    int rc = -ENOMEM;

    if (r) {
        r->count = fb_max_u64(options->each, 1);
        r->figure_count = fb_max_u64(r->count / FIGURE_SHARE, 1);
        rc = measure(r, options->random);
    }
    if (rc)
        return cli_fail(CLI_FAILED, "%s", fb_strerror(rc));
    rc = options->figures ? write_figures(r, options->figures) : 0;
    if (rc)
        return cli_fail(CLI_FAILED, "figures cannot be written into %s: %s", options->figures,
                        fb_strerror(rc));
    if (options->json)
        return print_json(r);
    print_table(r);
    return CLI_OK;
}
