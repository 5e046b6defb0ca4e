/*
 * What counts as an outage of a bucket, and when it is over: a source whose server, a small bucket
 * of this test's, is slow or answers as it is told to.
 */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include "source/source_s3.h"
#include "source/test_jobs.h"
#include "source/test_s3_server.h"

#define SLOW_NS  (1500 * FB_NS_PER_MS) /* longer than a probe is waited for */
#define SHORT_NS (300 * FB_NS_PER_MS)

struct bucket {
    struct fb_test_server server;
    struct fb_source *source;
    _Atomic bool slow; /* to say what is at the root */
};

/* ---- the server ------------------------------------------------------------------------------ */

/* Its only object is "file". */
static int answer(void *arg, const char *request, char *body, size_t size)
{
    struct bucket *b = arg;

    if (strncmp(request, "HEAD /b/file ", 13) == 0) {
        snprintf(b->server.headers, sizeof b->server.headers,
                 "ETag: \"%032u\"\r\nContent-Length: 5\r\n", 1u);
        return 200;
    }
    if (strstr(request, "prefix= ") && atomic_load(&b->slow))
        fb_sleep_ns(SLOW_NS);
    snprintf(body, size,
             "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
             "</ListBucketResult>");
    return 200;
}

static int setup(void **state)
{
    struct bucket *b = fb_alloc(sizeof *b);
    const char *const env[] = {NULL};
    struct fb_s3_config config = {
        .uri = "s3://b", .path_style = true, .unsigned_requests = true, .env = env};
    struct fb_error err = {0};

    assert_non_null(b);
    fb_test_server_start(&b->server, answer, b);
    config.endpoint = b->server.url;
    assert_int_equal(fb_source_s3_open(&config, &b->source, &err), 0);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bucket *b = *state;

    assert_true(fb_source_close(b->source));
    fb_test_server_stop(&b->server);
    free(b);
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A server that takes longer for its root than a probe is waited for comes back all the same. */
static void late_probe(void **state)
{
    struct bucket *b = *state;
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "");

    atomic_store(&b->slow, true);
    job->deadline_ns = fb_now_ns() + SHORT_NS;
    assert_true(fb_source_wait(b->source, job) < 0);
    fb_source_job_put(job);
    FB_TEST_EVENTUALLY(fb_test_health(b->source) == FB_SOURCE_DOWN);
    FB_TEST_EVENTUALLY(fb_test_health(b->source) == FB_SOURCE_UP);
    assert_int_equal(fb_test_stat(b->source, "file"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(late_probe, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
