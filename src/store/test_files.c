/*
 * The file table: outcomes of put, who keeps a record alive, room, and readers without a lock.
 */
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rand.h"
#include "core/thread.h"
#include "store/files.h"
#include "store/tables.h"

#define SMALL_TABLE (64u << 10)

struct table {
    struct fb_layout layout;
    int memfd;
    struct fb_files *files;
};

static void start(struct table *t, uint64_t files_bytes)
{
    struct fb_tables_shape shape = {.items = 100, .files_bytes = files_bytes, .segments = 1};

    assert_int_equal(fb_tables_create(&shape, &t->layout, &t->memfd), 0);
    assert_int_equal(fb_files_create(&t->layout, &t->files), 0);
}

static void stop(struct table *t)
{
    fb_files_destroy(t->files);
    fb_tables_destroy(&t->layout, t->memfd);
}

static struct fb_attr regular(uint64_t size)
{
    return (struct fb_attr){
        .version = {.size = size, .mtime_ns = 11, .ctime_ns = 12, .tag = {13, 0}},
        .ino = 13,
        .blocks = (size + 511) / 512,
        .atime_ns = 14,
        .mode = S_IFREG | 0644,
        .nlink = 1,
        .uid = 1000,
        .gid = 100};
}

static struct fb_attr directory(int64_t mtime_ns)
{
    struct fb_attr attr = regular(4096);

    attr.mode = S_IFDIR | 0755;
    attr.version.mtime_ns = mtime_ns;
    return attr;
}

static uint64_t records(struct table *t)
{
    struct fb_files_stats stats;

    fb_files_stats(t->files, &stats);
    return stats.records;
}

static uint32_t put(struct table *t, const char *path, const struct fb_attr *attr, int outcome)
{
    uint32_t id, old;

    assert_int_equal(fb_files_put(t->files, 3, path, attr, 99, &id, &old), outcome);
    assert_int_equal(old != 0, outcome == FB_FILES_CHANGED);
    if (old != 0)
        fb_files_unref(t->files, old, 1);
    return id;
}

/* Another path of the same chain. */
static void neighbour_of(struct table *t, const char *path, char ret[16])
{
    const struct fb_layout_head *head =
        fb_layout_head(&t->layout, fb_path_hash(3, path, strlen(path)));
    int n = 0;

    do
        snprintf(ret, 16, "n%d", n++);
    while (fb_layout_head(&t->layout, fb_path_hash(3, ret, strlen(ret))) != head);
}

static uint32_t find_unlocked(struct table *t, const char *path)
{
    uint64_t hash = fb_path_hash(3, path, strlen(path));
    struct fb_found_file found;

    fb_layout_prefetch_file(&t->layout, hash);
    return fb_layout_find_file(&t->layout, hash, 3, path, strlen(path), &found) ? found.id : 0;
}

/* One hint a chain: of whoever came last, of what has gone, of nothing at all. Files are found
 * whatever it says. */
static void test_hints(void **state)
{
    static const uint8_t dram[4096];
    struct table t;
    struct fb_attr attr = regular(5), other = regular(6);
    const struct fb_layout_head *head;
    uint32_t id, near_id, changed;
    char beside[16];

    (void)state;
    start(&t, SMALL_TABLE);
    t.layout.dram = dram;
    id = put(&t, "a/b", &attr, FB_FILES_NEW);
    head = fb_layout_head(&t.layout, fb_path_hash(3, "a/b", 3));
    assert_int_equal(head->near, 0);
    fb_files_near(t.files, id, 1024);
    assert_int_equal(head->near, 1024 / FB_UNIT);

    neighbour_of(&t, "a/b", beside);
    near_id = put(&t, beside, &attr, FB_FILES_NEW);
    fb_files_near(t.files, near_id, 2048);
    assert_int_equal(head->near, 2048 / FB_UNIT);
    assert_int_equal(find_unlocked(&t, "a/b"), id);
    assert_int_equal(find_unlocked(&t, beside), near_id);

    changed = put(&t, "a/b", &other, FB_FILES_CHANGED);
    assert_true(changed != id);
    assert_int_equal(find_unlocked(&t, "a/b"), changed);

    fb_files_near(t.files, changed, FB_UNIT * (uint64_t)UINT32_MAX);
    assert_int_equal(head->near, UINT32_MAX);
    assert_int_equal(find_unlocked(&t, "a/b"), changed);
    fb_files_near(t.files, changed, FB_UNIT * (UINT32_MAX + 1ULL));
    assert_int_equal(head->near, 0);

    fb_files_unref(t.files, id, 1);
    fb_files_unref(t.files, changed, 1);
    fb_files_unref(t.files, near_id, 1);
    stop(&t);
}

static void test_outcomes(void **state)
{
    struct table t;
    struct fb_attr attr = regular(5), other = regular(6), got;
    uint32_t id, again, changed, old, gen;
    size_t len;

    (void)state;
    start(&t, 1 << 20);
    assert_int_equal(fb_files_find(t.files, 3, "a/b"), 0);
    id = put(&t, "a/b", &attr, FB_FILES_NEW);
    assert_true(id >= 2);
    gen = fb_files_generation(t.files, id);
    assert_int_equal(fb_files_find(t.files, 3, "a/b"), id);
    assert_int_equal(fb_files_find(t.files, 2, "a/b"), 0);
    assert_int_equal(fb_files_find(t.files, 3, "a/"), 0);

    attr.nlink = 7;
    again = put(&t, "a/b", &attr, FB_FILES_SAME);
    assert_int_equal(again, id);
    assert_int_equal(fb_files_generation(t.files, id), gen);
    fb_files_attr(t.files, id, &got);
    assert_memory_equal(&got, &attr, sizeof got);
    assert_string_equal(fb_files_path(t.files, id, &len), "a/b");
    assert_int_equal(len, 3);
    assert_int_equal(fb_files_source(t.files, id), 3);
    assert_true(fb_files_path_hash(t.files, id) == fb_path_hash(3, "a/b", 3));
    assert_int_equal(fb_files_valid_until(t.files, id), 99);
    fb_files_set_valid_until(t.files, id, 5);
    assert_int_equal(fb_files_valid_until(t.files, id), 5);

    assert_int_equal(fb_files_put(t.files, 3, "a/b", &other, 1, &changed, &old), FB_FILES_CHANGED);
    assert_int_equal(old, id);
    assert_int_not_equal(changed, id);
    assert_int_not_equal(fb_files_generation(t.files, changed), gen);
    assert_false(fb_files_current(t.files, old));
    assert_true(fb_files_current(t.files, changed));
    assert_int_equal(fb_files_version(t.files, old)->size, 5);
    assert_int_equal(fb_files_version(t.files, changed)->size, 6);
    assert_int_equal(fb_files_find(t.files, 3, "a/b"), changed);
    assert_true(fb_files_hold(t.files, changed, 3, "a/b"));
    assert_false(fb_files_hold(t.files, old, 3, "a/b"));
    assert_false(fb_files_hold(t.files, changed, 3, "a/c"));
    assert_int_equal(records(&t), 2);
    fb_files_unref(t.files, old, 4); /* put, find, put, and the one that came with old */
    assert_int_equal(records(&t), 1);
    fb_files_unref(t.files, changed, 3);
    assert_int_equal(records(&t), 1);
    assert_int_equal(fb_files_remove(t.files, 3, "a/b"), changed);
    assert_int_equal(fb_files_remove(t.files, 3, "a/b"), 0);
    assert_int_equal(records(&t), 1);
    fb_files_unref(t.files, changed, 1);
    assert_int_equal(records(&t), 0);
    stop(&t);
}

static void test_directories(void **state)
{
    struct table t;
    struct fb_attr attr = directory(1), later = directory(2), file = regular(1), got;
    uint32_t id;

    (void)state;
    start(&t, 1 << 20);
    id = put(&t, "", &attr, FB_FILES_NEW);
    assert_int_equal(put(&t, "", &later, FB_FILES_SAME), id);
    fb_files_attr(t.files, id, &got);
    assert_memory_equal(&got, &later, sizeof got);
    assert_int_not_equal(put(&t, "", &file, FB_FILES_CHANGED), id);
    stop(&t);
}

/* Beside a record that others find, or where there is none; gone with its last reference. */
static void test_aside(void **state)
{
    struct fb_attr attr = regular(100), other = regular(7);
    struct table t;
    uint32_t id, aside;

    (void)state;
    start(&t, SMALL_TABLE);
    id = put(&t, "a/b", &attr, FB_FILES_NEW);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fb_files_put_aside(t.files, 3, "a/b", &other, &aside), 0);
        assert_false(fb_files_current(t.files, aside));
        assert_string_equal(fb_files_path(t.files, aside, NULL), "a/b");
        assert_int_equal(fb_files_version(t.files, aside)->size, 7);
        assert_int_equal(fb_files_find(t.files, 3, "a/b"), i == 0 ? id : 0);
        assert_int_equal(records(&t), i == 0 ? 2 : 1);
        fb_files_unref(t.files, aside, 1);
        if (i == 0) {
            assert_int_equal(fb_files_remove(t.files, 3, "a/b"), id);
            fb_files_unref(t.files, id, 3);
        }
    }
    assert_int_equal(records(&t), 0);
    stop(&t);
}

static void test_adopt(void **state)
{
    struct table t;
    struct fb_attr attr = regular(1), older = regular(2);
    uint32_t id, again;

    (void)state;
    start(&t, 1 << 20);
    assert_int_equal(fb_files_adopt(t.files, 3, "x", &attr, &id), FB_FILES_NEW);
    assert_int_equal(fb_files_valid_until(t.files, id), 0);
    assert_int_equal(fb_files_adopt(t.files, 3, "x", &attr, &again), FB_FILES_SAME);
    assert_int_equal(again, id);
    assert_int_equal(fb_files_adopt(t.files, 3, "x", &older, &again), FB_FILES_CHANGED);
    assert_int_equal(again, 0);
    fb_files_unref(t.files, id, 2);
    stop(&t);
}

/* Every length of path, byte for byte; one more is refused. */
static void test_long_paths(void **state)
{
    struct table t;
    struct fb_attr attr = regular(1);
    char path[FB_PATH_MAX + 1];
    uint32_t id, old;
    size_t got;

    (void)state;
    start(&t, 16 << 20);
    for (size_t len = 0; len < FB_PATH_MAX; len += len < 400 ? 1 : 31) {
        memset(path, 'a' + (int)(len % 26), len);
        path[len] = 0;
        id = put(&t, path, &attr, FB_FILES_NEW);
        assert_string_equal(fb_files_path(t.files, id, &got), path);
        assert_int_equal(got, len);
        assert_int_equal(fb_files_find(t.files, 3, path), id);
    }
    memset(path, 'x', FB_PATH_MAX);
    path[FB_PATH_MAX] = 0;
    assert_int_equal(fb_files_put(t.files, 3, path, &attr, 1, &id, &old), -ENAMETOOLONG);
    stop(&t);
}

/* A full table gives up what nobody holds, the longest unused first, and nothing else. */
static void test_reclaim(void **state)
{
    struct table t;
    struct fb_attr attr = regular(1);
    struct fb_files_stats stats;
    uint32_t held, id, old;
    char path[32];
    int rc;

    (void)state;
    start(&t, SMALL_TABLE);
    held = put(&t, "held", &attr, FB_FILES_NEW);
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "file-%d", i);
        fb_files_unref(t.files, put(&t, path, &attr, FB_FILES_NEW), 1);
        if (i >= 100) { /* kept warm */
            id = fb_files_find(t.files, 3, "file-100");
            assert_int_not_equal(id, 0);
            fb_files_unref(t.files, id, 1);
        }
    }
    assert_int_equal(fb_files_find(t.files, 3, "held"), held);
    assert_int_equal(fb_files_find(t.files, 3, "file-0"), 0);
    assert_int_equal(fb_files_find(t.files, 3, "file-600"), 0);
    assert_int_not_equal(fb_files_find(t.files, 3, "file-999"), 0);
    fb_files_stats(t.files, &stats);
    assert_true(stats.reclaimed > 600 && stats.records + stats.reclaimed == 1001);
    assert_true(stats.bytes_used <= stats.bytes_total && stats.bytes_total <= SMALL_TABLE);

    /* Now hold all there is room for. */
    for (int i = 0; (rc = fb_files_put(t.files, 4, path, &attr, 1, &id, &old)) > 0; i++)
        snprintf(path, sizeof path, "kept-%d", i);
    assert_int_equal(rc, -ENOMEM);
    assert_int_equal(fb_files_find(t.files, 3, "file-100"), 0);
    /* A changed file that finds no room stays, but is not believed any more. */
    attr = regular(2);
    assert_int_equal(fb_files_put(t.files, 3, "held", &attr, 1, &id, &old), -ENOMEM);
    assert_true(fb_files_current(t.files, held));
    assert_int_equal(fb_files_valid_until(t.files, held), 0);
    stop(&t);
}

/* Room that one size class leaves serves another, in both directions. */
static void test_classes_share(void **state)
{
    struct table t;
    struct fb_attr attr = regular(1);
    char path[3000];

    (void)state;
    start(&t, SMALL_TABLE);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < 500; i++) {
            int width = round % 2 ? 2500 : 10;

            snprintf(path, sizeof path, "%d-%0*d", round, width, i);
            fb_files_unref(t.files, put(&t, path, &attr, FB_FILES_NEW), 1);
        }
    stop(&t);
}

static void test_items_hold(void **state)
{
    struct table t;
    struct fb_attr attr = regular(1), other = regular(2);
    uint32_t id, old;

    (void)state;
    start(&t, 1 << 20);
    id = put(&t, "x", &attr, FB_FILES_NEW);
    fb_files_items_add(t.files, id, 1);
    fb_files_items_add(t.files, id, 1);
    fb_files_unref(t.files, id, 1);
    assert_int_equal(fb_files_items(t.files, id), 2);
    assert_int_equal(fb_files_put(t.files, 3, "x", &other, 1, &id, &old), FB_FILES_CHANGED);
    fb_files_unref(t.files, old, 1);
    assert_int_equal(records(&t), 2);
    fb_files_items_add(t.files, old, -1);
    assert_int_equal(records(&t), 2);
    fb_files_items_add(t.files, old, -1);
    assert_int_equal(records(&t), 1);
    /* A current record whose last item leaves stays, and can be reclaimed or found. */
    fb_files_items_add(t.files, id, 1);
    fb_files_unref(t.files, id, 1);
    fb_files_items_add(t.files, id, -1);
    assert_int_equal(records(&t), 1);
    assert_int_equal(fb_files_find(t.files, 3, "x"), id);
    stop(&t);
}

struct seen {
    struct table *t;
    unsigned count;
    bool remove;
};

static void see(void *arg, uint32_t id)
{
    struct seen *s = arg;
    uint32_t removed = 0;

    s->count++;
    if (s->remove)
        removed = fb_files_remove(s->t->files, fb_files_source(s->t->files, id),
                                  fb_files_path(s->t->files, id, NULL));
    fb_files_unref(s->t->files, id, 1);
    if (removed != 0)
        fb_files_unref(s->t->files, removed, 1);
}

static unsigned visit(struct table *t, uint16_t source, const char *path, bool remove)
{
    struct seen s = {.t = t, .remove = remove};
    uint64_t visited = fb_files_visit(t->files, source, path, see, &s);

    assert_int_equal(visited, s.count);
    return s.count;
}

static void test_visit(void **state)
{
    static const char *const paths[] = {"a", "a/b", "a/b/c", "ab", "a/bc", "b", "", "a/b\n"};
    struct table t;
    struct fb_attr attr = regular(1);
    char path[64];

    (void)state;
    start(&t, 1 << 20);
    for (size_t i = 0; i < FB_ARRAY_SIZE(paths); i++)
        fb_files_unref(t.files, put(&t, paths[i], &attr, FB_FILES_NEW), 1);
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "many/%d", i);
        fb_files_unref(t.files, put(&t, path, &attr, FB_FILES_NEW), 1);
    }
    assert_int_equal(visit(&t, 3, "a", false), 5);
    assert_int_equal(visit(&t, 3, "a/b", false), 2);
    assert_int_equal(visit(&t, 3, "many", false), 1000);
    assert_int_equal(visit(&t, 3, "", false), 1008);
    assert_int_equal(visit(&t, 2, "", false), 0);
    assert_int_equal(visit(&t, 3, "many", true), 1000);
    assert_int_equal(visit(&t, 3, "", false), 8);
    assert_int_equal(records(&t), 8);
    stop(&t);
}

/* ---- against a model ---- */

#define PATHS  300u
#define ROUNDS 60000

struct model {
    uint32_t id[PATHS]; /* of the current record, as far as it is known to be held */
    uint32_t held[PATHS];
    uint64_t size[PATHS];
};

static void path_of(uint32_t i, char *path, size_t size)
{
    snprintf(path, size, "dir/%0*u", (int)(1 + i % 40 * (i % 7)), i);
}

static void model_let_go(struct table *t, struct model *m, uint32_t i)
{
    if (m->held[i] > 0)
        fb_files_unref(t->files, m->id[i], m->held[i]);
    m->held[i] = 0;
}

static void model_step(struct table *t, struct model *m, struct fb_rand *r)
{
    uint32_t i = (uint32_t)fb_rand_below(r, PATHS), id, old;
    char path[512];
    struct fb_attr attr;
    int rc;

    path_of(i, path, sizeof path);
    switch (fb_rand_below(r, 6)) {
    case 0:
    case 1:
        if (fb_rand_below(r, 4) == 0)
            m->size[i] = fb_rand_below(r, 1000);
        attr = regular(m->size[i]);
        rc = fb_files_put(t->files, 3, path, &attr, 1, &id, &old);
        assert_true(rc > 0);
        if (m->held[i] > 0)
            assert_true((id == m->id[i]) == (rc == FB_FILES_SAME));
        if (rc == FB_FILES_CHANGED) {
            fb_files_unref(t->files, old, 1);
            model_let_go(t, m, i);
        }
        assert_int_equal(fb_files_version(t->files, id)->size, m->size[i]);
        m->id[i] = id;
        m->held[i]++;
        break;
    case 2:
        id = fb_files_find(t->files, 3, path);
        if (m->held[i] > 0)
            assert_int_equal(id, m->id[i]);
        if (id != 0)
            m->held[i]++;
        m->id[i] = id;
        break;
    case 3:
        if (fb_rand_below(r, 3) != 0)
            break;
        id = fb_files_remove(t->files, 3, path);
        if (id != 0)
            fb_files_unref(t->files, id, 1);
        model_let_go(t, m, i);
        break;
    default:
        model_let_go(t, m, i);
    }
}

static void test_model(void **state)
{
    struct table t;
    struct fb_rand r = {.state = 99};
    struct model *m = calloc(1, sizeof *m);
    struct seen s = {.t = &t, .remove = true};

    (void)state;
    assert_non_null(m);
    start(&t, 192 << 10);
    for (int round = 0; round < ROUNDS; round++)
        model_step(&t, m, &r);
    for (uint32_t i = 0; i < PATHS; i++)
        model_let_go(&t, m, i);
    fb_files_visit(t.files, 3, "", see, &s);
    assert_int_equal(records(&t), 0);
    free(m);
    stop(&t);
}

/* ---- threads ---- */

#define THREADS       4
#define SHARED_PATHS  64u
#define THREAD_ROUNDS 15000

struct worker {
    struct table *t;
    uint64_t seed;
    bool only_reads;
};

/* The version tells the path: size = path number, tag[0] = mix of it and mtime. */
static struct fb_attr telling(uint32_t i, uint64_t mtime)
{
    struct fb_attr attr = regular(i);

    attr.version.mtime_ns = (int64_t)mtime;
    attr.version.tag[0] = fb_mix64(i * 1000 + mtime);
    return attr;
}

static bool tells(const struct fb_version *v, uint32_t i)
{
    return v->size == i && v->tag[0] == fb_mix64(i * 1000 + (uint64_t)v->mtime_ns);
}

static const char *write_some(struct worker *w, struct fb_rand *r, uint32_t i, const char *path)
{
    struct fb_files *files = w->t->files;
    struct fb_attr attr = telling(i, fb_rand_below(r, 3));
    uint32_t id = 0, old = 0;
    bool good;

    switch (fb_rand_below(r, 8)) {
    case 0:
        id = fb_files_remove(files, 3, path);
        break;
    case 1:
    case 2:
        if (fb_files_put(files, 3, path, &attr, 1, &id, &old) < 0)
            return NULL;
        break;
    default:
        id = fb_files_find(files, 3, path);
    }
    if (old != 0)
        fb_files_unref(files, old, 1);
    if (id == 0)
        return NULL;
    fb_files_items_add(files, id, 1);
    fb_files_attr(files, id, &attr);
    good = tells(fb_files_version(files, id), i) && tells(&attr.version, i) &&
           strcmp(fb_files_path(files, id, NULL), path) == 0;
    fb_files_unref(files, id, 1);
    fb_files_items_add(files, id, -1);
    return good ? NULL : "a held record changed";
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct fb_rand r = {.state = w->seed};
    const char *complaint = NULL;

    for (int round = 0; complaint == NULL && round < THREAD_ROUNDS; round++) {
        uint32_t i = (uint32_t)fb_rand_below(&r, SHARED_PATHS);
        struct fb_found_file found;
        char path[512];

        path_of(i, path, sizeof path);
        if (!w->only_reads)
            complaint = write_some(w, &r, i, path);
        else if (fb_layout_find_file(&w->t->layout, fb_path_hash(3, path, strlen(path)), 3, path,
                                     strlen(path), &found) &&
                 !tells(&found.version, i))
            complaint = "found without a lock: not what was looked for";
    }
    return (void *)complaint;
}

static void test_threads(void **state)
{
    struct table t;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct seen s = {.t = &t, .remove = true};

    (void)state;
    start(&t, 48 << 10); /* too small for all: records come and go */
    for (int i = 0; i < THREADS; i++) {
        /* Readers without a lock race by design: not under TSan. */
        workers[i] =
            (struct worker){.t = &t, .seed = 5 + (uint64_t)i, .only_reads = !FB_TSAN && i % 2 == 1};
        assert_int_equal(fb_thread_start(&threads[i], "worker", work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *complaint;

        assert_int_equal(pthread_join(threads[i], &complaint), 0);
        if (complaint != NULL)
            fail_msg("%s", (const char *)complaint);
    }
    fb_files_visit(t.files, 3, "", see, &s);
    assert_int_equal(records(&t), 0);
    stop(&t);
}

static void test_settled(void **state)
{
    const int64_t now = 1794756600000000000LL, second = 1000000000;

    static const struct {
        int64_t mtime, ctime; /* seconds from now */
        bool settled;
    } cases[] = {
        {-3, -3, true},          {-1, -1, false},      {-1000, -1, false}, /* its mode changed */
        {-1, -1000, false},      {10, -3, false},      {3600, -3, true},
        {3600, 0, true},                               /* set by hand, after the last write */
        {3600, 3600, false},     {-1000, 3600, false}, /* a clock that is ahead */
        {-3000000000, -3, true},
    };

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(cases); i++) {
        struct fb_version v = {.mtime_ns = now + cases[i].mtime * second,
                               .ctime_ns = now + cases[i].ctime * second,
                               .tag = {7, 0}};

        assert_int_equal(fb_version_settled(&v, now), cases[i].settled);
        v.tag[1] = 1;
        assert_true(fb_version_settled(&v, now));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settled),     cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_directories), cmocka_unit_test(test_aside),
        cmocka_unit_test(test_adopt),       cmocka_unit_test(test_long_paths),
        cmocka_unit_test(test_reclaim),     cmocka_unit_test(test_classes_share),
        cmocka_unit_test(test_items_hold),  cmocka_unit_test(test_visit),
        cmocka_unit_test(test_model),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_hints),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
