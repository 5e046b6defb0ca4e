#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/rand.h"
#include "cache/budget.h"
#include "core/mem.h"

#define SLOT_BYTES (sizeof(struct fb_segment_info) + 200) /* and some while they are ranked */

static uint64_t slots(const struct fb_cache_config *c, const struct fb_budget *b)
{
    return b->dram_bytes / b->dram_segment_bytes + c->pmem_bytes / b->pmem_segment_bytes +
           c->cache_bytes / b->nvme_segment_bytes;
}

/* What a budget adds up to; the parts must never be more than was asked for. */
static uint64_t sum(const struct fb_cache_config *c, const struct fb_budget *b)
{
    struct fb_store_config s = {
        .block_bytes = c->block_bytes, .max_items = b->max_items, .files_bytes = b->files_bytes};
    uint32_t buffer_bytes = fb_store_buffer_bytes(c->block_bytes);

    return fb_store_tables_bytes(&s) +
           fb_map_large_bytes((uint64_t)b->fetch_buffers * buffer_bytes) +
           fb_map_large_bytes((uint64_t)b->medium_buffers * buffer_bytes) +
           fb_map_large_bytes(b->nvme_staging * b->nvme_segment_bytes) + b->dram_bytes +
           slots(c, b) * SLOT_BYTES;
}

static void fits_whatever_is_asked(void **state)
{
    struct fb_rand r = {.state = 7};
    unsigned planned = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct fb_cache_config c;
        struct fb_budget b;
        struct fb_error err = {""};

        fb_cache_config_defaults(&c);
        c.memory_bytes = fb_rand_below(&r, 1ULL << (20 + fb_rand_below(&r, 24)));
        c.cache_bytes = fb_rand_below(&r, 2) ? fb_rand_below(&r, 1ULL << 46) : 0;
        c.pmem_bytes = fb_rand_below(&r, 4) == 0 ? fb_rand_below(&r, 1ULL << 40) : 0;
        c.block_bytes = FB_BLOCK_MIN << fb_rand_below(&r, 8);
        if (fb_budget_plan(&c, &b, &err) < 0) {
            assert_string_not_equal(err.text, "");
            continue;
        }
        planned++;
        assert_true(sum(&c, &b) <= c.memory_bytes);
        assert_true(b.dram_bytes > 0 || c.cache_bytes > 0 || c.pmem_bytes > 0);
        assert_true(b.fetch_buffers >= FB_READ_PIECES && b.medium_buffers >= FB_READ_PIECES);
        assert_true(b.nvme_segment_bytes >= 4ULL * c.block_bytes);
        assert_int_equal(b.nvme_segment_bytes % 4096, 0);
    }
    assert_true(planned > 5000);
}

static void usual_sizes(void **state)
{
    struct fb_cache_config c;
    struct fb_budget b;

    (void)state;
    fb_cache_config_defaults(&c);
    c.memory_bytes = 4ULL << 30;
    c.cache_bytes = 100ULL << 30;
    assert_int_equal(fb_budget_plan(&c, &b, NULL), 0);
    assert_int_equal(b.nvme_segment_bytes, 16 << 20);
    assert_int_equal(b.dram_segment_bytes, 4 << 20); /* a 1024th of 4G */
    assert_true(b.dram_bytes > 3ULL << 30);
    assert_true(b.max_items >= 1000000);
}

/* On a large disk segments are larger, so that what is known of them does not take the memory; of
 * the size that a user wants there may be too many. */
static void many_segments(void **state)
{
    struct fb_cache_config c;
    struct fb_budget b;
    struct fb_error err = {""};

    (void)state;
    fb_cache_config_defaults(&c);
    c.memory_bytes = 4ULL << 30;
    c.cache_bytes = 8ULL << 40;
    assert_int_equal(fb_budget_plan(&c, &b, NULL), 0);
    assert_int_equal(b.nvme_segment_bytes, 16 << 20);
    c.cache_bytes = 64ULL << 40;
    assert_int_equal(fb_budget_plan(&c, &b, NULL), 0);
    assert_true(b.nvme_segment_bytes > 16 << 20);
    assert_true(slots(&c, &b) * SLOT_BYTES < c.memory_bytes / 8);
    assert_true(b.dram_bytes > c.memory_bytes / 2);
    c.segment_bytes = 1 << 20;
    assert_int_equal(fb_budget_plan(&c, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--memory"));
}

static void too_little(void **state)
{
    struct fb_cache_config c;
    struct fb_budget b;
    struct fb_error err = {""};

    (void)state;
    fb_cache_config_defaults(&c);
    c.memory_bytes = FB_MEMORY_MIN - 1;
    assert_int_equal(fb_budget_plan(&c, &b, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_whatever_is_asked),
        cmocka_unit_test(usual_sizes),
        cmocka_unit_test(many_segments),
        cmocka_unit_test(too_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
