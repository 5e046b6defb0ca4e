/*
 * What counts as an outage of a bucket, and when it is over: a source whose server, a small bucket
 * of this test's, is slow or answers as it is told to.
 */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "source/source_s3.h"
#include "source/test_jobs.h"
#include "source/test_s3_server.h"

#define SLOW_NS  (1500 * FB_NS_PER_MS) /* longer than a probe is waited for */
#define SHORT_NS (300 * FB_NS_PER_MS)

struct bucket {
    struct fb_test_server server;
    struct fb_source *source;
    bool numbered;            /* good answers have an id */
    _Atomic bool slow;        /* to say what is at the root */
    _Atomic int refusal;      /* 0, or the status of all answers */
    const char *_Atomic code; /* of the refusal */
    /* The next request of that method finds a gateway that has lost the server. */
    const char *_Atomic lost;
};

/* ---- the server ------------------------------------------------------------------------------ */

static bool is(const char *request, const char *method)
{
    return method && strncmp(request, method, strlen(method)) == 0;
}

/* Its only object is "file". */
static int answer(void *arg, const char *request, char *body, size_t size)
{
    struct bucket *b = arg;

    if (is(request, atomic_load(&b->lost))) {
        atomic_store(&b->lost, NULL);
        if (!is(request, "HEAD"))
            snprintf(body, size, "<html>Not found</html>");
        return 404;
    }
    if (atomic_load(&b->refusal)) {
        snprintf(body, is(request, "HEAD") ? 1 : size, "<Error><Code>%s</Code></Error>",
                 atomic_load(&b->code));
        return atomic_load(&b->refusal);
    }
    snprintf(b->server.headers, sizeof b->server.headers, "%s%s%s",
             b->numbered ? "x-amz-request-id: 1\r\n" : "",
             is(request, "GET") ? "" : "ETag: \"00000000000000000000000000000001\"\r\n",
             is(request, "HEAD") ? "Content-Length: 5\r\n" : "");
    if (is(request, "HEAD"))
        return strstr(request, " /b/file ") ? 200 : 404;
    if (!is(request, "GET"))
        return is(request, "DELETE") ? 204 : 200;
    if (strstr(request, "prefix= ") && atomic_load(&b->slow))
        fb_sleep_ns(SLOW_NS);
    snprintf(body, size,
             "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
             "</ListBucketResult>");
    return 200;
}

static int open_bucket(struct bucket *b, struct fb_source **ret_source, struct fb_error *err)
{
    const char *const env[] = {"AWS_ACCESS_KEY_ID=AK", "AWS_SECRET_ACCESS_KEY=Sesame", NULL};
    const struct fb_s3_config config = {
        .uri = "s3://b", .path_style = true, .endpoint = b->server.url, .env = env};

    return fb_source_s3_open(&config, ret_source, err);
}

static int setup_with(void **state, bool numbered)
{
    struct bucket *b = fb_alloc(sizeof *b);
    struct fb_error err = {0};

    assert_non_null(b);
    b->numbered = numbered;
    fb_test_server_start(&b->server, answer, b);
    assert_int_equal(open_bucket(b, &b->source, &err), 0);
    *state = b;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, false);
}

static int setup_numbered(void **state)
{
    return setup_with(state, true);
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

/* "Not found", without S3's words, is nobody's answer where S3 has words. */
static void gateway_changes(void **state)
{
    struct bucket *b = *state;
    struct fb_source_job *make = fb_test_job(FB_SOURCE_MKNOD, "new");

    atomic_store(&b->lost, "DELETE");
    assert_int_equal(fb_test_run(b->source, FB_SOURCE_UNLINK, "file", NULL), 0);
    assert_null(atomic_load(&b->lost));
    make->mode = S_IFREG | 0644;
    atomic_store(&b->lost, "PUT");
    assert_int_equal(fb_source_wait(b->source, make), 0);
    assert_null(atomic_load(&b->lost));
    fb_source_job_put(make);
}

/* HEAD has none: there it is the id that tells, where good answers have one. */
static void gateway_numbered(void **state)
{
    struct bucket *b = *state;

    atomic_store(&b->lost, "HEAD");
    assert_int_equal(fb_test_stat(b->source, "file"), 0);
    assert_null(atomic_load(&b->lost));
    assert_int_equal(fb_test_stat(b->source, "other"), -ENOENT);
}

static void gateway_unknown(void **state)
{
    struct bucket *b = *state;

    atomic_store(&b->lost, "HEAD");
    assert_int_equal(fb_test_stat(b->source, "file"), -ENOENT);
    assert_int_equal(fb_test_stat(b->source, "file"), 0);
}

static void refuse(struct bucket *b, int status, const char *code)
{
    atomic_store(&b->code, code);
    atomic_store(&b->refusal, status);
}

/* Keys that were good, and have expired, say nothing about a file; a refusal does. Whose keys were
 * never good is told so. */
static void expired_keys(void **state)
{
    struct bucket *b = *state;
    struct fb_source *other;
    struct fb_error err = {0};

    refuse(b, 400, "ExpiredToken");
    assert_int_equal(fb_test_stat(b->source, "file"), -EIO);
    assert_int_equal(open_bucket(b, &other, &err), -EACCES);
    assert_non_null(strstr(err.text, "the bucket b refuses access (status 400, ExpiredToken)"));
    refuse(b, 403, "AccessDenied");
    FB_TEST_EVENTUALLY(fb_test_health(b->source) == FB_SOURCE_UP);
    assert_int_equal(fb_test_stat(b->source, "file"), -EACCES);
    refuse(b, 0, NULL);
    assert_int_equal(fb_test_stat(b->source, "file"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(late_probe, setup, teardown),
        cmocka_unit_test_setup_teardown(gateway_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(gateway_numbered, setup_numbered, teardown),
        cmocka_unit_test_setup_teardown(gateway_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(expired_keys, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
