/*
 * Directories that are known: right after a while, in both orders, within their memory, and ended
 * with the volume; walks over all that is below a directory.
 */
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"
#include "cache/dirs.h"
#include "cache/epoch_names.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_fault.h"
#include "source/source_posix.h"

#define FILES 300u
#define MIB   (1u << 20)

struct fixture {
    struct fb_test_dir dir;
    struct fb_cache *cache;
    struct fb_dirs *dirs;
    struct fb_volume *volume;
    struct fb_source *fault;
    uint16_t source;
};

static void touch(struct fixture *f, const char *name, uint64_t size)
{
    char path[PATH_MAX + 300];
    FB_AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof path, "%s/%s", f->dir.path, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
}

static void make_dir(struct fixture *f, const char *name)
{
    char path[PATH_MAX + 300];

    snprintf(path, sizeof path, "%s/%s", f->dir.path, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static int setup(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);
    struct fb_volume_config config = {.metadata_ttl_ns = 600 * FB_NS_PER_S,
                                      .timeout_ns = 120 * FB_NS_PER_S};
    struct fb_posix_config posix;
    struct fb_cache_config c;
    struct fb_source *source;
    struct fb_error err = {""};

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    posix = (struct fb_posix_config){.root = f->dir.path, .threads = 4};
    make_dir(f, "many");
    for (unsigned i = 0; i < FILES; i++) {
        char name[32];

        snprintf(name, sizeof name, "many/%u.bin", i);
        touch(f, name, i);
    }
    make_dir(f, "tree");
    make_dir(f, "tree/a");
    make_dir(f, "tree/a/b");
    touch(f, "tree/x", 5);
    touch(f, "tree/a/y", 6);
    touch(f, "tree/a/b/z", 7);
    fb_cache_config_defaults(&c);
    c.memory_bytes = 96 * MIB;
    assert_int_equal(fb_cache_open(&c, &f->cache, &err), 0);
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_source_fault_open(source, &(struct fb_fault_config){0}, &f->fault), 0);
    assert_int_equal(fb_volume_attach(f->cache, f->fault, &config, &f->volume, &err), 0);
    f->dirs = fb_cache_dirs(f->cache);
    f->source = fb_volume_id(f->volume);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fb_volume_detach(f->volume);
    fb_cache_close(f->cache);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

static struct fb_dir *get_soon(struct fixture *f, const char *path)
{
    struct fb_dir *dir = NULL;

    for (int i = 0; i < 6000 && !dir; i++) {
        dir = fb_dirs_get(f->dirs, f->source, path, strlen(path));
        if (!dir)
            fb_sleep_ns(10 * FB_NS_PER_MS);
    }
    assert_non_null(dir);
    return dir;
}

static void knows_names(void **state)
{
    struct fixture *f = *state;
    struct fb_dir *dir = get_soon(f, "many");
    bool seen[FILES] = {false};

    assert_int_equal(fb_dir_count(dir), FILES);
    assert_false(fb_dir_is_unstable(dir));
    for (uint32_t i = 0; i < FILES; i++) {
        struct fb_dir_entry e = fb_dir_at(dir, i);
        uint32_t position, rank;

        assert_int_equal(e.type, DT_REG);
        assert_true(e.size < FILES && !seen[e.size]);
        seen[e.size] = true;
        assert_true(fb_dir_find(dir, e.name, e.name_len, &position, &rank));
        assert_int_equal(position, i);
        /* Numbers count as numbers. */
        assert_int_equal(rank, e.size);
        assert_int_equal(fb_dir_ranked(dir, rank), i);
    }
    fb_dir_put(dir);
}

static void knows_no_others(void **state)
{
    struct fixture *f = *state;
    struct fb_dir *dir = get_soon(f, "many");
    uint32_t position, rank;

    assert_false(fb_dir_find(dir, "300.bin", 7, &position, &rank));
    assert_false(fb_dir_find(dir, "1.bi", 4, &position, &rank));
    assert_false(fb_dir_find(dir, "1.binx", 6, &position, &rank));
    assert_false(fb_dir_find(dir, "", 0, &position, &rank));
    fb_dir_put(dir);
    dir = get_soon(f, "");
    assert_int_equal(fb_dir_count(dir), 2);
    fb_dir_put(dir);
}

/* One visit is no reason to list; a file and a name that is not there are no directories. */
static void lists_what_is_visited(void **state)
{
    struct fixture *f = *state;
    struct fb_dir *dir = NULL;
    struct fb_source_stats before, after;

    fb_source_stats(f->fault, &before);
    for (unsigned i = 0; i + 1 < FB_DIRS_VISITS; i++)
        assert_null(fb_dirs_visited(f->dirs, f->source, "many", 4));
    fb_source_stats(f->fault, &after);
    assert_int_equal(before.jobs, after.jobs);
    for (int i = 0; i < 6000 && !dir; i++) {
        dir = fb_dirs_visited(f->dirs, f->source, "many", 4);
        if (!dir)
            fb_sleep_ns(10 * FB_NS_PER_MS);
    }
    assert_non_null(dir);
    fb_dir_put(dir);
    assert_null(fb_dirs_get(f->dirs, f->source, "tree/x", 6));
    assert_null(fb_dirs_get(f->dirs, f->source, "nothing", 7));
    assert_null(fb_dirs_get(f->dirs, (uint16_t)(f->source + 1), "many", 4));
}

/* A hung source: detaching ends the listing (in teardown). */
static void ends_with_the_volume(void **state)
{
    struct fixture *f = *state;

    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    assert_null(fb_dirs_get(f->dirs, f->source, "many", 4));
    assert_null(fb_dirs_get(f->dirs, f->source, "tree", 4));
}

struct found {
    unsigned files, directories;
    uint64_t bytes;
    bool order_is_wrong;
    unsigned stop_after;
};

static int count(void *arg, const struct fb_walked *walked)
{
    struct found *found = arg;

    assert_non_null(walked->volume);
    if (walked->type == DT_DIR) {
        found->directories++;
    } else {
        assert_non_null(walked->attr);
        found->files++;
        found->bytes += walked->attr->version.size;
        /* A directory comes before what is in it. */
        if (strcmp(walked->path, "tree/a/b/z") == 0 && found->directories < 2)
            found->order_is_wrong = true;
    }
    return found->stop_after && found->files >= found->stop_after ? -ECANCELED : 0;
}

static void walks(void **state)
{
    struct fixture *f = *state;
    struct found found = {0}, all = {0}, some = {.stop_after = 10};

    assert_int_equal(fb_dirs_walk(f->cache, f->source, "tree", true, count, &found), 0);
    assert_int_equal(found.files, 3);
    assert_int_equal(found.directories, 2);
    assert_int_equal(found.bytes, 18);
    assert_false(found.order_is_wrong);
    assert_int_equal(fb_dirs_walk(f->cache, f->source, "", true, count, &all), 0);
    assert_int_equal(all.files, FILES + 3);
    assert_int_equal(fb_dirs_walk(f->cache, f->source, "many", true, count, &some), -ECANCELED);
    assert_int_equal(some.files, 10);
    assert_int_equal(fb_dirs_walk(f->cache, f->source, "nothing", true, count, &all), -ENOENT);
    assert_int_equal(fb_dirs_walk(f->cache, (uint16_t)(f->source + 1), "", true, count, &all),
                     -ENODEV);
}

static void make_far(struct fixture *f)
{
    atomic_store(&f->volume->pipe.idle_ns, 20 * FB_NS_PER_MS);
    atomic_store(&f->volume->pipe.reads, 1000);
    assert_true(fb_pipe_is_far(f->cache, f->source));
}

static uint64_t jobs_to_look_up(struct fixture *f, const char *path)
{
    struct fb_source_stats before, after;
    uint32_t file;

    fb_source_stats(f->fault, &before);
    assert_int_equal(fb_cache_stat(f->volume, path, &file, NULL), 0);
    fb_files_unref(f->cache->files, file, 1);
    fb_source_stats(f->fault, &after);
    return after.jobs - before.jobs;
}

/* Who reads in a directory of a far source that was listed asks for none of its names. */
static void hears_of_names(void **state)
{
    struct fixture *f = *state;

    fb_sleep_ns(FB_SETTLE_TIME_NS + 100 * FB_NS_PER_MS); /* younger files are not believed */
    fb_dir_put(get_soon(f, "tree"));
    assert_int_equal(jobs_to_look_up(f, "tree/x"), 1);
    make_far(f);
    fb_dir_put(get_soon(f, "many"));
    assert_int_equal(jobs_to_look_up(f, "many/5.bin"), 0);
    assert_int_equal(jobs_to_look_up(f, "many/299.bin"), 0);
    assert_int_equal(jobs_to_look_up(f, "tree/a/y"), 1);
}

#define CLASSES 20u
#define EACH    3u

/* What a walk sees, and how often the source was asked until it saw the first file. */
struct seen {
    struct fixture *f;
    uint64_t jobs_before, jobs_at_first, jobs_wanted;
    char paths[CLASSES * EACH][32];
    unsigned count, stop_after;
};

static int see(void *arg, const struct fb_walked *walked)
{
    struct fb_source_stats stats;
    struct seen *s = arg;

    if (walked->type == DT_DIR)
        return 0;
    for (int i = 0; i < 6000 && s->count == 0 && s->jobs_at_first < s->jobs_wanted; i++) {
        fb_source_stats(s->f->fault, &stats);
        s->jobs_at_first = stats.jobs - s->jobs_before;
        if (s->jobs_at_first < s->jobs_wanted)
            fb_sleep_ns(10 * FB_NS_PER_MS);
    }
    if (s->count < CLASSES * EACH)
        snprintf(s->paths[s->count], sizeof s->paths[0], "%s", walked->path);
    s->count++;
    return s->count == s->stop_after ? -ECANCELED : 0;
}

static struct seen *walk_and_see(struct fixture *f, uint64_t jobs_wanted, unsigned stop_after)
{
    struct seen *s = fb_alloc(sizeof *s);
    struct fb_source_stats stats;

    assert_non_null(s);
    fb_source_stats(f->fault, &stats);
    s->f = f;
    s->jobs_before = stats.jobs;
    s->jobs_wanted = jobs_wanted;
    s->stop_after = stop_after;
    assert_int_equal(fb_dirs_walk(f->cache, f->source, "set", true, see, s),
                     stop_after ? -ECANCELED : 0);
    fb_source_stats(f->fault, &stats);
    assert_int_equal(stats.in_flight, 0);
    return s;
}

static void make_set(struct fixture *f, uint64_t size)
{
    char path[32];

    for (unsigned i = 0; i < CLASSES * EACH; i++) {
        snprintf(path, sizeof path, "set/class%u", i / EACH);
        if (size == 1 && i == 0)
            make_dir(f, "set");
        if (size == 1 && i % EACH == 0)
            make_dir(f, path);
        snprintf(path, sizeof path, "set/class%u/%u", i / EACH, i % EACH);
        touch(f, path, size);
    }
}

/* However many are visited at once: each takes memory, and the source's attention. */
static void lists_few_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct fb_source_stats stats;
    char path[32];

    make_set(f, 1);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.latency_ns = FB_NS_PER_S / 2});
    for (unsigned i = 0; i < CLASSES; i++) {
        snprintf(path, sizeof path, "set/class%u", i);
        assert_null(fb_dirs_get(f->dirs, f->source, path, strlen(path)));
    }
    fb_source_stats(f->fault, &stats);
    assert_int_equal(stats.in_flight, fb_dirs_at_once(96 * MIB));
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    for (unsigned i = 0; i < CLASSES; i++) {
        snprintf(path, sizeof path, "set/class%u", i);
        fb_dir_put(get_soon(f, path));
    }
}

/* Where the source is far the next directories are listed while the visitor is in the first, and
 * everything comes in the same order. */
static void walks_ahead(void **state)
{
    struct fixture *f = *state;
    struct seen *near, *far, *some;

    make_set(f, 1);
    near = walk_and_see(f, 4, 0);
    assert_int_equal(near->jobs_at_first, 4); /* two directories: opened, and read once */
    assert_int_equal(near->count, CLASSES * EACH);
    make_far(f);
    far = walk_and_see(f, 8, 0);
    assert_true(far->jobs_at_first >= 8); /* and two more, as much memory allows */
    assert_int_equal(far->count, near->count);
    assert_memory_equal(far->paths, near->paths, sizeof near->paths);
    some = walk_and_see(f, 8, EACH + 1);
    assert_memory_equal(some->paths, near->paths, (EACH + 1) * sizeof near->paths[0]);
    free(near);
    free(far);
    free(some);
}

#define OLD_NS (2 * FB_NS_PER_S) /* of a listing, when it is made again */

/* In the first file others change all; what is seen of the other directories then is new. */
static int see_anew(void *arg, const struct fb_walked *walked)
{
    struct seen *s = arg;
    bool first = s->count == 0 && walked->type != DT_DIR;
    int rc = see(arg, walked);

    if (first) {
        make_set(s->f, 5);
        fb_sleep_ns(OLD_NS + 100 * FB_NS_PER_MS);
    } else if (walked->type != DT_DIR && s->count > EACH) {
        assert_int_equal(walked->attr->version.size, 5);
    }
    return rc;
}

static void lists_again_what_is_old(void **state)
{
    struct fixture *f = *state;
    struct fb_source_stats stats;
    struct seen *s = fb_alloc(sizeof *s);

    assert_non_null(s);
    make_set(f, 1);
    make_far(f);
    fb_source_stats(f->fault, &stats);
    *s = (struct seen){.f = f, .jobs_before = stats.jobs, .jobs_wanted = 8};
    assert_int_equal(fb_dirs_walk(f->cache, f->source, "set", true, see_anew, s), 0);
    assert_true(s->jobs_at_first >= 8);
    assert_int_equal(s->count, CLASSES * EACH);
    free(s);
}

struct sequence {
    char paths[FILES][16];
    unsigned count;
};

static int note_path(void *arg, const struct fb_walked *walked)
{
    struct sequence *s = arg;

    if (walked->type != DT_DIR)
        snprintf(s->paths[s->count++], sizeof s->paths[0], "%s", walked->path + strlen("set/"));
    return 0;
}

static void expect_name(const struct fb_names *names, uint32_t number, const char *want)
{
    char path[FB_NAMES_PATH_SIZE];

    (void)fb_names_path(names, number, path);
    assert_string_equal(path, want);
}

/* Samples that are numbered through two directories, in all orders that a data set may have. */
static void numbers_data_sets(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_FREE struct sequence *s = fb_alloc(sizeof *s);
    struct fb_names *names[FB_SEED_ORDERS];
    _Atomic bool stop = false;
    unsigned orders;
    char path[32];

    assert_non_null(s);
    make_dir(f, "set");
    make_dir(f, "set/b");
    make_dir(f, "set/a");
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "set/%c/%03u", "ba"[i % 2], i);
        touch(f, path, 1);
    }
    assert_int_equal(fb_epoch_names(f->cache, f->source, "set", &stop, names, &orders), 0);
    assert_int_equal(orders, 3); /* there are no images */
    assert_int_equal(fb_dirs_walk(f->cache, f->source, "set", false, note_path, s), 0);
    assert_int_equal(s->count, FILES);
    for (uint32_t i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%c/%03u", "ab"[i >= FILES / 2],
                 2 * i % FILES + (i < FILES / 2));
        expect_name(names[0], i, path);
        expect_name(names[1], i, s->paths[i]);
        snprintf(path, sizeof path, "%c/%03u", "ba"[i % 2], i);
        expect_name(names[2], i, path);
    }
    for (unsigned o = 0; o < orders; o++)
        fb_names_free(names[o]);
}

static void *walk_hanging(void *arg)
{
    struct fixture *f = arg;
    struct found found = {0};

    assert_int_not_equal(fb_dirs_walk(f->cache, f->source, "", true, count, &found), 0);
    return NULL;
}

/* While somebody walks, the volume is detached. */
static void walk_ends_with_the_volume(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;

    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    assert_int_equal(pthread_create(&thread, NULL, walk_hanging, f), 0);
    fb_sleep_ns(20 * FB_NS_PER_MS);
    fb_volume_detach(f->volume);
    f->volume = NULL;
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(knows_names, setup, teardown),
        cmocka_unit_test_setup_teardown(knows_no_others, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_what_is_visited, setup, teardown),
        cmocka_unit_test_setup_teardown(ends_with_the_volume, setup, teardown),
        cmocka_unit_test_setup_teardown(walks, setup, teardown),
        cmocka_unit_test_setup_teardown(hears_of_names, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_few_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(walks_ahead, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_again_what_is_old, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_data_sets, setup, teardown),
        cmocka_unit_test_setup_teardown(walk_ends_with_the_volume, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
