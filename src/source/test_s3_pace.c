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

/* As many rounds, each with as many requests as there may be. Those that are refused tell nothing
 * of what the others took. */
static void rounds(struct fb_s3_pace *pace, const struct server *server, unsigned count,
                   enum fb_s3_pace_kind kind, int64_t *now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned sent = (unsigned)pace->limit;
        struct fb_s3_pace_answer answer = {
            .kind = kind, .mark = fb_s3_pace_sent(pace, *now_ns), .waiting = true};
        int64_t took_ns = server->work_ns;

        if (sent > server->at_once)
            took_ns = took_ns * sent / server->at_once;
        *now_ns += took_ns;
        answer.first_ns = answer.now_ns = *now_ns;
        for (unsigned k = 0; k < sent; k++) {
            if (k >= server->most)
                fb_s3_pace_refused(pace, answer.mark.sent_ns, *now_ns);
            else
                fb_s3_pace_answered(pace, &answer);
        }
    }
}

static void twice_as_many_while_more_comes(void **state)
{
    const struct server wide = {.at_once = 1000, .most = 1000, .work_ns = 30 * MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    assert_int_equal(pace.limit, FB_S3_PACE_FIRST);
    rounds(&pace, &wide, 1, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 2 * FB_S3_PACE_FIRST);
    rounds(&pace, &wide, 2, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 64);
    assert_int_equal(pace.state, FB_S3_PACE_START);
    /* More than that may not be, so nothing grows any more; what was good stays. */
    rounds(&pace, &wide, 10, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.state, FB_S3_PACE_STEADY);
    assert_int_equal(pace.limit, 64);
}

/* The start goes beyond it, notices, and has not taken its own queue for the server's way. */
static void not_beyond_what_the_server_works_on(void **state)
{
    const unsigned at_once[] = {1, 5, 10, 20, 40};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(at_once); i++) {
        const struct server narrow = {.at_once = at_once[i], .most = 1000, .work_ns = 30 * MS};
        unsigned least = at_once[i] < FB_S3_PACE_FIRST ? FB_S3_PACE_FIRST : at_once[i];
        struct fb_s3_pace pace;
        int64_t now_ns = 0;

        fb_s3_pace_init(&pace, 1000);
        rounds(&pace, &narrow, 8, FB_S3_PACE_BYTES, &now_ns);
        assert_int_equal(pace.state, FB_S3_PACE_STEADY);
        assert_in_range(pace.limit, least, 2 * least);
        /* However long it goes on. */
        rounds(&pace, &narrow, 1000, FB_S3_PACE_BYTES, &now_ns);
        assert_in_range(pace.limit, least / 2, 3 * least);
        assert_in_range(pace.kinds[FB_S3_PACE_BYTES].best_ns, 30 * MS,
                        30 * MS * (at_once[i] < FB_S3_PACE_FIRST ? FB_S3_PACE_FIRST : 2));
    }
}

/* A large object is worth more than its request. */
static void bytes_count(void **state)
{
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    /* A line of 100 MB a second, whatever is asked for: one at a time is enough. */
    for (int i = 0; i < 20; i++) {
        unsigned sent = (unsigned)pace.limit;
        struct fb_s3_pace_answer answer = {
            .mark = fb_s3_pace_sent(&pace, now_ns), .bytes = 4000000, .waiting = true};

        for (unsigned k = 0; k < sent; k++) {
            answer.first_ns = now_ns + MS;
            now_ns += 40 * MS;
            answer.now_ns = now_ns;
            fb_s3_pace_answered(&pace, &answer);
        }
    }
    assert_int_equal(pace.state, FB_S3_PACE_STEADY);
    assert_in_range(pace.limit, FB_S3_PACE_FIRST, 3 * FB_S3_PACE_FIRST);
}

static void nothing_waits_nothing_grows(void **state)
{
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    for (int i = 0; i < 1000; i++) {
        struct fb_s3_pace_answer answer = {.mark = fb_s3_pace_sent(&pace, now_ns)};

        answer.first_ns = answer.now_ns = now_ns += MS;
        fb_s3_pace_answered(&pace, &answer);
    }
    assert_int_equal(pace.limit, FB_S3_PACE_FIRST);
    assert_int_equal(pace.state, FB_S3_PACE_START);
}

/* Quick words say nothing about bytes. */
static void each_kind_by_itself(void **state)
{
    struct server server = {.at_once = 1000, .most = 1000, .work_ns = MS};
    struct fb_s3_pace pace;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    rounds(&pace, &server, 1, FB_S3_PACE_WORDS, &now_ns);
    server.work_ns = 100 * MS;
    rounds(&pace, &server, 4, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 64);
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
    assert_in_range(pace.limit, 7, 13);
    server.most = 1000;
    rounds(&pace, &server, 100, FB_S3_PACE_BYTES, &now_ns);
    assert_int_equal(pace.limit, 64);
}

/* Slower for good: a probe shows that it is not for our sake. */
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

/* Nothing new: the probes become rare, and what was there before comes back after each. */
static void probes_become_rare(void **state)
{
    const struct server narrow = {.at_once = 10, .most = 1000, .work_ns = 50 * MS};
    struct fb_s3_pace pace;
    unsigned probing = 0;
    int64_t now_ns = 0;

    (void)state;
    fb_s3_pace_init(&pace, 64);
    pace.state = FB_S3_PACE_STEADY;
    pace.limit = 40;
    pace.kinds[FB_S3_PACE_BYTES].best_ns = 50 * MS;
    for (int i = 0; i < 1000; i++) {
        rounds(&pace, &narrow, 1, FB_S3_PACE_BYTES, &now_ns);
        probing += pace.state == FB_S3_PACE_PROBE;
    }
    assert_int_equal(pace.limit, 40);
    assert_in_range(probing, 4, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twice_as_many_while_more_comes),
        cmocka_unit_test(not_beyond_what_the_server_works_on),
        cmocka_unit_test(bytes_count),
        cmocka_unit_test(nothing_waits_nothing_grows),
        cmocka_unit_test(each_kind_by_itself),
        cmocka_unit_test(refused_once_for_all_under_way),
        cmocka_unit_test(follows_the_server),
        cmocka_unit_test(slower_for_good),
        cmocka_unit_test(probes_become_rare),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
