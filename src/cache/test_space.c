/*
 * Space moves between the streams of a daemon: one that is read at random holds the cache, then
 * another is read ten times as often, some of its files again and again. What it has to let go is
 * asked for once more (the ghosts of BufferWindow show that), and rounds give it what the first
 * had.
 */
#include <math.h>

#include "base/rand.h"
#include "cache/test_folders.h"

#define FILES      400u
#define FILE_BYTES (128u << 10)         /* 50 MiB in each folder: more than the cache holds */
#define ROUND_NS   (100 * FB_NS_PER_MS) /* the brain looks every two seconds */
#define ZIPF       0.9
#define TURNS      40000u /* at most, of ten reads of the one and one of the other */

static unsigned order[FILES], at = FILES;
static double sum[FILES];

static int make_source(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    make_folder("shuffled", FILES, FILE_BYTES);
    make_folder("popular", FILES, FILE_BYTES);
    for (unsigned i = 0; i < FILES; i++)
        sum[i] = (i ? sum[i - 1] : 0) + pow(i + 1, -ZIPF);
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    open_cache_with(true, 0, ROUND_NS);
    return 0;
}

struct seen {
    const char *path;
    struct fb_stream_view view;
};

static void look(void *arg, const struct fb_stream_view *view)
{
    struct seen *seen = arg;

    if (view->owns && strcmp(view->path, seen->path) == 0)
        seen->view = *view;
}

/* As it is shown to users; all zero while it is no stream. */
static struct fb_stream_view stream(const char *path)
{
    struct seen seen = {.path = path};

    fb_cache_tick(cache);
    fb_cache_streams(cache, look, &seen);
    return seen.view;
}

static void read_shuffled(struct fb_rand *rand)
{
    if (at == FILES) {
        for (unsigned i = 0; i < FILES; i++)
            order[i] = i;
        for (unsigned i = FILES; i > 1; i--) {
            unsigned j = (unsigned)fb_rand_below(rand, i), t = order[i - 1];

            order[i - 1] = order[j];
            order[j] = t;
        }
        at = 0;
    }
    read_file(name_of("shuffled", order[at]), order[at], FILE_BYTES);
    at++;
}

/* The k-th most popular with probability ~ 1/k^ZIPF, scattered over the folder. */
static void read_popular(struct fb_rand *rand)
{
    double draw = fb_rand_unit(rand) * sum[FILES - 1];
    unsigned k = 0, file;

    while (k + 1 < FILES && sum[k] <= draw)
        k++;
    file = k * 149 % FILES;
    read_file(name_of("popular", file), file, FILE_BYTES);
}

static void space_moves_to_who_can_use_it(void **state)
{
    struct fb_rand rand = {.state = 5};
    struct fb_stream_view one, other;
    uint64_t had = 0, first = 0, most = 0;
    bool ghosts = false, moved = false;

    (void)state;
    for (unsigned i = 0; i < TURNS && had == 0; i++) {
        read_shuffled(&rand);
        one = stream("shuffled");
        if (one.info.verdict.pattern == FB_PATTERN_RANDOM && fb_place_is_full(cache))
            had = one.held_bytes;
        fb_sleep_ns(FB_NS_PER_MS / 2); /* for the brain to look */
    }
    assert_true(had > 0);
    for (unsigned i = 0; i < TURNS && !(ghosts && moved); i++) {
        for (unsigned k = 0; k < 10; k++)
            read_popular(&rand);
        read_shuffled(&rand);
        one = stream("shuffled");
        other = stream("popular");
        ghosts = ghosts || (other.info.verdict.pattern == FB_PATTERN_SKEWED && other.benefit > 0);
        most = fb_max_u64(most, one.quota_bytes + other.quota_bytes);
        if (first == 0)
            first = other.quota_bytes;
        moved = other.quota_bytes > first + FILE_BYTES && one.held_bytes + FILE_BYTES < had &&
                other.held_bytes > first;
        fb_sleep_ns(FB_NS_PER_MS / 2);
    }
    assert_true(ghosts);
    assert_true(moved);
    /* What one got the other gave: together never more than there is. */
    assert_true(most <= cache->config.memory_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(space_moves_to_who_can_use_it, setup, teardown),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
