/*
 * GL-Cache's learning: groups that are asked for rank above groups that are not, objects count once
 * a sampling, ghosts count as well, merged groups take means and begin anew; of groups that are as
 * useful, the larger goes first. A drift is told from a burst.
 */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"
#include "policy/glcache.h"

#define GROUPS  64
#define OBJECTS 16 /* in a group */
#define OPEN    1  /* still written */

static struct fb_gl *make(struct fb_gl_meta metas[GROUPS][OBJECTS])
{
    const struct fb_gl_settings settings = {.evict = 0.5, .features = FB_GL_FEATURES_ALL};
    struct fb_gl *gl;

    assert_int_equal(fb_gl_create(&settings, 1, &gl), 0);
    assert_int_equal(fb_gl_reserve(gl, GROUPS), 0);
    for (uint32_t g = 0; g < GROUPS; g++) {
        fb_gl_open(gl, g);
        for (uint32_t i = 0; i < OBJECTS; i++) {
            fb_gl_miss(gl, fb_mix64(1 + g * OBJECTS + i), 1, 1, &metas[g][i]);
            fb_gl_add(gl, g, 1, &metas[g][i]);
        }
        if (g != OPEN)
            fb_gl_close(gl, g);
    }
    return gl;
}

/* Groups of even number are asked for all the time. */
static void test_ranking(void **state)
{
    static struct fb_gl_meta metas[GROUPS][OBJECTS];
    struct fb_gl *gl = make(metas);
    uint32_t victim;
    unsigned odd = 0;

    (void)state;
    assert_int_equal(fb_gl_victim(gl, &victim), 0);
    assert_int_equal(victim, FB_GL_NONE); /* no model yet */
    for (uint32_t i = 0; i < 60000; i++) {
        uint32_t g = i * 2 % GROUPS;

        fb_gl_hit(gl, g, 1, &metas[g][i / GROUPS % OBJECTS]);
        assert_int_equal(fb_gl_step(gl, (uint64_t)GROUPS * OBJECTS), 0);
    }
    assert_true(fb_gl_trainings(gl) > 1);
    for (unsigned i = 0; i < GROUPS / 4; i++) {
        assert_int_equal(fb_gl_victim(gl, &victim), 0);
        assert_int_not_equal(victim, FB_GL_NONE);
        assert_int_not_equal(victim, OPEN);
        odd += victim % 2;
    }
    assert_int_equal(odd, GROUPS / 4);
    fb_gl_destroy(gl);
}

/* All are alike but for their size; the model, which knows no sizes, cannot tell. */
static void test_bytes(void **state)
{
    static struct fb_gl_meta metas[GROUPS][OBJECTS];
    struct fb_gl *gl = make(metas);
    uint32_t victim;

    (void)state;
    gl->group[9].size *= 2;
    for (uint32_t i = 0; i < 60000; i++) {
        uint32_t g = i % GROUPS;

        fb_gl_hit(gl, g, 1, &metas[g][i / GROUPS % OBJECTS]);
        assert_int_equal(fb_gl_step(gl, (uint64_t)GROUPS * OBJECTS), 0);
    }
    assert_int_equal(fb_gl_victim(gl, &victim), 0);
    assert_int_equal(victim, 9);
    fb_gl_destroy(gl);
}

/* The most a group of this many objects can be worth is one count for each. */
static void test_counts_once(void **state)
{
    struct fb_gl_meta meta = {.last = 1};
    struct fb_gl_group group = {.row = 0, .turn = 5};
    const struct fb_gl_settings settings = {.evict = 0.1};
    struct fb_gl *gl;

    (void)state;
    assert_int_equal(fb_gl_create(&settings, 1, &gl), 0);
    fb_gl_count(gl, &group, 1, &meta);
    assert_int_equal(meta.mark & FB_GL_TURNS, 5);
    meta.mark |= FB_GL_ACTIVE_BIT;
    fb_gl_count(gl, &group, 1, &meta);
    assert_int_equal(meta.mark, 5 | FB_GL_ACTIVE_BIT);
    fb_gl_destroy(gl);
}

static void test_ghosts(void **state)
{
    static struct fb_gl_meta metas[GROUPS][OBJECTS];
    struct fb_gl *gl = make(metas);
    struct fb_gl_meta counted = metas[0][1];

    (void)state;
    fb_gl_evicted(gl, 0, 99, &metas[0][0]);
    assert_int_equal(gl->ghosts, 0); /* the group is not sampled */
    gl->group[0].row = 0;
    gl->group[0].turn = 3;
    fb_gl_evicted(gl, 0, 99, &metas[0][0]);
    assert_int_equal(gl->ghosts, 1);
    counted.mark = 3;
    fb_gl_evicted(gl, 0, 100, &counted);
    assert_int_equal(gl->ghosts, 1); /* it has counted */
    fb_gl_ghost(gl, 99, 1);
    fb_gl_ghost(gl, 99, 1);
    fb_gl_ghost(gl, 12345, 1);
    fb_gl_destroy(gl);
}

static void test_merge(void **state)
{
    static struct fb_gl_meta metas[GROUPS][OBJECTS];
    struct fb_gl *gl = make(metas);
    const uint32_t merged[2] = {4, 5};

    (void)state;
    gl->group[4].requests = 10;
    gl->group[5].requests = 30;
    gl->group[4].active = 2;
    gl->group[5].active = 4;
    gl->group[4].write_rate = 1;
    gl->group[5].write_rate = 3;
    fb_gl_merge(gl, merged, 2, 4);
    assert_true(gl->group[4].used && !gl->group[5].used);
    assert_int_equal(gl->group[4].requests, 20);
    assert_int_equal(gl->group[4].active, 3);
    assert_true(gl->group[4].write_rate == 2);
    assert_int_equal(gl->group[4].objects, 0); /* the owner adds them */
    assert_int_equal(gl->group[4].opened, gl->now);
    fb_gl_destroy(gl);
}

/* Of a thousand requests `misses` miss; the others are for every other group from `first` on. */
static void ask(struct fb_gl *gl, struct fb_gl_meta metas[GROUPS][OBJECTS], uint32_t first,
                unsigned misses, uint32_t requests)
{
    for (uint32_t i = 0; i < requests; i++) {
        uint32_t g = first + gl->now * 2 % (GROUPS - first);
        struct fb_gl_meta gone;

        if (gl->now * 7 % 1000 < misses)
            fb_gl_miss(gl, fb_mix64(gl->now), 1, gl->now, &gone);
        else
            fb_gl_hit(gl, g, 1, &metas[g][gl->now / GROUPS % OBJECTS]);
        assert_int_equal(fb_gl_step(gl, (uint64_t)GROUPS * OBJECTS), 0);
    }
}

static bool has_model(struct fb_gl *gl)
{
    uint32_t victim;

    assert_int_equal(fb_gl_victim(gl, &victim), 0);
    return victim != FB_GL_NONE;
}

/* What it has learned is forgotten when nothing of it holds any more, and learned anew. */
static void test_drift(void **state)
{
    static struct fb_gl_meta metas[GROUPS][OBJECTS];
    struct fb_gl *gl = make(metas);
    const uint32_t fresh = GROUPS * 3 / 4;

    (void)state;
    ask(gl, metas, 0, 100, 100000);
    assert_true(has_model(gl));
    for (unsigned i = 0; fb_gl_drifts(gl) == 0; i++) {
        /* What is missed goes into the same groups' places, and nobody asks for the others. */
        for (uint32_t g = fresh; i % 200 == 0 && g < GROUPS; g++) {
            fb_gl_open(gl, g);
            for (uint32_t o = 0; o < OBJECTS; o++)
                fb_gl_add(gl, g, 1, &metas[g][o]);
            fb_gl_close(gl, g);
        }
        assert_true(i < 4 * GROUPS * OBJECTS);
        ask(gl, metas, fresh, 900, 1);
    }
    assert_false(has_model(gl));
    ask(gl, metas, 0, 100, 100000);
    assert_int_equal(fb_gl_drifts(gl), 1);
    assert_true(has_model(gl));
    fb_gl_destroy(gl);
}

/* Many misses are no drift while what is old is still asked for, or nothing at all. */
static void test_bursts(void **state)
{
    static struct fb_gl_meta metas[GROUPS][OBJECTS];
    struct fb_gl *gl = make(metas);

    (void)state;
    ask(gl, metas, 0, 100, 100000);
    for (unsigned i = 0; i < 4; i++) {
        ask(gl, metas, 0, 600, 10000);
        assert_true(has_model(gl));
        ask(gl, metas, 0, 100, 20000);
        ask(gl, metas, 0, 1000, 10000);
        assert_true(has_model(gl));
        ask(gl, metas, 0, 100, 20000);
    }
    assert_int_equal(fb_gl_drifts(gl), 0);
    fb_gl_destroy(gl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranking),     cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_counts_once), cmocka_unit_test(test_ghosts),
        cmocka_unit_test(test_merge),       cmocka_unit_test(test_drift),
        cmocka_unit_test(test_bursts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
