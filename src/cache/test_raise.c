/*
 * What is on a disk and will be read comes up into DRAM by itself: after a restart, for who reads
 * at random; not for who reads in order, nor where there is no room; the bytes are those of the
 * source whatever happened to the disk meanwhile; and what was evicted by hand does not come back.
 */
#include "cache/cache_priv.h"
#include "cache/test_rig.h"

#define FILES      1200u
#define FILE_BYTES (40u << 10)
#define READ       200u
#define MOST       600u /* reads while the rest comes up */
#define ROOMY      (256 * MIB)
#define TIGHT      (96 * MIB)

static const char *name_of(unsigned i)
{
    static char name[32];

    snprintf(name, sizeof name, "set/%02u/%04u", i % 8, i);
    return name;
}

static int make_source(void **state)
{
    char path[PATH_MAX + 64];

    (void)state;
    make_source_dir();
    snprintf(path, sizeof path, "%s/set", source_path);
    assert_int_equal(mkdir(path, 0755), 0);
    for (unsigned i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "%s/set/%02u", source_path, i);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    for (unsigned i = 0; i < FILES; i++)
        put_file(name_of(i), FILE_BYTES, i + 1);
    settle();
    return 0;
}

static void read_one(struct fixture *f, unsigned i)
{
    expect_file(f, name_of(i), FILE_BYTES, i + 1);
}

/* All of the set is on the disk, and none of it in DRAM. */
static void begin(struct fixture *f, uint64_t memory_bytes)
{
    f->config.memory_bytes = memory_bytes;
    f->config.cache_bytes = 256 * MIB;
    f->config.segment_bytes = MIB;
    f->config.cache_dirs[0] = f->cache_path;
    f->config.cache_dir_count = 1;
    open_cache(f);
    for (unsigned i = 0; i < FILES; i++)
        read_one(f, i);
    close_cache(f);
}

static struct fb_tier_stats dram(struct fixture *f)
{
    struct fb_tier_stats stats;

    fb_store_tier_stats(fb_cache_store(f->cache), 0, &stats);
    return stats;
}

static bool is_up(struct fixture *f, unsigned i)
{
    uint32_t file = fb_files_find(fb_cache_files(f->cache), fb_volume_id(f->volume), name_of(i));
    struct fb_whereabouts where = {0};

    if (file == FB_FILE_NONE)
        return false;
    fb_store_where(fb_cache_store(f->cache), fb_item_key(file, 0), &where);
    let_go(f, file);
    return where.in_dram;
}

static unsigned count_up(struct fixture *f)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FILES; i++)
        count += is_up(f, i);
    return count;
}

/* In random order; each once. */
static void shuffle(unsigned order[FILES])
{
    struct fb_rand r = {.state = 7};

    for (unsigned i = 0; i < FILES; i++)
        order[i] = i;
    for (unsigned i = FILES - 1; i > 0; i--) {
        unsigned j = (unsigned)(fb_rand_u64(&r) % (i + 1)), was = order[i];

        order[i] = order[j];
        order[j] = was;
    }
}

/* Reads at random, slowly once there are READ of them, until `count` are up. Returns how many reads
 * that took. */
static unsigned read_until_up(struct fixture *f, const unsigned order[FILES], unsigned count)
{
    unsigned i;

    for (i = 0; i < MOST && (i < READ || count_up(f) < count); i++) {
        assert_true(dram(f).segments <= dram(f).slots);
        read_one(f, order[i]);
        if (i >= READ)
            fb_sleep_ns(50 * FB_NS_PER_MS);
    }
    return i;
}

static void wait_ended(struct fixture *f)
{
    bool paid;

    while (fb_raise_is_busy(f->cache->raise, &paid))
        fb_sleep_ns(FB_NS_PER_MS);
}

static void the_rest_comes_up(void **state)
{
    struct fixture *f = *state;
    unsigned order[FILES], reads;

    begin(f, ROOMY);
    open_cache(f);
    assert_int_equal(count_up(f), 0);
    shuffle(order);
    reads = read_until_up(f, order, FILES);
    assert_true(reads < MOST);
    wait_ended(f);
    assert_true(metric(f, FB_CM_RAISED) >= FILES - MOST);
    assert_true(metric(f, FB_CM_RAISED_BYTES) == metric(f, FB_CM_RAISED) * FILE_BYTES);
    assert_int_equal(metric(f, FB_CM_MISSES), 0);
    for (unsigned i = 0; i < FILES; i++)
        read_one(f, i);
    assert_int_equal(metric(f, FB_CM_MISSES), 0);
}

static void not_for_who_reads_in_order(void **state)
{
    struct fixture *f = *state;

    begin(f, ROOMY);
    open_cache(f);
    /* In the order of the directories, and of the names in them. */
    for (unsigned i = 0; i < 2 * READ; i++) {
        read_one(f, i / (FILES / 8) + i % (FILES / 8) * 8);
        if (i % 16 == 15)
            fb_cache_look(f->cache);
    }
    assert_int_equal(metric(f, FB_CM_RAISED), 0);
    assert_true(metric(f, FB_CM_HITS_NVME) >= 2 * READ);
}

/* Nothing goes for it, and some room is left. */
static void only_into_room(void **state)
{
    struct fixture *f = *state;
    struct fb_tier_stats stats;
    unsigned order[FILES];
    uint64_t raised;

    begin(f, TIGHT);
    open_cache(f);
    stats = dram(f);
    assert_true(stats.budget_bytes < FILES * FILE_BYTES);
    shuffle(order);
    read_until_up(f, order, (unsigned)(stats.budget_bytes * 3 / 4 / FILE_BYTES));
    assert_true(metric(f, FB_CM_RAISED) > 0);
    wait_ended(f);
    assert_int_equal(fb_metric_get(fb_store_metrics(fb_cache_store(f->cache)), FB_SM_EVICTED), 0);
    for (unsigned i = 0; i < FILES; i++)
        read_one(f, order[i]);
    raised = metric(f, FB_CM_RAISED);
    assert_false(fb_raise_has_room(f->cache->raise));
    for (unsigned i = 0; i < READ; i++) {
        read_one(f, order[i]);
        if (i % 16 == 15)
            fb_cache_look(f->cache);
    }
    assert_int_equal(metric(f, FB_CM_RAISED), raised);
}

/* Some of the disk's bytes are others now. */
static void damage(struct fixture *f)
{
    char path[PATH_MAX + 64];
    FB_AUTO_CLOSE int fd = -1;
    struct stat st;

    snprintf(path, sizeof path, "%s/segments", f->cache_path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    /* In the middle of segments: headers and tables of contents are damaged elsewhere. */
    for (off_t at = MIB / 2; at + 8 < st.st_size; at += 4 * MIB)
        assert_int_equal(pwrite(fd, "damaged!", 8, at), 8);
}

static void damage_stays_below(void **state)
{
    struct fixture *f = *state;
    unsigned order[FILES];

    begin(f, ROOMY);
    damage(f);
    open_cache(f);
    shuffle(order);
    assert_true(read_until_up(f, order, FILES - FILES / 20) < MOST);
    for (unsigned i = 0; i < FILES; i++)
        read_one(f, i);
    assert_true(fb_metric_get(fb_store_metrics(fb_cache_store(f->cache)), FB_SM_DAMAGED) > 0);
}

static void what_was_evicted_stays_away(void **state)
{
    struct fixture *f = *state;
    struct fb_store *store;
    unsigned order[FILES], i;

    begin(f, ROOMY);
    open_cache(f);
    shuffle(order);
    for (i = 0; i < MOST && metric(f, FB_CM_RAISED) == 0; i++)
        read_one(f, order[i]);
    (void)fb_cache_evict(f->volume, "set");
    wait_ended(f);
    store = fb_cache_store(f->cache);
    /* The last that was read may still be on its way up, and then goes again. A data set that is
     * read at random is loaded anew, from the source. */
    for (i = 0; i < 6000 && fb_store_items(store) > 0 && metric(f, FB_CM_FILLED_BYTES) == 0; i++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_true(i < 6000);
    read_one(f, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_rest_comes_up),  CASE(not_for_who_reads_in_order),  CASE(only_into_room),
        CASE(damage_stays_below), CASE(what_was_evicted_stays_away),
    };

    return cmocka_run_group_tests_name("raise", tests, make_source, remove_source);
}
