/*
 * Changes of a bucket that meet each other: jobs are submitted to a source whose server, a small
 * bucket of this test's, answers when it is told to. What was asked for, in which order, is noted.
 */
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
#include "source/test_s3_disk.h"
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

static struct object *object_at(struct bucket *b, const char *key, bool make)
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

static void store(struct bucket *b, const char *key, size_t size)
{
    struct object *o = object_at(b, key, true);

    if (!o)
        return;
    o->etag = ++b->versions;
    o->size = size;
}

static void list(const struct bucket *b, const char *query, char *body, size_t size)
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

static int put(struct bucket *b, const char *request, const char *key, char *body, size_t size)
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

static int post(struct bucket *b, const char *request, const char *key, char *body, size_t size)
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

static int delete (struct bucket *b, const char *request, struct object *o, char *body, size_t size)
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

static int serve(struct bucket *b, const char *request, const char *method, const char *key,
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

static bool same(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static int answer(void *arg, const char *request, char *body, size_t size)
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

static void job_done(struct fb_source_job *job)
{
    atomic_store((_Atomic bool *)job->arg, true);
}

struct ask {
    struct fb_source_job *job;
    _Atomic bool done;
};

static void begin(struct bucket *b, struct ask *ask, struct fb_source_job *job)
{
    assert_non_null(job);
    atomic_store(&ask->done, false);
    ask->job = job;
    job->deadline_ns = fb_now_ns() + PATIENCE_NS;
    job->done = job_done;
    job->arg = &ask->done;
    fb_source_submit(b->source, job);
}

static void wait_for(_Atomic bool *what)
{
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;

    while (!atomic_load(what)) {
        assert_true(fb_now_ns() < until_ns);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static int end(struct ask *ask)
{
    int result;

    wait_for(&ask->done);
    result = ask->job->result;
    fb_source_job_put(ask->job);
    return result;
}

static int now(struct bucket *b, struct fb_source_job *job)
{
    struct ask ask;

    begin(b, &ask, job);
    return end(&ask);
}

static struct fb_source_handle *open_new(struct bucket *b, const char *path)
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

static struct fb_source_job *write_job(struct fb_source_handle *handle, uint64_t offset,
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

static struct fb_source_job *commit_job(struct fb_source_handle *handle)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_COMMIT, NULL);

    job->handle = handle;
    job->flags = FB_COMMIT_SYNC;
    return job;
}

static struct fb_source_job *close_job(struct fb_source_handle *handle)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);

    job->handle = handle;
    return job;
}

static struct fb_source_job *rename_job(const char *from, const char *to)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_RENAME, from);

    job->path2 = fb_strdup(to);
    return job;
}

static struct fb_source_job *exclusive_rename_job(const char *from, const char *to)
{
    struct fb_source_job *job = rename_job(from, to);

    job->flags = RENAME_NOREPLACE;
    return job;
}

/* Somebody else's. */
static void put_object(struct bucket *b, const char *key, size_t size)
{
    pthread_mutex_lock(&b->lock);
    store(b, key, size);
    pthread_mutex_unlock(&b->lock);
}

static void hold(struct bucket *b, const char *method, const char *key)
{
    pthread_mutex_lock(&b->lock);
    b->hold_method = method;
    b->hold_key = key;
    pthread_mutex_unlock(&b->lock);
}

static void fault(struct bucket *b, const char *method, const char *key, int status)
{
    pthread_mutex_lock(&b->lock);
    b->fault_method = method;
    b->fault_key = key;
    b->fault_status = status;
    pthread_mutex_unlock(&b->lock);
}

static void set_lists(struct bucket *b, enum lists lists)
{
    pthread_mutex_lock(&b->lock);
    b->lists = lists;
    pthread_mutex_unlock(&b->lock);
}

static void set_conditions(struct bucket *b, enum conditions conditions)
{
    pthread_mutex_lock(&b->lock);
    b->conditions = conditions;
    pthread_mutex_unlock(&b->lock);
}

/* What was changed since the last time. */
static void check_seen(struct bucket *b, const char *expected)
{
    char seen[sizeof b->seen];

    pthread_mutex_lock(&b->lock);
    memcpy(seen, b->seen, sizeof seen);
    b->seen[0] = '\0';
    pthread_mutex_unlock(&b->lock);
    assert_string_equal(seen, expected);
}

/* -1: there is none. */
static void check_size(struct bucket *b, const char *key, int64_t expected)
{
    const struct object *o;
    int64_t size;

    pthread_mutex_lock(&b->lock);
    o = object_at(b, key, false);
    size = o ? (int64_t)o->size : -1;
    pthread_mutex_unlock(&b->lock);
    assert_int_equal(size, expected);
}

static int setup_with(void **state, struct fb_s3_journal *journal, int64_t journal_wait_ns)
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

static int setup(void **state)
{
    return setup_with(state, NULL, 0);
}

/* With a journal whose directory is gone. */
static int setup_without_disk(void **state)
{
    char path[] = "/tmp/forebay-test-XXXXXX";
    struct fb_s3_journal *journal;
    int fd;

    assert_non_null(mkdtemp(path));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fb_s3_journal_open(fd, "uploads", &journal, NULL), 0);
    close(fd);
    assert_int_equal(rmdir(path), 0);
    return setup_with(state, journal, 0);
}

static int setup_with_disk(void **state, int64_t journal_wait_ns)
{
    struct fb_s3_journal *journal;
    struct fb_test_dir dir;
    struct bucket *b;
    int fd;

    fb_test_dir_make(&dir);
    fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fb_s3_journal_open(fd, "uploads", &journal, NULL), 0);
    close(fd);
    assert_int_equal(setup_with(state, journal, journal_wait_ns), 0);
    b = *state;
    b->dir = dir;
    return 0;
}

static int setup_patient(void **state)
{
    return setup_with_disk(state, PATIENCE_NS);
}

static int setup_impatient(void **state)
{
    return setup_with_disk(state, FB_NS_PER_MS);
}

static int teardown(void **state)
{
    struct bucket *b = *state;

    fb_test_disk_reset();
    atomic_store(&b->released, true);
    fb_source_close(b->source);
    fb_test_server_stop(&b->server);
    fb_s3_journal_close(b->journal);
    if (b->dir.path[0])
        fb_test_dir_remove(&b->dir);
    pthread_mutex_destroy(&b->lock);
    free(b);
    return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A write that waits for room, and a commit that comes meanwhile: it is part of it. */
static void commit_after_write(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask first, commit, second;

    begin(b, &first, write_job(handle, 0, 2 * PART_BYTES));
    begin(b, &commit, commit_job(handle));
    begin(b, &second, write_job(handle, 2 * PART_BYTES, 1));
    assert_int_equal(end(&first), 0);
    assert_int_equal(end(&commit), 0);
    /* What comes after the commit of an upload cannot be added to it. */
    assert_int_equal(end(&second), -EIO);
    check_seen(b, "POST file,PUT file,PUT file,POST file,");
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* Writes that wait behind a commit, and behind the next one. */
static void write_after_commit(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask commit, write, again;

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    begin(b, &write, write_job(handle, 10, 10));
    atomic_store(&b->released, true);
    assert_int_equal(end(&commit), 0);
    assert_int_equal(end(&write), 0);
    begin(b, &again, commit_job(handle));
    assert_int_equal(end(&again), 0);
    check_size(b, "file", 20);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* The end of a commit ends the writes that wait for it, all of them when the source is closed. */
static void closed_meanwhile(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask commit, writes[3];

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(writes); i++)
        begin(b, &writes[i], write_job(handle, 10, 10));
    fb_source_close(fb_steal(b->source));
    assert_int_equal(end(&commit), -ESHUTDOWN);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(writes); i++)
        assert_int_equal(end(&writes[i]), -ESHUTDOWN);
}

/* What was written to a name does not appear while a rename takes the name's object away. */
static void commit_while_renamed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct ask rename, commit;

    put_object(b, "from", 5);
    handle = open_new(b, "from");
    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "to");
    begin(b, &rename, rename_job("from", "to"));
    wait_for(&b->held);
    begin(b, &commit, commit_job(handle));
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    assert_int_equal(end(&commit), 0);
    check_seen(b, "PUT to,DELETE from,PUT from,");
    check_size(b, "to", 5);
    check_size(b, "from", 10);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* And what is appearing is not taken away, nor a directory with it. */
static void rename_while_committed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct ask commit;

    put_object(b, "dir/file", 5);
    handle = open_new(b, "dir/file");
    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "dir/file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    assert_int_equal(now(b, rename_job("dir/file", "to")), -EBUSY);
    assert_int_equal(now(b, rename_job("dir", "to")), -EBUSY);
    atomic_store(&b->released, true);
    assert_int_equal(end(&commit), 0);
    check_seen(b, "PUT dir/file,");
    check_size(b, "dir/file", 10);
    assert_int_equal(now(b, close_job(handle)), 0);
    assert_int_equal(now(b, rename_job("dir", "to")), 0);
    check_size(b, "to/file", 10);
    check_size(b, "dir/file", -1);
}

static struct fb_source_job *open_job(const char *path, uint32_t flags)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_OPEN, path);

    job->flags = flags;
    return job;
}

/* Whoever opens an object to replace it has not made a new file: a rename takes the object. */
static void rename_while_opened(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct ask open, rename;

    put_object(b, "from", 5);
    hold(b, "HEAD", "from");
    begin(b, &open, open_job("from", O_WRONLY | O_TRUNC));
    wait_for(&b->held);
    begin(b, &rename, rename_job("from", "to"));
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_false(atomic_load(&rename.done));
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    wait_for(&open.done);
    handle = open.job->handle;
    assert_int_equal(end(&open), 0);
    check_seen(b, "PUT to,DELETE from,");
    check_size(b, "to", 5);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* Nobody begins a file below a directory that is on its way to another name. */
static void open_while_moved(void **state)
{
    struct bucket *b = *state;
    struct ask rename;

    put_object(b, "dir/file", 5);
    hold(b, "PUT", "to/file");
    begin(b, &rename, rename_job("dir", "to"));
    wait_for(&b->held);
    assert_int_equal(now(b, open_job("dir/new", O_WRONLY | O_CREAT)), -EBUSY);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    check_size(b, "to/file", 5);
}

/* A commit that waits goes by the file as it was: it is not cut meanwhile. */
static void cut_while_committed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct fb_source_job *cut = fb_source_job_new(FB_SOURCE_SETATTR, "from");
    struct ask open, rename, commit;

    put_object(b, "from", 2 * PART_BYTES);
    begin(b, &open, open_job("from", O_WRONLY));
    wait_for(&open.done);
    handle = open.job->handle;
    assert_int_equal(end(&open), 0);
    assert_int_equal(now(b, write_job(handle, 2 * PART_BYTES, 10)), 0);
    hold(b, "PUT", "to");
    begin(b, &rename, rename_job("from", "to"));
    wait_for(&b->held);
    begin(b, &commit, commit_job(handle));
    cut->handle = handle;
    cut->set = FB_SET_SIZE;
    assert_int_equal(now(b, cut), -ENOTSUP);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    /* What it was to be added to is elsewhere now. */
    assert_true(end(&commit) < 0);
    check_size(b, "from", -1);
    check_size(b, "to", 2 * PART_BYTES);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* Who has opened a file to replace it, and written nothing, does not empty what another has written
 * since. Writing makes it count again. */
static void opened_while_written(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *idle = open_new(b, "file"), *busy = open_new(b, "file");
    struct ask commit;

    assert_int_equal(now(b, write_job(busy, 0, 10)), 0);
    assert_int_equal(now(b, commit_job(busy)), 0);
    begin(b, &commit, commit_job(idle));
    wait_for(&commit.done);
    assert_int_equal(commit.job->attr.mode, 0);
    assert_int_equal(end(&commit), 0);
    check_seen(b, "PUT file,");
    check_size(b, "file", 10);
    assert_int_equal(now(b, write_job(idle, 0, 3)), 0);
    assert_int_equal(now(b, commit_job(idle)), 0);
    check_size(b, "file", 3);
    assert_int_equal(now(b, close_job(idle)), 0);
    assert_int_equal(now(b, close_job(busy)), 0);
}

/* What nobody has written to is an empty file, and what was cut to nothing is, too. */
static void empty_files(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "empty"), *other = open_new(b, "cut");
    struct fb_source_job *cut = fb_source_job_new(FB_SOURCE_SETATTR, "cut");

    assert_int_equal(now(b, commit_job(handle)), 0);
    check_size(b, "empty", 0);
    assert_int_equal(now(b, close_job(handle)), 0);
    cut->handle = other;
    cut->set = FB_SET_SIZE;
    assert_int_equal(now(b, cut), 0);
    handle = open_new(b, "cut");
    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    assert_int_equal(now(b, commit_job(other)), 0);
    check_size(b, "cut", 0);
    assert_int_equal(now(b, close_job(handle)), 0);
    assert_int_equal(now(b, close_job(other)), 0);
}

/* A new file that was renamed to a name nobody had does not replace who has it by now. */
static void rename_to_taken(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "from");

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    assert_int_equal(now(b, exclusive_rename_job("from", "to")), 0);
    put_object(b, "to", 5);
    assert_int_equal(now(b, commit_job(handle)), -EEXIST);
    check_size(b, "to", 5);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* An answer that tells no tag is none. */
static void put_without_tag(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "a");

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    fault(b, "PUT", "a", 200);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "PUT a,PUT a,");
    check_size(b, "a", 10);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* What somebody else has put there since we looked is neither copied nor deleted. */
static void renamed_is_another(void **state)
{
    struct bucket *b = *state;
    struct ask rename;

    put_object(b, "from", 5);
    hold(b, "HEAD", "from");
    begin(b, &rename, rename_job("from", "to"));
    wait_for(&b->held);
    put_object(b, "from", 6);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), -ESTALE);
    check_seen(b, "PUT to,");
    check_size(b, "from", 6);
    check_size(b, "to", -1);
}

/* What somebody else puts there once it was copied is not deleted; all else is moved. */
static void overtaken(struct bucket *b, enum conditions conditions, const char *method,
                      const char *key)
{
    struct ask rename;

    set_conditions(b, conditions);
    put_object(b, "dir/file", 5);
    put_object(b, "dir/other", 7);
    hold(b, method, key);
    begin(b, &rename, rename_job("dir", "to"));
    wait_for(&b->held);
    put_object(b, "dir/file", 6);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), -ESTALE);
    check_size(b, "to/file", 5);
    check_size(b, "to/other", 7);
    check_size(b, "dir/file", 6);
    check_size(b, "dir/other", -1);
}

static void overtaken_after_copy(void **state)
{
    overtaken(*state, IGNORED, "PUT", "to/file");
}

static void overtaken_after_look(void **state)
{
    overtaken(*state, HEEDED, "HEAD", "dir/file");
}

/* A server that refuses the condition deletes without. */
static void rename_unconditional(void **state)
{
    struct bucket *b = *state;

    set_conditions(b, REFUSED);
    put_object(b, "from", 5);
    assert_int_equal(now(b, rename_job("from", "to")), 0);
    check_seen(b, "PUT to,DELETE from,DELETE from,");
    assert_int_equal(now(b, rename_job("to", "from")), 0);
    check_seen(b, "PUT from,DELETE to,");
    check_size(b, "from", 5);
    check_size(b, "to", -1);
}

/* A name that was new when it was opened: an object of another's is there by now. All who write it
 * hear that it is gone. */
static void unlink_of_written(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handles[2];

    for (unsigned i = 0; i < FB_ARRAY_SIZE(handles); i++) {
        handles[i] = open_new(b, "file");
        assert_int_equal(now(b, write_job(handles[i], 0, 10)), 0);
    }
    put_object(b, "file", 5);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_UNLINK, "file")), 0);
    check_seen(b, "DELETE file,");
    check_size(b, "file", -1);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(handles); i++) {
        assert_int_equal(now(b, commit_job(handles[i])), 0);
        assert_int_equal(now(b, close_job(handles[i])), 0);
    }
    check_seen(b, "");
}

/* What appears in this moment is deleted after it, not before. */
static void unlink_while_committed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask commit, unlink;

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    begin(b, &unlink, fb_source_job_new(FB_SOURCE_UNLINK, "file"));
    atomic_store(&b->released, true);
    assert_int_equal(end(&commit), 0);
    assert_int_equal(end(&unlink), 0);
    check_seen(b, "PUT file,DELETE file,");
    check_size(b, "file", -1);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* What is closed meanwhile waits, and appears when the name is there after all. */
static void commit_while_unlinked(void **state)
{
    for (int status = 204; status <= 403; status += 403 - 204) {
        struct bucket *b = *state;
        struct fb_source_handle *handle = open_new(b, "file");
        struct ask commit, unlink;

        assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
        atomic_store(&b->held, false);
        atomic_store(&b->released, false);
        fault(b, "DELETE", "file", status);
        hold(b, "DELETE", "file");
        begin(b, &unlink, fb_source_job_new(FB_SOURCE_UNLINK, "file"));
        wait_for(&b->held);
        begin(b, &commit, commit_job(handle));
        atomic_store(&b->released, true);
        assert_int_equal(end(&unlink), status == 403 ? -EACCES : 0);
        assert_int_equal(end(&commit), 0);
        check_seen(b, status == 403 ? "DELETE file,PUT file," : "DELETE file,");
        check_size(b, "file", status == 403 ? 10 : -1);
        assert_int_equal(now(b, close_job(handle)), 0);
    }
}

/* A server that lists all it has, whatever it was asked for: nothing of it is touched. */
static void foreign_keys(void **state)
{
    struct bucket *b = *state;

    put_object(b, "directory/file", 5);
    put_object(b, "e", 5);
    set_lists(b, ALL_WIDE);
    assert_int_equal(now(b, rename_job("directory", "to")), -EIO);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_RMDIR, "directory")), -EIO);
    set_lists(b, ALL);
    assert_int_equal(now(b, rename_job("directory", "to")), -EIO);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "directory")), -EIO);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_OPENDIR, "directory")), -EIO);
    check_seen(b, "");
}

static struct fb_source_job *readdir_job(struct fb_source_handle *handle, uint64_t cookie)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_READDIR, NULL);

    job->handle = handle;
    job->cookie = cookie;
    return job;
}

/* A page that cannot be used, and comes before anybody asks for it, is no end of the directory. */
static void broken_page(void **state)
{
    struct bucket *b = *state;
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_OPENDIR, "directory");
    struct fb_source_handle *handle;
    struct ask ask;
    unsigned pages = 0;

    put_object(b, "directory/file", 5);
    put_object(b, "directory/name", 5);
    put_object(b, "e", 5);
    set_lists(b, ALL_BEHIND);
    begin(b, &ask, job);
    wait_for(&ask.done);
    handle = job->handle;
    assert_int_equal(end(&ask), 0);
    assert_int_equal(now(b, readdir_job(handle, 0)), 0);
    while (pages == 0) {
        pthread_mutex_lock(&b->lock);
        pages = b->pages;
        pthread_mutex_unlock(&b->lock);
    }
    /* By now it has come, most likely. */
    set_lists(b, ASKED);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "directory/file")), 0);
    assert_int_equal(now(b, readdir_job(handle, 1)), -EIO);
    assert_int_equal(now(b, readdir_job(handle, 1)), -EIO);
    job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);
    job->handle = handle;
    assert_int_equal(now(b, job), 0);
}

/* A cache disk that fails is no reason not to write. */
static void journal_fails(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");

    assert_int_equal(now(b, write_job(handle, 0, 2 * PART_BYTES)), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "POST file,PUT file,PUT file,POST file,");
    check_size(b, "file", 2 * PART_BYTES);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* One that hangs holds up an upload for a while, and nothing else. */
static void journal_hangs(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask write;

    put_object(b, "other", 5);
    fb_test_disk_hang(true, true);
    begin(b, &write, write_job(handle, 0, 2 * PART_BYTES));
    fb_test_disk_wait(&fb_test_disk.syncs);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), 0);
    assert_int_equal(end(&write), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "POST file,PUT file,PUT file,POST file,");
    assert_int_equal(now(b, close_job(handle)), 0);
    /* Nor does it hold up the end. */
    fb_source_close(fb_steal(b->source));
    assert_false(fb_test_disk_trespassed());
}

/* An upload is asked for when that is written down, and has parts when its id is on the disk. */
static void journal_first(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask write;

    put_object(b, "other", 5);
    fb_test_disk_hang(true, true);
    begin(b, &write, write_job(handle, 0, 2 * PART_BYTES));
    fb_test_disk_wait(&fb_test_disk.syncs);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), 0);
    check_seen(b, "");
    fb_test_disk_hang(false, true);
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), 0);
    check_seen(b, "POST file,");
    fb_test_disk_hang(false, false);
    assert_int_equal(end(&write), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "PUT file,PUT file,POST file,");
    assert_int_equal(fb_s3_journal_count(b->journal), 0);
    assert_int_equal(now(b, close_job(handle)), 0);
    assert_false(fb_test_disk_trespassed());
}

/* An upload that waits for the disk is given up: before it was asked for, and when it has an id. */
static void closed_while_recorded(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *asked = open_new(b, "asked"), *begun = open_new(b, "begun");
    struct ask first, second;

    fb_test_disk_hang(false, true);
    begin(b, &first, write_job(begun, 0, 2 * PART_BYTES));
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    begin(b, &second, write_job(asked, 0, 2 * PART_BYTES));
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), -ENOENT);
    fb_source_close(fb_steal(b->source));
    assert_int_equal(end(&first), -ESHUTDOWN);
    assert_int_equal(end(&second), -ESHUTDOWN);
    check_seen(b, "POST begun,DELETE begun,");
    assert_int_equal(fb_s3_journal_count(b->journal), 0);
    assert_false(fb_test_disk_trespassed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commit_after_write, setup, teardown),
        cmocka_unit_test_setup_teardown(write_after_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(closed_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(commit_while_renamed, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_while_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_while_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(open_while_moved, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_while_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(put_without_tag, setup, teardown),
        cmocka_unit_test_setup_teardown(opened_while_written, setup, teardown),
        cmocka_unit_test_setup_teardown(empty_files, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_to_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(renamed_is_another, setup, teardown),
        cmocka_unit_test_setup_teardown(overtaken_after_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(overtaken_after_look, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_unconditional, setup, teardown),
        cmocka_unit_test_setup_teardown(unlink_of_written, setup, teardown),
        cmocka_unit_test_setup_teardown(unlink_while_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(commit_while_unlinked, setup, teardown),
        cmocka_unit_test_setup_teardown(foreign_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_page, setup, teardown),
        cmocka_unit_test_setup_teardown(journal_fails, setup_without_disk, teardown),
        cmocka_unit_test_setup_teardown(journal_hangs, setup_impatient, teardown),
        cmocka_unit_test_setup_teardown(journal_first, setup_patient, teardown),
        cmocka_unit_test_setup_teardown(closed_while_recorded, setup_patient, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
