#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rand.h"
#include "core/mem.h"
#include "proto/layout.h"
#include "store/disk.h"

#define SEGMENT_BYTES (1u << 20)
#define TOC_OFFSET    (SEGMENT_BYTES / 2)
#define BLOCK_BYTES   65536u
#define SLOT          7
#define MUTATIONS     200000

static const uint64_t cache_id[2] = {11, 22};

/* A header and its table. `bytes` is malloc'd at the table's exact size wherever it is parsed, so
 * that a sanitizer sees the first byte too many. */
struct table {
    struct fb_disk_header header;
    uint8_t *bytes;
};

static struct fb_disk_file file_entry(size_t path_len, uint16_t source)
{
    struct fb_disk_file f = {.source = source, .path_len = (uint16_t)path_len};

    f.attr.version = (struct fb_version){.size = 123, .mtime_ns = 4, .ctime_ns = 5, .tag = {6, 0}};
    f.attr.mode = 0100644;
    return f;
}

static bool add(struct fb_disk_writer *w, const char *path, uint16_t source, uint32_t block)
{
    struct fb_disk_file f = file_entry(path ? strlen(path) : 0, source);
    struct fb_disk_item item = {
        .block = block, .length = 100 * block, .offset_units = 64 + 16 * block};

    return fb_disk_write_item(w, &f, path, &item);
}

static void finish(struct table *t, const struct fb_disk_writer *w)
{
    t->header = (struct fb_disk_header){
        .slot = SLOT,
        .cache_id = {cache_id[0], cache_id[1]},
        .sequence = 9,
        .segment_bytes = SEGMENT_BYTES,
        .data_end = TOC_OFFSET - 100,
        .toc_offset = TOC_OFFSET,
        .toc_bytes = (uint64_t)(w->at - t->bytes),
        .items = w->items,
        .files = w->files,
        .block_bytes = BLOCK_BYTES,
    };
    fb_disk_header_finish(&t->header, t->bytes);
}

static int set_up(void **state)
{
    struct table *t = fb_alloc(sizeof *t);
    struct fb_disk_writer w;

    assert_non_null(t);
    t->bytes = malloc(4096);
    assert_non_null(t->bytes);
    memset(t->bytes, 0xee, 4096);
    fb_disk_write_begin(&w, t->bytes, 4096);
    assert_true(add(&w, "train/a.jpg", 1, 0));
    assert_true(add(&w, NULL, 0, 1));
    assert_true(add(&w, NULL, 0, 2));
    assert_true(add(&w, "", 1, 3));
    assert_true(add(&w, "1234567", 2, 4));
    assert_true(add(&w, "12345678", 2, 5));
    finish(t, &w);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct table *t = *state;

    free(t->bytes);
    free(t);
    return 0;
}

struct seen {
    unsigned files;
    unsigned items;
    unsigned stop_after;
    uint64_t touched;
};

/* Reads every byte it is given. */
static int visit(void *arg, const struct fb_disk_file *file, const char *path,
                 const struct fb_disk_item *items)
{
    struct seen *s = arg;

    assert_int_equal(strlen(path), file->path_len);
    assert_true(file->items > 0);
    s->touched ^= fb_hash64(file, sizeof *file) ^ fb_hash64(path, file->path_len);
    for (uint32_t i = 0; i < file->items; i++) {
        uint64_t offset = (uint64_t)items[i].offset_units * FB_UNIT;

        assert_true(offset >= FB_DISK_DATA_OFFSET);
        assert_true(offset + fb_record_size(items[i].length) <= SEGMENT_BYTES);
        s->touched ^= fb_hash64(&items[i], sizeof items[i]);
    }
    s->items += file->items;
    return ++s->files == s->stop_after ? 77 : 0;
}

/* Header check and walk, as recovery does them, of a copy of exactly toc_bytes. */
static int parse(const struct fb_disk_header *h, const uint8_t *bytes, size_t available,
                 struct seen *s)
{
    FB_AUTO_FREE uint8_t *copy = NULL;
    int r = fb_disk_header_check(h, cache_id, SLOT, SEGMENT_BYTES);

    if (r < 0)
        return r;
    copy = calloc(1, h->toc_bytes ? h->toc_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, fb_min_u64(h->toc_bytes, available));
    return fb_disk_toc_walk(h, copy, visit, s);
}

static void test_round_trip(void **state)
{
    struct table *t = *state;
    struct seen s = {0};

    assert_int_equal(parse(&t->header, t->bytes, 4096, &s), 0);
    assert_int_equal(s.files, 4);
    assert_int_equal(s.items, 6);
    s = (struct seen){.stop_after = 2};
    assert_int_equal(parse(&t->header, t->bytes, 4096, &s), 77);
    assert_int_equal(s.files, 2);
}

static void test_room(void **state)
{
    struct table *t = *state;
    struct fb_disk_writer w;
    uint64_t room = fb_disk_toc_room(3, false) + fb_disk_toc_room(3, true);

    assert_int_equal(room, 104 + 8 + 24 + 24);
    fb_disk_write_begin(&w, t->bytes, room - 1);
    assert_true(add(&w, "abc", 1, 1));
    assert_false(add(&w, NULL, 1, 2));
    assert_false(add(&w, "abc", 1, 2));
    assert_int_equal(w.items, 1);
    w.end++;
    assert_true(add(&w, NULL, 1, 2));
    assert_int_equal(w.at - t->bytes, room);
}

static void test_longest_path(void **state)
{
    struct table *t = *state;
    FB_AUTO_FREE char *path = fb_alloc(FB_PATH_MAX);
    struct fb_disk_writer w;
    struct seen s = {0};

    assert_non_null(path);
    memset(path, 'x', FB_PATH_MAX - 1);
    free(t->bytes);
    t->bytes = malloc(fb_disk_toc_room(FB_PATH_MAX - 1, false));
    assert_non_null(t->bytes);
    fb_disk_write_begin(&w, t->bytes, fb_disk_toc_room(FB_PATH_MAX - 1, false));
    assert_true(add(&w, path, 1, 1));
    finish(t, &w);
    assert_int_equal(parse(&t->header, t->bytes, t->header.toc_bytes, &s), 0);
    assert_int_equal(s.files, 1);
}

static void test_empty_table(void **state)
{
    struct table *t = *state;
    struct fb_disk_writer w;
    struct seen s = {0};

    fb_disk_write_begin(&w, t->bytes, 4096);
    finish(t, &w);
    assert_int_equal(parse(&t->header, t->bytes, 0, &s), 0);
    assert_int_equal(s.files, 0);
}

static void test_header_of_another(void **state)
{
    struct table *t = *state;
    const uint64_t other[2] = {cache_id[0], cache_id[1] + 1};
    struct fb_disk_header zeros = {0};

    assert_int_equal(fb_disk_header_check(&t->header, cache_id, SLOT, SEGMENT_BYTES), 0);
    assert_int_equal(fb_disk_header_check(&t->header, cache_id, SLOT + 1, SEGMENT_BYTES), -EBADMSG);
    assert_int_equal(fb_disk_header_check(&t->header, other, SLOT, SEGMENT_BYTES), -EBADMSG);
    assert_int_equal(fb_disk_header_check(&t->header, cache_id, SLOT, SEGMENT_BYTES * 2), -EBADMSG);
    assert_int_equal(fb_disk_header_check(&zeros, cache_id, 0, SEGMENT_BYTES), -EBADMSG);
}

/* Any one byte changed anywhere is noticed. */
static void test_every_byte(void **state)
{
    struct table *t = *state;
    struct seen s = {0};

    for (size_t i = 0; i < sizeof t->header; i++) {
        for (int bit = 0; bit < 8; bit++) {
            ((uint8_t *)&t->header)[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(parse(&t->header, t->bytes, 4096, &s), -EBADMSG);
            ((uint8_t *)&t->header)[i] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t i = 0; i < t->header.toc_bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            t->bytes[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(parse(&t->header, t->bytes, 4096, &s), -EBADMSG);
            t->bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(s.files, 0);
    assert_int_equal(parse(&t->header, t->bytes, 4096, &s), 0);
}

/* New segments must have numbers to get. */
static void test_sequence(void **state)
{
    struct table *t = *state;
    struct seen s = {0};

    t->header.sequence = FB_DISK_SEQUENCE_MAX;
    fb_disk_header_finish(&t->header, t->bytes);
    assert_int_equal(parse(&t->header, t->bytes, 4096, &s), 0);
    t->header.sequence++;
    fb_disk_header_finish(&t->header, t->bytes);
    assert_int_equal(parse(&t->header, t->bytes, 4096, &s), -EBADMSG);
}

/* A table cut short, with its end lost (zeros) or under a header that agrees with the cut. */
static void test_every_truncation(void **state)
{
    struct table *t = *state;
    struct seen s = {0};

    for (size_t cut = 0; cut < t->header.toc_bytes; cut++) {
        struct fb_disk_header h = t->header;
        uint8_t last = t->bytes[cut];

        /* A table that ends in zeros is none the worse for losing them. */
        if (last != 0)
            assert_int_equal(parse(&h, t->bytes, cut, &s), -EBADMSG);
        h.toc_bytes = cut;
        fb_disk_header_finish(&h, t->bytes);
        assert_int_equal(parse(&h, t->bytes, cut, &s), -EBADMSG);
    }
    assert_int_equal(s.files, 0);
}

/* Writes something that a parser might stumble over. */
static void mutate(struct fb_rand *rand, uint8_t *bytes, size_t size)
{
    static const uint64_t evil[] = {0,          1,           0x7f,       0xff,
                                    0xffff,     0x7fffffff,  0xffffffff, 0xfffff000,
                                    UINT64_MAX, 1ULL << 63,  4096,       SEGMENT_BYTES,
                                    TOC_OFFSET, BLOCK_BYTES, 0x3fffffff, FB_PATH_MAX};
    static const size_t widths[] = {1, 2, 4, 8};
    size_t width = widths[fb_rand_below(rand, FB_ARRAY_SIZE(widths))];
    size_t at = fb_rand_below(rand, size / width) * width;
    uint64_t value =
        fb_rand_below(rand, 2) ? evil[fb_rand_below(rand, FB_ARRAY_SIZE(evil))] : fb_rand_u64(rand);

    if (fb_rand_below(rand, 4) == 0)
        value = (uint64_t)(bytes[at] + (int)fb_rand_below(rand, 3) - 1);
    memcpy(bytes + at, &value, width);
}

/* All sums as they should be, even where the table is said to be longer than any slot. */
static void forge(struct fb_disk_header *h, const uint8_t *bytes, size_t size)
{
    static uint8_t table[SEGMENT_BYTES];

    memcpy(table, bytes, size);
    h->magic = FB_DISK_MAGIC;
    h->version = FB_DISK_VERSION;
    h->slot = SLOT;
    h->toc_sum = fb_hash64(table, fb_min_u64(h->toc_bytes, sizeof table));
    h->sum = fb_hash64(h, offsetof(struct fb_disk_header, sum));
}

/* Whoever can write the cache's files can also compute sums: the parser must stay within bounds. */
static void test_hostile(void **state)
{
    const struct table *t = *state;
    struct fb_rand rand = {4711};
    unsigned accepted = 0;

    for (unsigned round = 0; round < MUTATIONS; round++) {
        struct fb_disk_header h = t->header;
        uint8_t bytes[4096];
        struct seen s = {0};
        bool in_header = fb_rand_below(&rand, 3) == 0;
        int r;

        memcpy(bytes, t->bytes, sizeof bytes);
        for (uint64_t n = 1 + fb_rand_below(&rand, 3); n > 0; n--) {
            if (in_header)
                mutate(&rand, (uint8_t *)&h, sizeof h);
            else
                mutate(&rand, bytes, h.toc_bytes);
        }
        forge(&h, bytes, sizeof bytes);
        r = parse(&h, bytes, sizeof bytes, &s);
        assert_true(r == 0 || r == -EBADMSG);
        assert_true(r == 0 || s.files == 0);
        accepted += r == 0;
    }
    /* Many changes (of a version, say) make another valid table: the test must get that far. */
    assert_true(accepted > MUTATIONS / 10);
    assert_true(accepted < MUTATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_longest_path, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_empty_table, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_header_of_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_byte, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sequence, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_truncation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hostile, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
