/*
 * A small cache, driven by the brain as any cache would be, and jobs that read through it.
 */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "policy/brain.h"

#define ITEM  (1ULL << 20)
#define SETS  3
#define FILES 800 /* of a set, one item each */
#define NONE  UINT32_MAX

struct item {
    uint32_t stream; /* NONE: not there */
    uint32_t origin; /* of a prefetch not yet read; NONE */
    struct fb_kept kept;
};

struct cache {
    struct fb_brain *brain;
    uint64_t capacity; /* items */
    uint64_t used;
    int64_t now_ns;
    struct item item[SETS][FILES];
    uint64_t reads[SETS];
    uint64_t hits[SETS];
    uint64_t fetched; /* items, in all */
};

static struct cache *new_cache(uint64_t capacity, const struct fb_brain_config *parts)
{
    struct cache *c = calloc(1, sizeof *c);
    struct fb_brain_config config = fb_brain_defaults(capacity * ITEM);

    assert_non_null(c);
    config.alloc.step_bytes = config.alloc.minimum_bytes = capacity * ITEM / 20;
    config.no_keep = parts->no_keep;
    config.no_alloc = parts->no_alloc;
    config.no_prefetch = parts->no_prefetch;
    assert_int_equal(fb_brain_new(&config, &c->brain), 0);
    c->capacity = capacity;
    c->now_ns = 1;
    for (unsigned s = 0; s < SETS; s++)
        for (unsigned f = 0; f < FILES; f++)
            c->item[s][f].stream = NONE;
    return c;
}

static void free_cache(struct cache *c)
{
    fb_brain_free(c->brain);
    free(c);
}

static uint64_t key_of(unsigned set, uint32_t file)
{
    return (uint64_t)set * FILES + file + 1;
}

static void remove_item(struct cache *c, unsigned set, uint32_t file, enum fb_went why)
{
    struct item *it = &c->item[set][file];

    if (it->origin != NONE)
        fb_brain_prefetched(c->brain, (uint16_t)it->origin, false);
    fb_brain_went(c->brain, it->stream, key_of(set, file), ITEM, why);
    it->stream = NONE;
    c->used--;
}

/* The first to go among those of a stream, or of all. */
static void evict_one(struct cache *c, uint32_t stream)
{
    struct fb_brain_stream info = {.keep = FB_KEEP_LRU};
    struct fb_kept best = {0};
    int64_t found = -1;

    if (stream != FB_BRAIN_ANYONE)
        assert_true(fb_brain_get(c->brain, stream, &info));
    for (int64_t i = 0; i < SETS * FILES; i++) {
        const struct item *it = &c->item[i / FILES][i % FILES];
        struct fb_kept pair[2] = {best, it->kept};

        if (it->stream == NONE || (stream != FB_BRAIN_ANYONE && it->stream != stream))
            continue;
        if (found < 0 || fb_keep_victim(info.keep, pair, 2) == 1) {
            best = it->kept;
            found = i;
        }
    }
    assert_true(found >= 0);
    remove_item(c, (unsigned)(found / FILES), (uint32_t)(found % FILES), FB_WENT_EVICTED);
}

static void bring(struct cache *c, unsigned set, uint32_t file, uint32_t stream, uint32_t origin)
{
    c->fetched++;
    if (!fb_brain_admits(c->brain, stream, origin != NONE, ITEM, (c->capacity - c->used) * ITEM))
        return;
    if (c->used == c->capacity)
        evict_one(c, fb_brain_giver(c->brain, stream));
    fb_brain_came(c->brain, stream, ITEM);
    c->used++;
    c->item[set][file] =
        (struct item){.stream = stream, .origin = origin, .kept = {.admitted_ns = c->now_ns}};
}

static void read_file(struct cache *c, unsigned set, uint32_t file, uint32_t pid)
{
    struct item *it = &c->item[set][file];
    struct fb_brain_answer answer;
    char path[64];
    struct fb_brain_access access = {
        .fact = {.time_ns = c->now_ns += 10000000,
                 .path = path,
                 .pid = pid,
                 .blocks = 1,
                 .position = file,
                 .siblings = FILES,
                 .hit = it->stream != NONE},
        .key = key_of(set, file),
        .item_bytes = ITEM,
        .pipe = {.latency_s = 0.05, .bytes_per_s = 1e9, .item_bytes = ITEM},
    };

    access.fact.path_len = (uint32_t)snprintf(path, sizeof path, "set%u/%05u", set, file);
    c->reads[set]++;
    c->hits[set] += it->stream != NONE;
    fb_brain_access(c->brain, &access, &answer);
    if (it->stream == NONE) {
        bring(c, set, file, answer.stream, NONE);
    } else if (it->stream != answer.stream) {
        fb_brain_went(c->brain, it->stream, access.key, ITEM, FB_WENT_MOVED);
        fb_brain_came(c->brain, answer.stream, ITEM);
        it->stream = answer.stream;
    }
    if (it->stream != NONE) {
        if (it->origin != NONE)
            fb_brain_prefetched(c->brain, (uint16_t)it->origin, true);
        it->origin = NONE;
        it->kept.used_ns = c->now_ns;
        if (fb_keep_drops(answer.keep, ITEM, ITEM))
            remove_item(c, set, file, FB_WENT_DROPPED);
    }
    for (unsigned w = 0; w < answer.wants; w++) {
        const struct fb_prefetch_range *r = &answer.want[w].range;

        for (uint32_t i = 0; i < r->count && !answer.want[w].by_name; i++) {
            uint32_t next = r->first + i * r->stride;

            if (c->item[set][next].stream == NONE)
                bring(c, set, next, answer.stream, answer.want[w].origin);
        }
    }
    fb_brain_tick(c->brain, c->now_ns);
}

static double hit_ratio(const struct cache *c, unsigned set)
{
    return (double)c->hits[set] / (double)c->reads[set];
}

static void forget_counts(struct cache *c)
{
    memset(c->reads, 0, sizeof c->reads);
    memset(c->hits, 0, sizeof c->hits);
    c->fetched = 0;
}

static void shuffle(uint32_t *a, uint32_t n, struct fb_rand *rand)
{
    for (uint32_t i = 0; i < n; i++)
        a[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)fb_rand_below(rand, i), t = a[j];

        a[j] = a[i - 1];
        a[i - 1] = t;
    }
}

static void shuffled_epochs(struct cache *c, unsigned set, unsigned epochs, struct fb_rand *rand)
{
    static uint32_t order[FILES];

    for (unsigned e = 0; e < epochs; e++) {
        shuffle(order, FILES, rand);
        for (uint32_t i = 0; i < FILES; i++)
            read_file(c, set, order[i], 1 + i % 4);
    }
}

static const struct fb_brain_config all_parts, only_lru = {
                                                   .no_keep = true,
                                                   .no_alloc = true,
                                                   .no_prefetch = true,
};

/* No layout hits more than capacity / data set: half. LRU gets less. */
static void a_shuffled_set_is_kept_uniformly(void **state)
{
    double ratio[2];

    (void)state;
    for (int lru = 0; lru < 2; lru++) {
        struct fb_rand rand = {1};
        struct cache *c = new_cache(FILES / 2, lru ? &only_lru : &all_parts);

        shuffled_epochs(c, 0, 1, &rand);
        forget_counts(c);
        shuffled_epochs(c, 0, 2, &rand);
        ratio[lru] = hit_ratio(c, 0);
        free_cache(c);
    }
    assert_true(ratio[0] > 0.45 && ratio[0] <= 0.55);
    assert_true(ratio[1] < 0.4);
}

/* Read in order, epoch after epoch: LRU hits nothing at all. */
static void a_cycle_keeps_what_fits_and_fetches_the_rest(void **state)
{
    (void)state;
    for (int part = 0; part < 3; part++) {
        struct fb_brain_config parts = part == 0   ? all_parts
                                       : part == 1 ? (struct fb_brain_config){.no_prefetch = true}
                                                   : only_lru;
        struct cache *c = new_cache(FILES / 2, &parts);

        for (unsigned i = 0; i < 4 * FILES; i++)
            read_file(c, 0, i % FILES, 1);
        forget_counts(c);
        for (unsigned i = 0; i < 2 * FILES; i++)
            read_file(c, 0, i % FILES, 1);
        if (part == 0) {
            assert_true(hit_ratio(c, 0) > 0.95);
            assert_true(c->fetched < 2 * FILES * 6 / 10); /* half of it need not be fetched */
        } else if (part == 1) {
            assert_true(hit_ratio(c, 0) > 0.4);
        } else {
            assert_true(hit_ratio(c, 0) == 0);
        }
        free_cache(c);
    }
}

static void a_scan_is_fetched_ahead_and_leaves_nothing_behind(void **state)
{
    struct cache *c = new_cache(250, &all_parts);

    (void)state;
    for (uint32_t i = 0; i < 500; i++)
        read_file(c, 0, i, 1);
    forget_counts(c);
    for (uint32_t i = 500; i < FILES; i++)
        read_file(c, 0, i, 1);
    assert_true(hit_ratio(c, 0) > 0.99);
    /* All that is left was read before it was known to be a scan. */
    assert_in_range(c->used, 0, 110);
    free_cache(c);
}

/* A scan, a shuffled set that fits and a skewed one share a cache: space goes where it saves. */
static void streams_share_by_benefit(void **state)
{
    double ratio[2][3];

    (void)state;
    for (int lru = 0; lru < 2; lru++) {
        static uint32_t order[FILES];
        struct fb_rand rand = {2};
        struct cache *c = new_cache(600, lru ? &only_lru : &all_parts);

        for (uint32_t i = 0; i < 16000; i++) {
            uint32_t small = i % 400;
            uint32_t hot =
                (uint32_t)(fb_rand_unit(&rand) * fb_rand_unit(&rand) * fb_rand_unit(&rand) * FILES);

            if (small == 0)
                shuffle(order, 400, &rand);
            if (i == 8000)
                forget_counts(c);
            read_file(c, 0, i % FILES, 1);
            read_file(c, 1, order[small], 2);
            read_file(c, 2, hot, 3);
        }
        for (unsigned s = 0; s < 3; s++)
            ratio[lru][s] = hit_ratio(c, s);
        free_cache(c);
    }
    for (unsigned s = 0; s < 3; s++)
        assert_true(ratio[0][s] + 0.02 > ratio[1][s]);
    assert_true(ratio[0][1] > ratio[1][1] + 0.2);
}

/* A job ends; its data stays until another needs the room, and then goes first. */
static void an_ended_job_gives_its_space(void **state)
{
    struct fb_rand rand = {3};
    struct cache *c = new_cache(FILES, &all_parts);
    struct fb_brain_stream s;
    uint64_t first = 0, held = 0;

    (void)state;
    shuffled_epochs(c, 0, 2, &rand);
    for (uint32_t i = 1; i < FB_BRAIN_STREAMS; i++) {
        if (fb_brain_get(c->brain, i, &s) && s.used_bytes)
            first = i;
    }
    assert_true(first != 0);
    assert_true(fb_brain_get(c->brain, (uint32_t)first, &s));
    assert_int_equal(s.keep, FB_KEEP_UNIFORM);
    assert_true(s.used_bytes > FILES * ITEM * 9 / 10);
    assert_true(s.ttl_ns >= 60000000000LL && s.ttl_ns < 70000000000LL);
    c->now_ns += 100000000000LL;
    fb_brain_tick(c->brain, c->now_ns);
    assert_true(fb_brain_get(c->brain, (uint32_t)first, &s));
    assert_true(s.has_ended);
    held = s.used_bytes;
    assert_true(held > 0);
    shuffled_epochs(c, 1, 2, &rand);
    assert_true(!fb_brain_get(c->brain, (uint32_t)first, &s) || s.used_bytes < held / 5);
    assert_true(hit_ratio(c, 1) > 0.4);
    free_cache(c);
}

/* The paper's job 4: one table of each month; the brain asks for the same one of the months to
 * come, and for no other. */
static void months_to_come_are_wanted_by_name(void **state)
{
    struct fb_brain_config config = fb_brain_defaults(1000 * ITEM);
    struct fb_brain_answer answer = {0};
    struct fb_brain *b;
    char path[64];

    (void)state;
    assert_int_equal(fb_brain_new(&config, &b), 0);
    for (uint32_t i = 0; i < 150; i++) {
        struct fb_brain_access access = {
            .fact = {.time_ns = i * 100000000LL,
                     .path = path,
                     .pid = 1,
                     .blocks = 1,
                     .position = 7,
                     .siblings = 10},
            .key = i + 1,
            .item_bytes = ITEM,
            .pipe = {.latency_s = 0.15, .bytes_per_s = 125e6, .item_bytes = ITEM},
        };

        access.fact.path_len = (uint32_t)snprintf(path, sizeof path, "icoads/%u/10_100.csv",
                                                  (2010 + i / 12) * 100 + 1 + i % 12);
        fb_brain_access(b, &access, &answer);
    }
    assert_int_equal(answer.wants, 1);
    assert_true(answer.want[0].by_name);
    assert_int_equal(answer.want[0].range.first, 1);
    assert_in_range(answer.want[0].range.count, 4, 8);
    fb_streams_path(fb_brain_streams(b), answer.want[0].node, path, sizeof path);
    assert_string_equal(path, "icoads");
    assert_int_equal(answer.keep, FB_KEEP_EAGER);
    assert_true(fb_prefetch_wants_name(&config.prefetch, fb_brain_streams(b), answer.want[0].node,
                                       "10_100.csv", 10));
    assert_false(fb_prefetch_wants_name(&config.prefetch, fb_brain_streams(b), answer.want[0].node,
                                        "20_200.csv", 10));
    fb_brain_free(b);
}

/* How far ahead of the reader at `file` the brain wants to be, when that was not there. */
static uint64_t reach(struct fb_brain *brain, int64_t now_ns, unsigned set, uint32_t file)
{
    struct fb_brain_answer answer;
    char path[64];
    struct fb_brain_access access = {
        .fact = {.time_ns = now_ns,
                 .path = path,
                 .pid = set + 1,
                 .blocks = 1,
                 .position = file,
                 .siblings = FILES},
        .key = key_of(set, file),
        .item_bytes = ITEM,
        .pipe = {.latency_s = 0.5, .bytes_per_s = 64.0 * ITEM, .item_bytes = ITEM},
    };
    uint64_t last = file;

    access.fact.path_len = (uint32_t)snprintf(path, sizeof path, "set%u/%05u", set, file);
    fb_brain_access(brain, &access, &answer);
    for (unsigned i = 0; i < answer.wants; i++)
        last = answer.want[i].range.first + answer.want[i].range.count - 1;
    return last - file;
}

/* A reader alone fills the pipe; one among others has a share of it. */
static void scans_share_the_source(void **state)
{
    struct fb_brain_config config = fb_brain_defaults(FILES * ITEM);
    struct fb_rand lot = {5};
    struct fb_brain *brain;
    uint64_t alone = 0, among = 0;
    int64_t now_ns = 1;

    (void)state;
    assert_int_equal(fb_brain_new(&config, &brain), 0);
    for (uint32_t i = 0; i < FILES / 2; i++)
        alone = reach(brain, now_ns += 10000000, 0, i);
    for (uint32_t i = FILES / 2; i < FILES - 100; i++) {
        for (unsigned set = 1; set < SETS; set++)
            (void)reach(brain, now_ns, set, (uint32_t)fb_rand_below(&lot, FILES));
        among = reach(brain, now_ns += 10000000, 0, i);
    }
    assert_int_equal(alone, 33); /* bandwidth times latency, and one */
    assert_int_equal(among, 12); /* a third of that */
    fb_brain_free(brain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shuffled_set_is_kept_uniformly),
        cmocka_unit_test(a_cycle_keeps_what_fits_and_fetches_the_rest),
        cmocka_unit_test(a_scan_is_fetched_ahead_and_leaves_nothing_behind),
        cmocka_unit_test(streams_share_by_benefit),
        cmocka_unit_test(an_ended_job_gives_its_space),
        cmocka_unit_test(months_to_come_are_wanted_by_name),
        cmocka_unit_test(scans_share_the_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
