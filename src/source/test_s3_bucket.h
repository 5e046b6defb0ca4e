/*
 * source/test_s3_bucket.h - for unit tests: a source in front of a small bucket, whose server
 * answers when it is told to, and as it is told to. What was asked for, in which order, is noted.
 */
#ifndef FB_SOURCE_TEST_S3_BUCKET_H
#define FB_SOURCE_TEST_S3_BUCKET_H

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "base/attr.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_s3.h"
#include "source/test_s3_server.h"

#define OBJECTS_MAX 16
#define PART_BYTES  64
#define PATIENCE_NS (120 * FB_NS_PER_S)

struct object {
    char key[128]; /* "": none */
    unsigned etag;
    size_t size;
};

/* What a listing has: what it was asked for; all, whatever that was; all, but not where one key
 * alone is asked for; what was asked for, but on a page of its own behind it, all. */
enum lists {
    ASKED,
    ALL,
    ALL_WIDE,
    ALL_BEHIND
};

/* What it makes of If-Match where something is deleted. */
enum conditions {
    IGNORED,
    HEEDED,
    REFUSED
};

struct bucket {
    struct fb_test_server server;
    struct fb_source *source;
    struct fb_s3_journal *journal;
    struct fb_test_dir dir; /* of the journal */
    pthread_mutex_t lock;   /* what follows */
    struct object objects[OBJECTS_MAX];
    unsigned versions;
    char seen[4096];                    /* method and key of each change, as they came */
    const char *hold_method, *hold_key; /* whose answer waits */
    _Atomic bool held, released;
    /* Instead of the right answer, the first time. */
    const char *fault_method, *fault_key;
    int fault_status;
    enum lists lists;
    enum conditions conditions;
    unsigned pages; /* that followed another */
};

/* ---- the server ------------------------------------------------------------------------------ */

static inline struct object *object_at(struct bucket *b, const char *key, bool make)
{
    struct object *free_one = NULL;

    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        if (strcmp(b->objects[i].key, key) == 0)
            return &b->objects[i];
        if (!b->objects[i].key[0] && !free_one)
            free_one = &b->objects[i];
    }
    if (make && free_one)
        snprintf(free_one->key, sizeof free_one->key, "%s", key);
    return make ? free_one : NULL;
}

static inline void store(struct bucket *b, const char *key, size_t size)
{
    struct object *o = object_at(b, key, true);

    if (!o)
        return;
    o->etag = ++b->versions;
    o->size = size;
}

static inline void list(const struct bucket *b, const char *query, char *body, size_t size)
{
    const char *at = strstr(query, "prefix=");
    char prefix[128] = "";
    bool all = b->lists == ALL || (b->lists == ALL_WIDE && !strstr(query, "max-keys=1&"));
    bool first = b->lists == ALL_BEHIND && !strstr(query, "continuation-token=");
    size_t n = 0, len = 0;

    all |= b->lists == ALL_BEHIND && !first;
    for (at = at ? at + 7 : ""; *at && *at != '&' && *at != ' ' && n + 1 < sizeof prefix; n++) {
        bool slash = strncmp(at, "%2F", 3) == 0;

        prefix[n] = slash ? '/' : *at;
        at += slash ? 3 : 1;
    }
    prefix[n] = '\0';
    len += (size_t)snprintf(body, size,
                            "<ListBucketResult><EncodingType>url</EncodingType>"
                            "<IsTruncated>%s</IsTruncated>%s",
                            first ? "true" : "false",
                            first ? "<NextContinuationToken>t</NextContinuationToken>" : "");
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        const struct object *o = &b->objects[i];

        if (o->key[0] && (all || strncmp(o->key, prefix, n) == 0))
            len += (size_t)snprintf(body + len, size - len,
                                    "<Contents><Key>%s</Key><LastModified>2020-01-01T00:00:00.000Z"
                                    "</LastModified><ETag>\"%032u\"</ETag><Size>%zu</Size>"
                                    "</Contents>",
                                    o->key, o->etag, o->size);
    }
    snprintf(body + len, size - len, "</ListBucketResult>");
}

static inline int put(struct bucket *b, const char *request, const char *key, char *body,
                      size_t size)
{
    const char *from = strcasestr(request, "x-amz-copy-source: /b/");
    const char *match = strcasestr(request, "x-amz-copy-source-if-match: \"");
    const char *length = strcasestr(request, "content-length: ");
    char old_key[128] = "";
    const struct object *old;

    if (strstr(request, "partNumber=")) {
        snprintf(b->server.headers, sizeof b->server.headers, "ETag: \"%032u\"\r\n", 7u);
        return 200;
    }
    if (strcasestr(request, "\r\nif-none-match: *") && object_at(b, key, false))
        return 412;
    if (!from) {
        store(b, key, length ? strtoul(length + 16, NULL, 10) : 0);
        snprintf(b->server.headers, sizeof b->server.headers, "ETag: \"%032u\"\r\n", b->versions);
        return 200;
    }
    sscanf(from + 22, "%127[^\r]", old_key);
    old = object_at(b, old_key, false);
    if (!old) {
        snprintf(body, size, "<Error><Code>NoSuchKey</Code></Error>");
        return 404;
    }
    if (match && strtoul(match + 29, NULL, 10) != old->etag)
        return 412;
    store(b, key, old->size);
    snprintf(body, size, "<CopyObjectResult><ETag>\"%032u\"</ETag></CopyObjectResult>",
             b->versions);
    return 200;
}

static inline int post(struct bucket *b, const char *request, const char *key, char *body,
                       size_t size)
{
    if (strstr(request, "?uploads")) {
        snprintf(body, size,
                 "<InitiateMultipartUploadResult><UploadId>one</UploadId>"
                 "</InitiateMultipartUploadResult>");
        return 200;
    }
    store(b, key, 2 * PART_BYTES);
    snprintf(body, size,
             "<CompleteMultipartUploadResult><ETag>\"%032u\"</ETag>"
             "</CompleteMultipartUploadResult>",
             b->versions);
    return 200;
}

static inline int delete (struct bucket *b, const char *request, struct object *o, char *body,
                          size_t size)
{
    const char *match = strcasestr(request, "\r\nif-match: \"");

    if (match && b->conditions == REFUSED) {
        snprintf(body, size, "<Error><Code>NotImplemented</Code></Error>");
        return 501;
    }
    if (match && b->conditions == HEEDED && !o) {
        snprintf(body, size, "<Error><Code>NoSuchKey</Code></Error>");
        return 404;
    }
    if (match && b->conditions == HEEDED && strtoul(match + 13, NULL, 10) != o->etag)
        return 412;
    if (o && !strstr(request, "uploadId="))
        o->key[0] = '\0';
    return 204;
}

static inline int serve(struct bucket *b, const char *request, const char *method, const char *key,
                        char *body, size_t size)
{
    struct object *o = object_at(b, key, false);

    if (strcmp(method, "GET") == 0 && !key[0]) {
        list(b, request, body, size);
        b->pages += strstr(request, "continuation-token=") != NULL;
        return 200;
    }
    if (strcmp(method, "HEAD") == 0) {
        if (o)
            snprintf(b->server.headers, sizeof b->server.headers,
                     "ETag: \"%032u\"\r\nContent-Length: %zu\r\n", o->etag, o->size);
        return o ? 200 : 404;
    }
    if (strcmp(method, "PUT") == 0)
        return put(b, request, key, body, size);
    if (strcmp(method, "POST") == 0)
        return post(b, request, key, body, size);
    return delete (b, request, o, body, size);
}

static inline bool same(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static inline int answer(void *arg, const char *request, char *body, size_t size)
{
    struct bucket *b = arg;
    char method[8] = "", key[128] = "";
    bool held, faulty;
    size_t len;
    int status;

    sscanf(request, "%7s /b/%127[^? ]", method, key);
    pthread_mutex_lock(&b->lock);
    len = strlen(b->seen);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        snprintf(b->seen + len, sizeof b->seen - len, "%s %s,", method, key);
    faulty = same(b->fault_method, method) && same(b->fault_key, key);
    held = same(b->hold_method, method) && same(b->hold_key, key);
    status = faulty ? b->fault_status : serve(b, request, method, key, body, size);
    if (faulty)
        b->fault_method = NULL;
    if (held)
        b->hold_method = NULL;
    pthread_mutex_unlock(&b->lock);
    if (!held)
        return status;
    atomic_store(&b->held, true);
    while (!atomic_load(&b->released) && !atomic_load(&b->server.stop))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return status;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static inline void job_done(struct fb_source_job *job)
{
    atomic_store((_Atomic bool *)job->arg, true);
}

struct ask {
    struct fb_source_job *job;
    _Atomic bool done;
};

static inline void begin(struct bucket *b, struct ask *ask, struct fb_source_job *job)
{
    assert_non_null(job);
    atomic_store(&ask->done, false);
    ask->job = job;
    job->deadline_ns = fb_now_ns() + PATIENCE_NS;
    job->done = job_done;
    job->arg = &ask->done;
    fb_source_submit(b->source, job);
}

static inline void wait_for(_Atomic bool *what)
{
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;

    while (!atomic_load(what)) {
        assert_true(fb_now_ns() < until_ns);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static inline int end(struct ask *ask)
{
    int result;

    wait_for(&ask->done);
    result = ask->job->result;
    fb_source_job_put(ask->job);
    return result;
}

static inline int now(struct bucket *b, struct fb_source_job *job)
{
    struct ask ask;

    begin(b, &ask, job);
    return end(&ask);
}

static inline struct fb_source_handle *open_new(struct bucket *b, const char *path)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_OPEN, path);
    struct fb_source_handle *handle;
    struct ask ask;

    job->flags = O_WRONLY | O_CREAT | O_TRUNC;
    begin(b, &ask, job);
    wait_for(&ask.done);
    handle = job->handle;
    assert_int_equal(end(&ask), 0);
    return handle;
}

static inline struct fb_source_job *write_job(struct fb_source_handle *handle, uint64_t offset,
                                              size_t size)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_WRITE, NULL);

    job->handle = handle;
    job->offset = offset;
    job->memory = fb_alloc(size);
    job->iov[0] = (struct iovec){.iov_base = job->memory, .iov_len = size};
    job->iov_count = 1;
    return job;
}

static inline struct fb_source_job *commit_job(struct fb_source_handle *handle)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_COMMIT, NULL);

    job->handle = handle;
    job->flags = FB_COMMIT_SYNC;
    return job;
}

static inline struct fb_source_job *close_job(struct fb_source_handle *handle)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);

    job->handle = handle;
    return job;
}

static inline struct fb_source_job *rename_job(const char *from, const char *to)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_RENAME, from);

    job->path2 = fb_strdup(to);
    return job;
}

static inline struct fb_source_job *exclusive_rename_job(const char *from, const char *to)
{
    struct fb_source_job *job = rename_job(from, to);

    job->flags = RENAME_NOREPLACE;
    return job;
}

/* Somebody else's. */
static inline void put_object(struct bucket *b, const char *key, size_t size)
{
    pthread_mutex_lock(&b->lock);
    store(b, key, size);
    pthread_mutex_unlock(&b->lock);
}

static inline void hold(struct bucket *b, const char *method, const char *key)
{
    pthread_mutex_lock(&b->lock);
    b->hold_method = method;
    b->hold_key = key;
    pthread_mutex_unlock(&b->lock);
}

static inline void fault(struct bucket *b, const char *method, const char *key, int status)
{
    pthread_mutex_lock(&b->lock);
    b->fault_method = method;
    b->fault_key = key;
    b->fault_status = status;
    pthread_mutex_unlock(&b->lock);
}

static inline void set_lists(struct bucket *b, enum lists lists)
{
    pthread_mutex_lock(&b->lock);
    b->lists = lists;
    pthread_mutex_unlock(&b->lock);
}

static inline void set_conditions(struct bucket *b, enum conditions conditions)
{
    pthread_mutex_lock(&b->lock);
    b->conditions = conditions;
    pthread_mutex_unlock(&b->lock);
}

/* What was changed since the last time. */
static inline void check_seen(struct bucket *b, const char *expected)
{
    char seen[sizeof b->seen];

    pthread_mutex_lock(&b->lock);
    memcpy(seen, b->seen, sizeof seen);
    b->seen[0] = '\0';
    pthread_mutex_unlock(&b->lock);
    assert_string_equal(seen, expected);
}

/* -1: there is none. */
static inline void check_size(struct bucket *b, const char *key, int64_t expected)
{
    const struct object *o;
    int64_t size;

    pthread_mutex_lock(&b->lock);
    o = object_at(b, key, false);
    size = o ? (int64_t)o->size : -1;
    pthread_mutex_unlock(&b->lock);
    assert_int_equal(size, expected);
}

static inline int setup_with(void **state, struct fb_s3_journal *journal, int64_t journal_wait_ns)
{
    struct bucket *b = fb_alloc(sizeof *b);
    const char *const env[] = {NULL};
    struct fb_s3_config config = {.uri = "s3://b",
                                  .path_style = true,
                                  .unsigned_requests = true,
                                  .part_bytes = PART_BYTES,
                                  .journal = journal,
                                  .journal_wait_ns = journal_wait_ns,
                                  .env = env};
    struct fb_error err = {0};

    assert_int_equal(pthread_mutex_init(&b->lock, NULL), 0);
    fb_test_server_start(&b->server, answer, b);
    config.endpoint = b->server.url;
    assert_int_equal(fb_source_s3_open(&config, &b->source, &err), 0);
    b->journal = journal;
    *state = b;
    return 0;
}

static inline int setup(void **state)
{
    return setup_with(state, NULL, 0);
}

static inline int teardown(void **state)
{
    struct bucket *b = *state;

    atomic_store(&b->released, true);
    fb_source_close(b->source);
    fb_test_server_stop(&b->server);
    fb_s3_journal_close(b->journal);
    pthread_mutex_destroy(&b->lock);
    free(b);
    return 0;
}

#endif
