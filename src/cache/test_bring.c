/*
 * What nobody has asked for yet: files that follow in a reader's order are there before it comes,
 * with their attributes; a data set that is read at random is loaded; nothing is displaced for it,
 * and it ends when it does not pay or when the volume goes.
 */
#include "base/rand.h"
#include "cache/test_folders.h"

#define FILES          700u
#define FILE_BYTES     8192u
#define LARGE          150u /* files of LARGE_BYTES: more than the cache holds */
#define LARGE_BYTES    (512u << 10)
#define MANY           3000u
#define SHUFFLED       600u /* files of SHUFFLED_BYTES: twice what the cache holds */
#define SHUFFLED_BYTES (96u << 10)

static int make_source(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    make_folder("small", FILES, FILE_BYTES);
    make_folder("many", MANY, 64);
    make_folder("large", LARGE, LARGE_BYTES);
    make_folder("shuffled", SHUFFLED, SHUFFLED_BYTES);
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    open_cache(true, 0);
    return 0;
}

static int setup_watched(void **state)
{
    (void)state;
    open_cache(false, 0);
    return 0;
}

static void read_small(unsigned i)
{
    read_file(name_of("small", i), i, FILE_BYTES);
}

/* In a tier, or in a buffer; and its record is believed. */
static bool is_there(const char *name)
{
    uint32_t file = fb_files_find(cache->files, fb_volume_id(volume), name);
    bool ready = false;

    if (file == FB_FILE_NONE)
        return false;
    if (fb_files_valid_until(cache->files, file) > fb_now_ns())
        ready = fb_item_is_there(cache, file, 0);
    fb_files_unref(cache->files, file, 1);
    return ready;
}

static bool is_ready(unsigned i)
{
    return is_there(name_of("small", i));
}

static void wait_ready(unsigned i)
{
    for (int tries = 0; tries < 12000 && !is_ready(i); tries++) {
        fb_cache_tick(cache);
        fb_sleep_ns(5 * FB_NS_PER_MS);
    }
    assert_true(is_ready(i));
}

/* Reads in order until the brain has seen that, and the directory is known. */
static unsigned read_until_ahead(unsigned from)
{
    unsigned i;

    for (i = from; i < FILES / 2 && metric(FB_CM_PREFETCH_BYTES) == 0; i++) {
        read_small(i);
        fb_cache_tick(cache);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    assert_true(i < FILES / 2);
    return i;
}

static void what_follows_is_there(void **state)
{
    unsigned i = read_until_ahead(0) + 8;
    uint64_t misses;

    (void)state;
    for (unsigned j = i - 8; j < i; j++) {
        read_small(j);
        fb_cache_tick(cache);
    }
    misses = metric(FB_CM_MISSES);
    for (unsigned j = 0; j < 100; j++) {
        wait_ready(i + j);
        read_small(i + j);
        fb_cache_tick(cache);
    }
    assert_int_equal(metric(FB_CM_MISSES), misses);
    fb_cache_tick(cache);
    assert_true(metric(FB_CM_PREFETCH_USED) >= 100);
    /* Those that were read while they were on their way. */
    assert_true(metric(FB_CM_PREFETCH_WASTED) <= 8);
}

/* Items of which it is known by now whether they are kept. */
static uint64_t settled(void)
{
    return metric(FB_CM_ADMITTED) + metric(FB_CM_DECLINED) + metric(FB_CM_ADMIT_DROPPED);
}

static void it_is_there_without_room(void **state)
{
    uint64_t hits;
    unsigned i, tries = 0;

    (void)state;
    for (i = 0; i < LARGE; i++)
        read_file(name_of("large", i), i, LARGE_BYTES);
    for (; tries < 2000 && settled() < LARGE * (LARGE_BYTES / cache->config.block_bytes); tries++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_true(fb_place_is_full(cache));
    hits = metric(FB_CM_HITS_DRAM);
    /* Slower each round, until what follows comes in time on this machine, too. */
    for (unsigned round = 1; round <= 8 && metric(FB_CM_HITS_DRAM) <= hits + 20; round++) {
        for (i = round == 1 ? read_until_ahead(0) : 0; i < FILES; i++) {
            read_small(i);
            fb_cache_tick(cache);
            fb_sleep_ns(3 * FB_NS_PER_MS * round);
        }
    }
    assert_true(metric(FB_CM_HITS_DRAM) > hits + 20);
}

/* Requests at the source, after whatever may begin has begun. */
static unsigned running(void)
{
    fb_cache_tick(cache);
    return fb_volume_running(volume);
}

/* Whoever leaves out most of what follows is not followed for long. */
static void it_pauses_when_it_does_not_pay(void **state)
{
    struct fb_rand r = {.state = 1};
    uint64_t bytes = 0;
    unsigned quiet = 0;

    (void)state;
    /* Short steps forward: one file in four is read. Each when what is on its way has come: where
     * nothing comes because the machine is busy, nothing would be in vain. */
    for (unsigned i = 0; i < MANY && quiet < 100; i += 1 + (unsigned)(fb_rand_u64(&r) % 7)) {
        read_file(name_of("many", i), i, 64);
        fb_cache_tick(cache);
        fb_sleep_ns(FB_NS_PER_MS / 2);
        for (int tries = 0; tries < 100 && running() > 0; tries++)
            fb_sleep_ns(FB_NS_PER_MS);
        quiet = metric(FB_CM_PREFETCH_BYTES) == bytes && metric(FB_CM_PREFETCH_WASTED) >= 16
                    ? quiet + 1
                    : 0;
        bytes = metric(FB_CM_PREFETCH_BYTES);
    }
    assert_int_equal(quiet, 100);
}

/* Unread, evicted: the volume goes while files are being brought, from a source that hangs. */
static void it_ends_with_the_volume(void **state)
{
    (void)state;
    read_until_ahead(0);
    fb_source_fault_set(fault, &(struct fb_fault_config){.hang = 1});
    for (unsigned j = 0; j < 100; j++) {
        struct fb_bring_order order = {.source = fb_volume_id(volume),
                                       .path = name_of("small", FILES - 1 - j)};

        assert_true(fb_bring(cache->bring, &order) > 0);
    }
    fb_cache_tick(cache);
}

#define READERS     4u
#define READERS_MAX 64u

/* Programs that wait for a file each. */
struct readers {
    unsigned count;
    struct fb_read *read[READERS_MAX];
    struct fb_event over[READERS_MAX];
    uint32_t file[READERS_MAX];
};

static void answered(struct fb_read *read)
{
    fb_event_set(read->arg);
}

static void look_up(struct readers *r, const char *folder, unsigned first)
{
    assert_true(r->count <= READERS_MAX);
    for (unsigned i = 0; i < r->count; i++)
        assert_int_equal(fb_cache_stat(volume, name_of(folder, first + i), &r->file[i], NULL), 0);
}

static void begin_reading(struct readers *r, uint32_t bytes)
{
    for (unsigned i = 0; i < r->count; i++) {
        fb_event_init(&r->over[i]);
        r->read[i] = fb_alloc(sizeof *r->read[i]);
        assert_non_null(r->read[i]);
        *r->read[i] = (struct fb_read){.volume = volume,
                                       .file = r->file[i],
                                       .length = bytes,
                                       .done = answered,
                                       .arg = &r->over[i]};
        fb_cache_read(r->read[i]);
    }
}

static void end_reading(struct readers *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        fb_event_wait(&r->over[i]);
        assert_int_equal(r->read[i]->result, 0);
        fb_read_release(r->read[i]);
        free(r->read[i]);
        fb_files_unref(cache->files, r->file[i], 1);
    }
}

/* Nothing is begun of them. */
static void bring_in_vain(unsigned count)
{
    unsigned before = running();

    for (unsigned i = 0; i < count; i++) {
        struct fb_bring_order order = {
            .source = fb_volume_id(volume), .origin = FB_BRING_FILL, .path = name_of("small", i)};

        assert_int_equal(fb_bring(cache->bring, &order), FB_BROUGHT_QUEUED);
    }
    assert_int_equal(running(), before);
    assert_int_equal(volume->bringing, 0);
    assert_int_equal(metric(FB_CM_FILLED_BYTES), 0);
}

/* Programs wait for so many files that few of the source's buffers are free: those are for the next
 * of them, and nothing is brought. */
static void it_leaves_buffers_to_programs(void **state)
{
    uint32_t limit = volume->account->limit;
    struct readers r = {.count = limit - 4 - limit / 16};

    (void)state;
    look_up(&r, "small", 32);
    fb_source_fault_set(fault, &(struct fb_fault_config){.hang = 1});
    begin_reading(&r, FILE_BYTES);
    assert_true(running() + 1 < cache->config.max_fetches); /* it is not for want of these */
    bring_in_vain(8);
    fb_source_fault_set(fault, &(struct fb_fault_config){0});
    end_reading(&r);
    for (unsigned i = 0; i < 8; i++)
        wait_ready(i);
}

static void make_far_and_hang(void)
{
    fb_source_fault_set(fault, &(struct fb_fault_config){.hang = 1});
    fb_mutex_lock(&cache->fetch_lock);
    atomic_store(&volume->pipe.idle_ns, 20 * FB_NS_PER_MS);
    atomic_store(&volume->pipe.reads, 1000);
    volume->pipe.bytes_per_s = 50e6;
    fb_mutex_unlock(&cache->fetch_lock);
}

/* Four programs wait for 2 MiB of a source that is far, and takes a megabyte at a time: nothing is
 * brought from there until they have their bytes, however many connections are free; then all of
 * it is. */
static void it_yields_to_those_who_wait(void **state)
{
    struct readers r = {.count = READERS};
    unsigned demand;

    (void)state;
    look_up(&r, "large", 0);
    make_far_and_hang();
    assert_true(fb_pipe_is_far(cache, fb_volume_id(volume)));
    assert_false(fb_pipe_yields(volume));
    begin_reading(&r, LARGE_BYTES);
    assert_true(fb_pipe_yields(volume));
    demand = running();
    assert_true(demand >= READERS && demand < cache->config.max_fetches / 2);
    bring_in_vain(32);

    fb_source_fault_set(fault, &(struct fb_fault_config){0});
    end_reading(&r);
    assert_false(fb_pipe_yields(volume));
    for (unsigned i = 0; i < 32; i++)
        wait_ready(i);
}

/* And no other source waits for one that has no room. */
static void it_passes_a_busy_source(void **state)
{
    struct readers r = {.count = READERS};
    struct fb_volume_config config = {.metadata_ttl_ns = 3600 * FB_NS_PER_S,
                                      .timeout_ns = 60 * FB_NS_PER_S};
    struct fb_posix_config posix = {.threads = 1};
    struct fb_bring_order order = {.origin = FB_BRING_FILL, .path = "00000.bin"};
    char root[PATH_MAX + 64];
    struct fb_error err = {""};
    struct fb_source *source;
    struct fb_volume *other;

    (void)state;
    snprintf(root, sizeof root, "%s/many", dir.path);
    posix.root = root;
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_volume_attach(cache, source, &config, &other, &err), 0);
    order.source = fb_volume_id(other);
    look_up(&r, "large", 0);
    make_far_and_hang();
    begin_reading(&r, LARGE_BYTES);
    assert_true(fb_pipe_yields(volume));
    bring_in_vain(8);
    assert_int_equal(fb_bring(cache->bring, &order), FB_BROUGHT_QUEUED);
    for (int tries = 0; tries < 12000 && metric(FB_CM_FILLED_BYTES) == 0; tries++) {
        fb_cache_tick(cache);
        fb_sleep_ns(5 * FB_NS_PER_MS);
    }
    assert_int_equal(metric(FB_CM_FILLED_BYTES), 64);
    fb_source_fault_set(fault, &(struct fb_fault_config){0});
    end_reading(&r);
    fb_volume_detach(other);
}

static void wait_listed(const char *path)
{
    struct fb_dir *known = NULL;

    for (int tries = 0; tries < 6000 && !known; tries++) {
        fb_sleep_ns(10 * FB_NS_PER_MS);
        known = fb_dirs_get(cache->dirs, fb_volume_id(volume), path, strlen(path));
    }
    assert_non_null(known);
    fb_dir_put(known);
}

static void shuffle(unsigned *order, unsigned count, struct fb_rand *rand)
{
    for (unsigned i = 0; i < count; i++)
        order[i] = i;
    for (unsigned i = count; i > 1; i--) {
        unsigned j = (unsigned)(fb_rand_u64(rand) % i), t = order[i - 1];

        order[i - 1] = order[j];
        order[j] = t;
    }
}

static void a_random_data_set_is_loaded(void **state)
{
    unsigned order[FILES], ready = 0;
    struct fb_rand r = {.state = 7};

    (void)state;
    shuffle(order, FILES, &r);
    for (unsigned i = 0; i < FILES / 2; i++) {
        if (i == FILES / 4)
            wait_listed("small");
        read_small(order[i]);
    }
    for (int tries = 0; tries < 600 && ready < FILES; tries++) {
        fb_sleep_ns(100 * FB_NS_PER_MS);
        ready = 0;
        for (unsigned i = 0; i < FILES; i++)
            ready += is_ready(i);
    }
    assert_int_equal(ready, FILES);
    assert_true(metric(FB_CM_FILLED_BYTES) > 0);
}

/* Epochs of a set of which half fits: in the course of each, what was read makes way for what was
 * not, until most of that is there, and not only the half that would be by luck. */
static void what_was_read_makes_way(void **state)
{
    unsigned order[SHUFFLED], ready = 0, from = SHUFFLED * 3 / 4, least = (SHUFFLED - from) * 3 / 4;
    struct fb_rand r = {.state = 11};

    (void)state;
    for (unsigned epoch = 0; epoch < 20 && (ready < least || metric(FB_CM_EXCHANGED) == 0);
         epoch++) {
        ready = 0;
        shuffle(order, SHUFFLED, &r);
        for (unsigned i = 0; i < from; i++)
            read_file(name_of("shuffled", order[i]), order[i], SHUFFLED_BYTES);
        for (int tries = 0; epoch > 0 && tries < 40 && ready < least; tries++) {
            fb_sleep_ns(100 * FB_NS_PER_MS);
            ready = 0;
            for (unsigned i = from; i < SHUFFLED; i++)
                ready += is_there(name_of("shuffled", order[i]));
        }
        for (unsigned i = from; i < SHUFFLED; i++)
            read_file(name_of("shuffled", order[i]), order[i], SHUFFLED_BYTES);
    }
    assert_true(ready >= least);
    assert_true(metric(FB_CM_EXCHANGED) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_follows_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(it_is_there_without_room, setup, teardown),
        cmocka_unit_test_setup_teardown(it_pauses_when_it_does_not_pay, setup, teardown),
        cmocka_unit_test_setup_teardown(it_ends_with_the_volume, setup, teardown),
        cmocka_unit_test_setup_teardown(it_yields_to_those_who_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(it_passes_a_busy_source, setup, teardown),
        cmocka_unit_test_setup_teardown(it_leaves_buffers_to_programs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_random_data_set_is_loaded, setup_watched, teardown),
        cmocka_unit_test_setup_teardown(what_was_read_makes_way, setup_watched, teardown),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
