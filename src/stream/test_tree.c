#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "stream/name.h"
#include "stream/streams.h"
#include "stream/window.h"

static struct fb_streams *new_streams(uint32_t window, uint32_t nodes_max)
{
    struct fb_streams_config config = {.window = window, .nodes_max = nodes_max};
    struct fb_streams *s;

    assert_int_equal(fb_streams_new(&config, &s), 0);
    return s;
}

static struct fb_fed feed(struct fb_streams *s, const char *path, uint32_t block, uint32_t blocks,
                          uint32_t pid)
{
    static int64_t now_ns;
    struct fb_fact fact = {
        .time_ns = now_ns += 1000000,
        .path = path,
        .path_len = (uint32_t)strlen(path),
        .pid = pid,
        .block = block,
        .blocks = blocks,
        .position = FB_POSITION_UNKNOWN,
    };
    struct fb_fed fed;

    fb_streams_feed(s, &fact, &fed);
    return fed;
}

static uint64_t find(const struct fb_streams *s, uint64_t from, const char *path)
{
    for (uint64_t id = fb_streams_child(s, from); id; id = fb_streams_next(s, id)) {
        char buf[256];
        uint64_t below;

        fb_streams_path(s, id, buf, sizeof buf);
        if (strcmp(buf, path) == 0)
            return id;
        below = find(s, id, path);
        if (below)
            return below;
    }
    return 0;
}

/* Every node is reached once, says who its parent is, and counts its children right. */
static uint32_t check_below(const struct fb_streams *s, uint64_t from)
{
    uint32_t nodes = 0, children = 0;
    struct fb_stream_info info;

    for (uint64_t id = fb_streams_child(s, from); id; id = fb_streams_next(s, id)) {
        assert_true(fb_streams_get(s, id, &info));
        assert_int_equal(info.parent, from);
        nodes += 1 + check_below(s, id);
        children++;
    }
    if (from) {
        assert_true(fb_streams_get(s, from, &info));
        assert_int_equal(info.children, children);
    }
    return nodes;
}

/* ---- against a tree that is trivially right ---- */

#define MODEL_FACTS 3000
#define MODEL_PATHS 400

struct model_file {
    char path[64];
    bool blocks;
    uint32_t accesses;
};

/* Does the directory `dir` ("" is the root) hold that path? */
static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return len == 0 || (strncmp(path, dir, len) == 0 && path[len] == '/');
}

/* A directory is a node when files were read in it, or when it is where two such part. */
static bool is_node(const struct model_file *files, size_t count, const char *dir)
{
    char first[64] = "";
    size_t len = strlen(dir) + (*dir != 0);

    for (size_t i = 0; i < count; i++) {
        const char *rest = files[i].path + len;
        const char *slash;

        if (!files[i].accesses || !is_below(files[i].path, dir))
            continue;
        slash = strchr(rest, '/');
        if (!slash)
            return true;
        if (*first &&
            (strlen(first) != (size_t)(slash - rest) || strncmp(first, rest, strlen(first)) != 0))
            return true;
        snprintf(first, sizeof first, "%.*s", (int)(slash - rest), rest);
    }
    return *dir == 0;
}

static void check_model(const struct fb_streams *s, const struct model_file *files, size_t count)
{
    uint32_t expected = 1;

    for (size_t i = 0; i < count; i++) {
        char dir[64];
        bool first = true;

        if (!files[i].accesses)
            continue;
        expected += files[i].blocks;
        memcpy(dir, files[i].path, sizeof dir);
        for (char *slash = strrchr(dir, '/'); slash; slash = strrchr(dir, '/')) {
            uint32_t accesses = 0;
            struct fb_stream_info info;
            uint64_t id;

            *slash = 0;
            first = true;
            for (size_t j = 0; j < count; j++) {
                if (!files[j].accesses || !is_below(files[j].path, dir))
                    continue;
                accesses += files[j].accesses;
                first = first && j >= i;
            }
            id = find(s, fb_streams_child(s, 0), dir);
            if (!is_node(files, count, dir)) {
                assert_int_equal(id, 0);
                continue;
            }
            expected += first;
            assert_true(fb_streams_get(s, id, &info));
            assert_int_equal(info.accesses, accesses);
        }
    }
    assert_int_equal(fb_streams_count(s), expected);
    assert_int_equal(check_below(s, 0), expected);
}

static void random_facts_against_a_model(void **state)
{
    static struct model_file files[MODEL_PATHS];

    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct fb_rand rand = {seed};
        struct fb_streams *s = new_streams(FB_WINDOW_MAX, 5000);

        memset(files, 0, sizeof files);
        for (size_t i = 0; i < MODEL_PATHS; i++) {
            size_t len = 0;
            uint64_t depth = fb_rand_below(&rand, 6);

            /* Long and short names, so that labels are kept in both ways. */
            for (uint64_t d = 0; d < depth; d++)
                len += (size_t)snprintf(files[i].path + len, sizeof files[i].path - len, "%s%llu/",
                                        d == 2 ? "longname" : "d",
                                        (unsigned long long)fb_rand_below(&rand, 3));
            snprintf(files[i].path + len, sizeof files[i].path - len, "f%zu", i);
            files[i].blocks = fb_rand_below(&rand, 4) == 0;
        }
        for (unsigned i = 0; i < MODEL_FACTS; i++) {
            struct model_file *f = &files[fb_rand_below(&rand, MODEL_PATHS)];
            struct fb_fed fed =
                feed(s, f->path, (uint32_t)fb_rand_below(&rand, 3), f->blocks ? 3 : 1, 1);
            char buf[256];
            size_t len;

            f->accesses++;
            assert_true(fed.depth >= 1);
            len = fb_streams_path(s, fed.steps[fed.depth - 1].id, buf, sizeof buf);
            assert_memory_equal(buf, f->path, len);
            if (i < 64 || i % 500 == 0)
                check_model(s, files, MODEL_PATHS);
        }
        fb_streams_free(s);
    }
}

/* ---- limits ---- */

static void never_more_nodes_than_allowed(void **state)
{
    struct fb_streams *s = new_streams(16, 64);
    size_t bytes_max = 0;
    struct fb_rand rand = {1};

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        char path[96];

        feed(s, "hot/dir/file", 0, 1, 7);
        snprintf(path, sizeof path, "a%llu/b%llu/c%llu/f",
                 (unsigned long long)fb_rand_below(&rand, 10),
                 (unsigned long long)fb_rand_below(&rand, 10),
                 (unsigned long long)fb_rand_below(&rand, 10));
        feed(s, path, 0, (uint32_t)fb_rand_below(&rand, 3), 1 + i % 3);
        assert_true(fb_streams_count(s) <= 64);
        bytes_max = fb_streams_bytes(s) > bytes_max ? fb_streams_bytes(s) : bytes_max;
        if (i % 1000 == 0)
            assert_int_equal(check_below(s, 0), fb_streams_count(s));
    }
    /* What is used all the time stays. */
    assert_true(find(s, 0, "hot/dir") != 0);
    assert_true(bytes_max < 200000);
    fb_streams_free(s);
}

static void one_long_chain_fills_the_tree(void **state)
{
    struct fb_streams *s = new_streams(16, 64);
    char path[1024] = "";

    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        size_t len = strlen(path);

        snprintf(path + len, sizeof path - len, "d/");
        snprintf(path + strlen(path), sizeof path - strlen(path), "f");
        feed(s, path, 0, 1, 1);
        path[strlen(path) - 1] = 0;
        assert_true(fb_streams_count(s) <= 64);
        assert_int_equal(check_below(s, 0), fb_streams_count(s));
    }
    fb_streams_free(s);
}

static void old_children_of_a_wide_node_go(void **state)
{
    struct fb_streams *s = new_streams(16, 5000);
    struct fb_stream_info info;
    uint64_t id;

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        char path[64];

        snprintf(path, sizeof path, "wide/d%u/f", i);
        feed(s, path, 0, 1, 1);
    }
    id = find(s, 0, "wide");
    assert_true(fb_streams_get(s, id, &info));
    assert_int_equal(info.children, 16);
    assert_true(find(s, 0, "wide/d999") != 0);
    assert_int_equal(find(s, 0, "wide/d0"), 0);
    fb_streams_free(s);
}

static void an_id_is_never_another_node(void **state)
{
    struct fb_streams *s = new_streams(16, 64);
    uint64_t first = feed(s, "a/f", 0, 1, 1).steps[1].id;
    struct fb_stream_info info;
    char path[64];

    (void)state;
    assert_true(fb_streams_get(s, first, &info));
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "b%u/f", i);
        feed(s, path, 0, 1, 1);
    }
    assert_false(fb_streams_get(s, first, &info));
    assert_int_equal(fb_streams_path(s, first, path, sizeof path), 0);
    assert_int_equal(fb_streams_child(s, first), 0);
    assert_int_equal(fb_streams_below_whole(s, first), 0);
    fb_streams_free(s);
}

static void a_source_is_forgotten_whole(void **state)
{
    struct fb_streams *s = new_streams(16, 5000);
    struct fb_fact fact = {.path = "a/b", .path_len = 3, .position = FB_POSITION_UNKNOWN};

    (void)state;
    for (uint16_t source = 0; source < 3; source++) {
        fact.source = source;
        fb_streams_feed(s, &fact, NULL);
    }
    assert_int_equal(fb_streams_count(s), 6);
    fb_streams_forget(s, 1);
    fb_streams_forget(s, 9);
    assert_int_equal(fb_streams_count(s), 4);
    assert_int_equal(check_below(s, 0), 4);
    fb_streams_free(s);
}

static void a_file_may_become_a_directory(void **state)
{
    struct fb_streams *s = new_streams(16, 5000);
    struct fb_stream_info info;

    (void)state;
    feed(s, "x/y", 0, 3, 1);
    assert_true(fb_streams_get(s, find(s, 0, "x/y"), &info));
    assert_true(info.is_file);
    feed(s, "x/y/z", 0, 3, 1);
    assert_true(fb_streams_get(s, find(s, 0, "x/y"), &info));
    assert_false(info.is_file);
    feed(s, "x", 0, 3, 1);
    assert_true(fb_streams_get(s, find(s, 0, "x"), &info));
    assert_true(info.is_file);
    assert_int_equal(check_below(s, 0), fb_streams_count(s));
    fb_streams_free(s);
}

/* Paths come from elsewhere: whatever they are, the tree stays one. */
static void any_bytes_are_a_path(void **state)
{
    static const char bytes[] = "aab/./1";

    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fb_rand rand = {seed * 1000};
        struct fb_streams *s = new_streams(8, 64 + 200 * (uint32_t)(seed % 2));

        for (unsigned i = 0; i < 2000; i++) {
            char path[24], name[256];
            struct fb_fact fact = {
                .path = path,
                .path_len = (uint32_t)fb_rand_below(&rand, sizeof path),
                .source = (uint16_t)fb_rand_below(&rand, 2),
                .pid = (uint32_t)fb_rand_below(&rand, 3),
                .block = (uint32_t)fb_rand_u64(&rand),
                .blocks = (uint32_t)fb_rand_below(&rand, 3),
                .position = (uint32_t)fb_rand_u64(&rand),
                .siblings = (uint32_t)fb_rand_below(&rand, 2),
                .time_ns = (int64_t)fb_rand_u64(&rand),
            };
            struct fb_fed fed;

            for (uint32_t k = 0; k < fact.path_len; k++)
                path[k] = bytes[fb_rand_below(&rand, sizeof bytes - 1)];
            fb_streams_feed(s, &fact, &fed);
            fb_streams_owner(s, fact.source, path, fact.path_len);
            fb_streams_path(s, fed.steps[fed.depth - 1].id, name, sizeof name);
            if (i % 100 == 0)
                assert_int_equal(check_below(s, 0), fb_streams_count(s));
            if (i == 1500)
                fb_streams_forget(s, 1);
        }
        fb_streams_free(s);
    }
}

/* ---- visits ---- */

static void reading_on_is_no_visit(void **state)
{
    struct fb_streams *s = new_streams(16, 5000);
    struct fb_stream_info info;

    (void)state;
    /* Two callers, each through a file of its own, in turn; one comes back to its first. */
    for (uint32_t block = 0; block < 10; block++) {
        feed(s, "d/a", block, 10, 1);
        feed(s, "d/b", block, 10, 2);
    }
    feed(s, "d/b", 0, 10, 1);
    feed(s, "d/a", 0, 10, 1);
    assert_true(fb_streams_get(s, find(s, 0, "d"), &info));
    assert_int_equal(info.visits, 4);
    assert_int_equal(info.accesses, 22);
    assert_true(fb_streams_get(s, find(s, 0, "d/a"), &info));
    assert_int_equal(info.visits, 11);
    fb_streams_free(s);
}

/* A reader that goes through directories, beside loaders whose workers are in any of many: it is
 * known where it was, however many others there are. */
static void a_reader_is_followed_among_many(void **state)
{
    struct fb_streams *s = new_streams(100, 10000);
    struct fb_rand rand = {3};
    struct fb_stream_info info;
    char path[64];

    (void)state;
    for (uint32_t i = 0; i < 60 * 50; i++) {
        snprintf(path, sizeof path, "scan/%02u/%02u.wav", i / 50, i % 50);
        feed(s, path, 0, 1, 1);
        for (unsigned k = 0; k < 64; k++) {
            snprintf(path, sizeof path, "train/%04u/%03u.jpg", (unsigned)fb_rand_below(&rand, 1000),
                     (unsigned)fb_rand_below(&rand, 128));
            feed(s, path, 0, 1, 2 + (uint32_t)fb_rand_below(&rand, 32));
        }
    }
    assert_true(fb_streams_get(s, find(s, 0, "scan"), &info));
    assert_int_equal(info.visits, 60);
    fb_streams_free(s);
}

static void what_is_read_below_is_known(void **state)
{
    struct fb_streams *s = new_streams(16, 5000);
    uint64_t id;
    char path[64];

    (void)state;
    /* One region's table in each month, and another in every fourth; of each table the head, some
     * block, the tail, and the head again. */
    for (uint32_t i = 0; i < 120; i++) {
        snprintf(path, sizeof path, "icoads/%u/10_100.csv", 200001 + i);
        feed(s, path, 0, 50, 1);
        feed(s, path, 49, 50, 1);
        feed(s, path, 0, 50, 1);
        feed(s, path, 5 + i % 40, 50, 1);
        if (i % 4 == 0) {
            snprintf(path, sizeof path, "icoads/%u/20_200.csv", 200001 + i);
            feed(s, path, 0, 50, 1);
        }
    }
    id = find(s, 0, "icoads");
    assert_true(fb_streams_below(s, id, fb_name_hash("10_100.csv", 10)) > 0.9);
    assert_true(fb_streams_below(s, id, fb_name_hash("20_200.csv", 10)) < 0.5);
    assert_true(fb_streams_below(s, id, fb_name_hash("30_300.csv", 10)) == 0);
    fb_streams_free(s);

    s = new_streams(16, 5000);
    for (uint32_t i = 0; i < 120; i++) {
        snprintf(path, sizeof path, "npz/%u.npz", i);
        feed(s, path, 0, 50, 1);
        feed(s, path, 49, 50, 1);
        feed(s, path, 0, 50, 1);
        feed(s, path, 5 + i % 40, 50, 1);
    }
    id = find(s, 0, "npz");
    assert_true(fb_streams_below(s, id, fb_below_block(0, 50)) > 0.9);
    assert_true(fb_streams_below(s, id, fb_below_block(49, 50)) > 0.9);
    assert_true(fb_streams_below(s, id, fb_below_block(7, 50)) < 0.2);
    assert_true(fb_streams_below_whole(s, id) < 0.2);
    fb_streams_free(s);
}

static void names_have_an_order(void **state)
{
    (void)state;
    assert_int_equal(fb_name_order("00000012.jpg", 12), 12);
    assert_int_equal(fb_name_order("img_9.png", 9) + 1, fb_name_order("img_10.png", 10));
    assert_int_equal(fb_name_order("clip7.mp4", 9) + 1, fb_name_order("clip8.mp4", 9));
    assert_true(fb_name_order("3fa94bc2", 8) < fb_name_order("b0000000", 8));
    assert_true(fb_name_order("airport", 7) < fb_name_order("bakery", 6));
    assert_int_equal(fb_name_order("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_facts_against_a_model),
        cmocka_unit_test(never_more_nodes_than_allowed),
        cmocka_unit_test(one_long_chain_fills_the_tree),
        cmocka_unit_test(old_children_of_a_wide_node_go),
        cmocka_unit_test(an_id_is_never_another_node),
        cmocka_unit_test(a_source_is_forgotten_whole),
        cmocka_unit_test(a_file_may_become_a_directory),
        cmocka_unit_test(any_bytes_are_a_path),
        cmocka_unit_test(reading_on_is_no_visit),
        cmocka_unit_test(a_reader_is_followed_among_many),
        cmocka_unit_test(what_is_read_below_is_known),
        cmocka_unit_test(names_have_an_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
