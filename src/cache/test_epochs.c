/*
 * Plans at work over a real directory: what is read next is in DRAM, what was read leaves it, the
 * source is read once; copies stay; and the next epoch laid out on the disk.
 */
#include "cache/test_epochs.h"

#include <errno.h>

/* An epoch from DRAM, of which nothing is fetched again, comes after a while: what had to leave
 * DRAM while the disk was busy is fetched once more. */
static void epochs_from_dram(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    int64_t until_ns = fb_now_ns() + 4 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    uint64_t hits = 0, fetched = 0;
    struct fb_tier_stats dram;

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    for (uint64_t e = 0; e < 3 || hits < FILES * 9 / 10 || fetched > 0; e++) {
        assert_true(fb_now_ns() < until_ns);
        hits = metric(f, FB_CM_HITS_DRAM);
        fetched = metric(f, FB_CM_FETCH_BYTES);
        read_some(f, truth, 0, FILES);
        wait_metric(f, FB_CM_PLAN_READS, (e + 1) * FILES - e * FB_FOLLOW_SURE);
        hits = metric(f, FB_CM_HITS_DRAM) - hits;
        fetched = metric(f, FB_CM_FETCH_BYTES) - fetched;
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    assert_true(metric(f, FB_CM_FETCH_BYTES) >= (uint64_t)FILES * BYTES);
    /* What was read does not fill DRAM: the rest is what comes next. */
    fb_store_tier_stats(fb_cache_store(f->cache), 0, &dram);
    assert_true(dram.items <= FILES);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 0);
    fb_plan_free(truth);
    fb_names_free(names);
}

static uint64_t segment_bytes(const struct fixture *f)
{
    struct fb_tier_stats dram;

    fb_store_tier_stats(fb_cache_store(f->cache), 0, &dram);
    return dram.budget_bytes / dram.slots;
}

/* Files that have a copy in DRAM, in segments that are sealed. */
static uint32_t copied_files(const struct fixture *f)
{
    static struct fb_segment_info infos[256];
    uint32_t count = fb_store_sealed(fb_cache_store(f->cache), 0, infos, 256), files = 0;

    for (uint32_t i = 0; i < count; i++)
        files += infos[i].lane == FB_STORE_COPY ? infos[i].live_items : 0;
    return files;
}

static void wait_copied(const struct fixture *f, uint32_t least, uint32_t most)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    uint32_t files;

    for (files = copied_files(f); files < least || files > most; files = copied_files(f)) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
}

/* A plan ends, and another job reads the set by another one: what the first has kept in DRAM is the
 * second's from its beginning, also what comes before the place where it begins to read. */
static void next_job(const struct fixture *f, const struct fb_names *names)
{
    struct fb_plan *truth = make_truth(names);
    uint32_t copied = copied_files(f);
    struct fb_error err = {""};

    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    /* But for a segment that is just being sealed. */
    wait_copied(f, 0, (uint32_t)(segment_bytes(f) / BYTES));
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_copied(f, copied * 3 / 4, FILES);
    read_slowly(f, truth, FILES / 2, FILES, 1);
    wait_copied(f, copied * 3 / 4, FILES);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    fb_plan_free(truth);
}

/* All of it has a place on the disk, and a part a copy in DRAM besides, which stays: epochs promote
 * the others only. */
static void copies_stay(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    uint64_t promoted, copies;

    close_cache(f);
    f->config.block_bytes = 64u << 10;
    open_cache(f);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    /* The first epoch comes from the source. */
    read_slowly(f, truth, 0, FILES, 1);
    assert_int_equal(fb_plan_advance(truth), 0);
    do {
        assert_true(fb_now_ns() < until_ns);
        promoted = metric(f, FB_CM_PROMOTED);
        read_slowly(f, truth, 0, FILES, 1);
        assert_int_equal(fb_plan_advance(truth), 0);
        promoted = metric(f, FB_CM_PROMOTED) - promoted;
        copies = fb_store_lane_bytes(fb_cache_store(f->cache), 0, FB_STORE_COPY);
    } while (copies < (uint64_t)FILES * BYTES / 4 || promoted > FILES * 3 / 4);
    fb_plan_free(truth);
    next_job(f, names);
    fb_names_free(names);
}

static uint64_t lane_bytes(const struct fixture *f, enum fb_store_lane lane)
{
    return fb_store_lane_bytes(fb_cache_store(f->cache), 0, lane);
}

/* Without a plan, which shall not be told of these reads when it comes. */
static void read_before(const struct fixture *f, uint32_t files)
{
    for (uint32_t i = 0; i < files; i++)
        read_file(f, i);
    wait_metric(f, FB_CM_ACCESS_RECORDS, files);
}

/* What readers without a plan have left in DRAM stays there when a plan comes, also when it gets
 * its place on the disk, which has room for all: it is not read from there in the next epoch. */
static void what_was_there_stays(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};
    uint64_t promoted, copies;

    close_cache(f);
    f->config.block_bytes = 64u << 10;
    f->config.segment_bytes = 256u << 10;
    open_cache(f);
    read_before(f, FILES);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    read_slowly(f, truth, 0, FILES / 2, 1);
    copies = lane_bytes(f, FB_STORE_COPY);
    assert_true(copies >= (uint64_t)FILES * BYTES / 4);
    assert_int_equal(lane_bytes(f, FB_STORE_PLAN), 0);
    read_slowly(f, truth, FILES / 2, FILES, 1);
    assert_true(lane_bytes(f, FB_STORE_COPY) >= copies / 4 * 3);
    assert_int_equal(fb_plan_advance(truth), 0);
    promoted = metric(f, FB_CM_PROMOTED);
    read_slowly(f, truth, 0, FILES, 1);
    assert_true(metric(f, FB_CM_PROMOTED) - promoted <= FILES * 3 / 4);
    fb_plan_free(truth);
    fb_names_free(names);
}

/* The disk has room for what DRAM had when the plan came, but not for all of the set: what it did
 * not get by the time it is full stays in DRAM, and next to nothing is fetched again. */
static void what_was_there_stays_where_it_must(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};
    uint64_t fetched;

    close_cache(f);
    f->config.cache_bytes = 30u << 20;
    f->config.block_bytes = 64u << 10;
    f->config.segment_bytes = 256u << 10;
    open_cache(f);
    read_before(f, FILES * 3 / 4);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    read_slowly(f, truth, 0, FILES, 1);
    assert_int_equal(fb_plan_advance(truth), 0);
    fetched = metric(f, FB_CM_FETCH_BYTES);
    for (int epoch = 0; epoch < 2; epoch++) {
        read_slowly(f, truth, 0, FILES, 1);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    assert_true(metric(f, FB_CM_FETCH_BYTES) - fetched <= (uint64_t)FILES * BYTES / 32);
    fb_plan_free(truth);
    fb_names_free(names);
}

/* Disk and memory together hold all of it, either alone half: it comes to lie there, and next to
 * nothing is fetched again. */
static void kept_where_there_is_room(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    uint64_t fetched;

    close_cache(f);
    f->config.cache_bytes = 20u << 20;
    f->config.block_bytes = 64u << 10;
    open_cache(f);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    do {
        assert_true(fb_now_ns() < until_ns);
        fetched = metric(f, FB_CM_FETCH_BYTES);
        read_slowly(f, truth, 0, FILES, 1);
        assert_int_equal(fb_plan_advance(truth), 0);
        fetched = metric(f, FB_CM_FETCH_BYTES) - fetched;
    } while (fetched > (uint64_t)FILES * BYTES / 8);
    assert_true(fb_store_lane_bytes(fb_cache_store(f->cache), 0, FB_STORE_PLAN) >
                2 * segment_bytes(f));
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    /* What it has kept there is not held any longer; one segment is still open. */
    until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    while (fb_store_lane_bytes(fb_cache_store(f->cache), 0, FB_STORE_PLAN) > segment_bytes(f)) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    fb_plan_free(truth);
    fb_names_free(names);
}

static void fill_with_others(const struct fixture *f)
{
    FB_AUTO_FREE uint8_t *data = fb_alloc_array(OTHER_BYTES, 1);
    struct fb_attr attr;
    uint32_t file;
    char name[64];

    assert_non_null(data);
    for (uint32_t i = 0; i < OTHERS; i++) {
        snprintf(name, sizeof name, "other%u", i * 37 % OTHERS);
        assert_int_equal(fb_cache_stat(f->volume, name, &file, &attr), 0);
        assert_int_equal(fb_cache_pread(f->volume, file, 0, OTHER_BYTES, data), OTHER_BYTES);
        fb_files_unref(fb_cache_files(f->cache), file, 1);
    }
}

static bool is_full_of_others(const struct fixture *f)
{
    struct fb_tier_stats tier;
    bool full = true;

    for (unsigned t = 0; t < 2; t++) {
        fb_store_tier_stats(fb_cache_store(f->cache), t, &tier);
        full = full && tier.segments >= tier.slots * (t == 0 ? 9 : 5) / 10;
    }
    return full;
}

/* What others have left goes for what a plan brings and keeps; none of the plan's own does, which
 * would have to be fetched twice. */
static void begins_in_a_full_cache(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};
    uint64_t fetched, hits;

    close_cache(f);
    f->config.cache_bytes = 40u << 20;
    f->config.block_bytes = 64u << 10;
    open_cache(f);
    /* A slow disk does not take all that could go there. */
    for (int tries = 0; tries < 20 && !is_full_of_others(f); tries++)
        fill_with_others(f);
    assert_true(is_full_of_others(f));
    fetched = metric(f, FB_CM_FETCH_BYTES);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    for (uint64_t e = 0; e < 2; e++) {
        hits = metric(f, FB_CM_HITS_DRAM);
        read_slowly(f, truth, 0, FILES, 16);
        wait_metric(f, FB_CM_PLAN_READS, (e + 1) * FILES - e * FB_FOLLOW_SURE);
        hits = metric(f, FB_CM_HITS_DRAM) - hits;
        assert_true(hits >= FILES / 2);
        assert_true(e > 0 ||
                    metric(f, FB_CM_FETCH_BYTES) - fetched <= (uint64_t)FILES * BYTES * 3 / 2);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    fb_plan_free(truth);
    fb_names_free(names);
}

/* Which buckets of the truth's next epoch the items of a segment belong to. */
struct order_on_disk {
    const struct fixture *f;
    const struct fb_plan *truth;
    const struct fb_names *names;
    uint16_t source;
    uint32_t buckets;
    uint32_t first, last, items;
};

static void look_at_item(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct order_on_disk *o = arg;
    struct fb_version version;
    char path[FB_PATH_MAX];
    uint32_t number, bucket;
    uint64_t k;
    size_t len;

    (void)length;
    (void)use;
    if (!fb_files_peek(fb_cache_files(o->f->cache), (uint32_t)(key >> 32), o->source, path, &len,
                       &version))
        return;
    assert_true(fb_names_find(o->names, path + 4, len - 4, &number));
    assert_true(fb_plan_access(o->truth, fb_plan_next(o->truth), number, &k));
    bucket = (uint32_t)(k * o->buckets / FILES);
    o->first = o->items == 0 || bucket < o->first ? bucket : o->first;
    o->last = o->items == 0 || bucket > o->last ? bucket : o->last;
    o->items++;
}

/* Items on NVMe that lie together with those of their bucket only. */
static uint32_t items_in_order(struct order_on_disk *o)
{
    struct fb_store *store = fb_cache_store(o->f->cache);
    static struct fb_segment_info infos[4096];
    uint32_t count = fb_store_sealed(store, 1, infos, FB_ARRAY_SIZE(infos)), items = 0;

    for (uint32_t i = 0; i < count; i++) {
        o->items = 0;
        if (fb_store_visit(store, infos[i].no, UINT32_MAX, look_at_item, o) == 0 && o->items > 1 &&
            o->first == o->last)
            items += o->items;
    }
    return items;
}

/* How much is laid out in time depends on the machine; that it comes to be does not. */
static void laid_out_on_disk(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct order_on_disk o = {.f = f, .truth = truth, .names = names};
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    struct fb_plan_view view = {0};

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    for (;;) {
        read_some(f, truth, 0, FILES);
        fb_cache_plans(f->cache, note_view, &view);
        assert_non_null(view.dir);
        o.buckets = view.buckets;
        o.source = view.source;
        /* In any other order next to nothing lies so. */
        for (int i = 0; i < 100 && o.buckets > 1 && items_in_order(&o) < FILES / 3; i++)
            fb_sleep_ns(10 * FB_NS_PER_MS);
        if (o.buckets > 1 && items_in_order(&o) >= FILES / 3 && metric(f, FB_CM_LOG_LOADS) > 0)
            break;
        if (fb_now_ns() > until_ns)
            fail_msg("%u of %u items in order on disk, %u buckets", items_in_order(&o), FILES,
                     o.buckets);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    fb_plan_free(truth);
    fb_names_free(names);
}

static uint64_t written_by_log(const struct fixture *f)
{
    return metric(f, FB_CM_LOG_BYTES) + metric(f, FB_CM_LOG_MOVED);
}

/* Reads epochs until so many items were left. */
static void read_until_left(const struct fixture *f, struct fb_plan *truth, uint64_t left)
{
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;

    do {
        assert_true(fb_now_ns() < until_ns);
        read_some(f, truth, 0, FILES);
        assert_int_equal(fb_plan_advance(truth), 0);
    } while (metric(f, FB_CM_LOG_LEFT) < left);
}

static void writes_are_limited(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};
    uint64_t limit = (uint64_t)FILES * BYTES, written;

    close_cache(f);
    f->config.epoch_log_daily_bytes = limit;
    open_cache(f);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    read_until_left(f, truth, FILES);
    written = written_by_log(f);
    assert_true(written > 0);
    assert_true(written <= limit);
    /* Nor more after a restart, but for what a few minutes give. */
    close_cache(f);
    open_cache(f);
    read_until_left(f, truth, FILES / 2);
    assert_true(written + written_by_log(f) <= limit + limit / 16);
    fb_plan_free(truth);
    fb_names_free(names);
}

/* Plans have a share of the memory: what takes more is refused in a sentence, and nothing else
 * changes. */
static void too_large_a_plan(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = many_names();
    struct fb_error err = {""};

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    assert_int_equal(fb_cache_plan(f->volume, "all", names, order(), &err), -ENOMEM);
    assert_non_null(strstr(err.text, "a plan of 50000 files takes"));
    assert_non_null(strstr(err.text, "--memory"));
    assert_int_equal(fb_cache_unplan(f->volume, "all"), 0);
    wait_ready(f, 0, 0, 64);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(epochs_from_dram, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_there_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_there_stays_where_it_must, setup, teardown),
        cmocka_unit_test_setup_teardown(kept_where_there_is_room, setup, teardown),
        cmocka_unit_test_setup_teardown(begins_in_a_full_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(laid_out_on_disk, setup_log, teardown),
        cmocka_unit_test_setup_teardown(writes_are_limited, setup_log, teardown),
        cmocka_unit_test_setup_teardown(too_large_a_plan, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
