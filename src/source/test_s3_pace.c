/*
 * A server that is modelled: it works on so many requests at a time, and each takes so long.
 */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/clock.h"
#include "source/s3_pace.h"

#define MS FB_NS_PER_MS

struct server {
    unsigned at_once; /* that it works on */
    unsigned most;    /* beyond which it refuses */
    int64_t work_ns;
};

/* As many rounds, each with as many requests as there may be. */
static void rounds(struct fb_s3_pace *pace, const struct server *server, unsigned count,
                   enum fb_s3_pace_kind kind, int64_t *now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned sent = (unsigned)pace->limit;
        int64_t sent_ns = *now_ns;
        int64_t took_ns = server->work_ns;

        if (sent > server->at_once)
            took_ns = took_ns * sent / server->at_once;
        *now_ns += took_ns;
        for (unsigned k = 0; k < sent; k++) {
            if (k >= server->most)
                fb_s3_pace_refused(pace, sent_ns, *now_ns);
            else
                fb_s3_pace_answered(pace, kind, took_ns, true);
        }
    }
}

static void grows_while_it_helps(void **state)
{
    const struct server wide = {.at_once = 1000, .most = 1000, .work_ns = 30 * MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    assert_int_equal(pace.limit, FB_S3_PACE_FIRST);
    rounds(&pace, &wide, 10, FB_S3_PACE_BYTES, &now_ns);
    assert_in_range(pace.limit, 16, 20);
    rounds(&pace, &wide, 100, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 64);
}

static void not_beyond_what_the_server_works_on(void **state)
{
    const struct server narrow = {.at_once = 10, .most = 1000, .work_ns = 30 * MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    rounds(&pace, &narrow, 20, FB_S3_PACE_BYTES, &now_ns);
    assert_in_range(pace.limit, 10, 26);
}

static void nothing_waits_nothing_grows(void **state)
{
    struct fb_s3_pace pace;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    for (int i = 0; i < 1000; i++)
        fb_s3_pace_answered(&pace, FB_S3_PACE_BYTES, MS, false);
    assert_int_equal(pace.limit, FB_S3_PACE_FIRST);
}

/* Quick words say nothing about bytes. */
static void each_kind_by_itself(void **state)
{
    struct server server = {.at_once = 1000, .most = 1000, .work_ns = MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 16);
    rounds(&pace, &server, 1, FB_S3_PACE_WORDS, &now_ns);
    server.work_ns = 100 * MS;
    rounds(&pace, &server, 20, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 16);
}

static void refused_once_for_all_under_way(void **state)
{
    struct fb_s3_pace pace;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    pace.limit = 30;
    for (int i = 0; i < 30; i++)
        fb_s3_pace_refused(&pace, 5 * MS, (10 + i) * MS);
    assert_int_equal(pace.limit, 20);
    fb_s3_pace_refused(&pace, 11 * MS, 50 * MS);
    assert_in_range(pace.limit, 13, 14);
    for (int i = 0; i < 30; i++)
        fb_s3_pace_refused(&pace, (100 + 2 * i) * MS, (101 + 2 * i) * MS);
    assert_int_equal(pace.limit, FB_S3_PACE_LEAST);
}

/* Around what the server allows, and back up once it allows more. */
static void follows_the_server(void **state)
{
    struct server server = {.at_once = 1000, .most = 12, .work_ns = 20 * MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    rounds(&pace, &server, 200, FB_S3_PACE_BYTES, &now_ns);
    assert_in_range(pace.limit, 8, 13);
    server.most = 1000;
    rounds(&pace, &server, 100, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 64);
}

/* Slower for good: after a few hundred answers that is how it is. */
static void slower_for_good(void **state)
{
    struct server server = {.at_once = 1000, .most = 1000, .work_ns = MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    rounds(&pace, &server, 1, FB_S3_PACE_BYTES, &now_ns);
    fb_s3_pace_refused(&pace, now_ns, now_ns);
    server.work_ns = 80 * MS;
    rounds(&pace, &server, 500, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_while_it_helps),
        cmocka_unit_test(not_beyond_what_the_server_works_on),
        cmocka_unit_test(nothing_waits_nothing_grows),
        cmocka_unit_test(each_kind_by_itself),
        cmocka_unit_test(refused_once_for_all_under_way),
        cmocka_unit_test(follows_the_server),
        cmocka_unit_test(slower_for_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
