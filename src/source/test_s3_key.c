#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "source/s3_key.h"

/* ---- keys ------------------------------------------------------------------------------------ */

static void check_url(const char *url, const char *bucket, const char *prefix)
{
    FB_AUTO_FREE char *got_bucket = NULL;
    FB_AUTO_FREE char *got_prefix = NULL;
    struct fb_error err = {0};

    assert_int_equal(fb_s3_url_parse(url, &got_bucket, &got_prefix, &err), 0);
    assert_string_equal(got_bucket, bucket);
    assert_string_equal(got_prefix, prefix);
}

static void check_bad_url(const char *url, int code)
{
    char *bucket = NULL, *prefix = NULL;
    struct fb_error err = {0};

    assert_int_equal(fb_s3_url_parse(url, &bucket, &prefix, &err), code);
    assert_null(bucket);
    assert_null(prefix);
    assert_true(err.text[0] != 0);
}

static void test_urls(void **state)
{
    char url[FB_S3_KEY_MAX + 64] = "s3://b/";

    (void)state;
    check_url("s3://bucket", "bucket", "");
    check_url("s3://bucket/", "bucket", "");
    check_url("s3://my.bucket-1_x/a", "my.bucket-1_x", "a/");
    check_url("s3://bucket/a/b/", "bucket", "a/b/");
    check_url("s3://bucket//a b+%20", "bucket", "/a b+%20/");
    check_bad_url("", -EINVAL);
    check_bad_url("s3:/bucket", -EINVAL);
    check_bad_url("s3://", -EINVAL);
    check_bad_url("s3:///prefix", -EINVAL);
    check_bad_url("s3://../prefix", -EINVAL);
    check_bad_url("s3://buck et/prefix", -EINVAL);
    check_bad_url("s3://bucket?x", -EINVAL);
    check_bad_url("https://bucket/prefix", -EINVAL);
    memset(url + 7, 'x', FB_S3_KEY_MAX);
    check_bad_url(url, -ENAMETOOLONG);
    url[7 + FB_S3_KEY_MAX - 1] = '\0';
    {
        FB_AUTO_FREE char *bucket = NULL;
        FB_AUTO_FREE char *prefix = NULL;

        assert_int_equal(fb_s3_url_parse(url, &bucket, &prefix, NULL), 0);
        assert_int_equal(strlen(prefix), FB_S3_KEY_MAX);
    }
}

static void test_names(void **state)
{
    char name[FB_NAME_MAX + 1];

    (void)state;
    memset(name, 'x', sizeof name);
    assert_true(fb_s3_name_ok("a", 1));
    assert_true(fb_s3_name_ok("...", 3));
    assert_true(fb_s3_name_ok(".a", 2));
    assert_true(fb_s3_name_ok("\xff\n", 2));
    assert_true(fb_s3_name_ok(name, FB_NAME_MAX));
    assert_false(fb_s3_name_ok(name, FB_NAME_MAX + 1));
    assert_false(fb_s3_name_ok("", 0));
    assert_false(fb_s3_name_ok(".", 1));
    assert_false(fb_s3_name_ok("..", 2));
    assert_false(fb_s3_name_ok("a\0b", 3));
    assert_false(fb_s3_name_ok("a/b", 3));
}

static void check_key(const char *prefix, const char *path, bool directory, const char *expect)
{
    char key[FB_S3_KEY_MAX + 1];

    assert_int_equal(fb_s3_key_make(prefix, path, directory, key), (ssize_t)strlen(expect));
    assert_string_equal(key, expect);
}

static void test_paths(void **state)
{
    char path[FB_S3_KEY_MAX + 2], key[FB_S3_KEY_MAX + 1];

    (void)state;
    check_key("", "", true, "");
    check_key("p/", "", true, "p/");
    check_key("p/", "a/b", false, "p/a/b");
    check_key("p/", "a/b", true, "p/a/b/");
    assert_int_equal(fb_s3_key_make("", "a//b", false, key), -EINVAL);
    assert_int_equal(fb_s3_key_make("", "a/", false, key), -EINVAL);
    assert_int_equal(fb_s3_key_make("", "/a", false, key), -EINVAL);
    assert_int_equal(fb_s3_key_make("", "a/../b", false, key), -EINVAL);
    for (size_t i = 0; i < sizeof path; i++)
        path[i] = i % 200 == 199 ? '/' : 'x';
    path[FB_S3_KEY_MAX] = '\0';
    assert_int_equal(fb_s3_key_make("", path, false, key), FB_S3_KEY_MAX);
    assert_int_equal(fb_s3_key_make("", path, true, key), -ENAMETOOLONG);
    assert_int_equal(fb_s3_key_make("p/", path, false, key), -ENAMETOOLONG);
    memset(path, 'x', FB_NAME_MAX + 1);
    path[FB_NAME_MAX + 1] = '\0';
    assert_int_equal(fb_s3_key_make("", path, false, key), -ENAMETOOLONG);
}

static void test_inodes(void **state)
{
    (void)state;
    assert_true(fb_s3_ino("", 0) > 1);
    assert_int_not_equal(fb_s3_ino("a", 1), fb_s3_ino("a/", 2));
    assert_int_equal(fb_s3_ino("abc", 2), fb_s3_ino("ab", 2));
}

static void check_decode(const char *text, const char *expect, size_t expect_len)
{
    char copy[64];

    snprintf(copy, sizeof copy, "%s", text);
    assert_int_equal(fb_s3_decode(copy, strlen(text)), (ssize_t)expect_len);
    assert_memory_equal(copy, expect, expect_len);
}

static void test_decode(void **state)
{
    const char *bad[] = {"%", "a%2", "%zz", "%2x", "%%20", "a%"};

    (void)state;
    check_decode("", "", 0);
    check_decode("a%20b+c%2Bd%2be", "a b c+d+e", 9);
    check_decode("%C3%A9/%00%25%ff", "\xc3\xa9/\0%\xff", 6);
    check_decode("q!*'()~-_.", "q!*'()~-_.", 10);
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++) {
        char copy[8];

        snprintf(copy, sizeof copy, "%s", bad[i]);
        assert_int_equal(fb_s3_decode(copy, strlen(bad[i])), -EBADMSG);
    }
}

/* ---- listings against a model ---------------------------------------------------------------- */

#define KEYS_MAX    40
#define KEY_BYTES   12
#define ENTRIES_MAX 64
#define ROUNDS      4000

struct named {
    char name[FB_NAME_MAX + 1];
    bool directory;
    uint64_t size;
};

struct shown {
    struct named all[ENTRIES_MAX];
    unsigned count;
};

static int show(void *arg, const struct fb_s3_entry *entry)
{
    struct shown *shown = arg;
    struct named *named = &shown->all[shown->count++];

    assert_true(shown->count <= ENTRIES_MAX);
    assert_int_equal(strlen(entry->name), entry->name_len);
    memcpy(named->name, entry->name, entry->name_len + 1);
    named->directory = entry->directory;
    named->size = entry->version.size;
    return 0;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

struct bucket {
    char keys[KEYS_MAX][KEY_BYTES];
    unsigned count;
};

/* Names that are beginnings of each other are likely, and so are bytes around '/'. */
static void fill(struct bucket *bucket, struct fb_rand *rand)
{
    static const char bytes[] = "aaab!-./0/";
    unsigned count = (unsigned)fb_rand_below(rand, KEYS_MAX + 1);

    bucket->count = 0;
    for (unsigned i = 0; i < count; i++) {
        char *key = bucket->keys[bucket->count];
        size_t len = 1 + fb_rand_below(rand, KEY_BYTES - 1);

        memset(key, 0, KEY_BYTES);
        for (size_t k = 0; k < len; k++)
            key[k] = bytes[fb_rand_below(rand, sizeof bytes - 1)];
        bucket->count++;
    }
    qsort(bucket->keys, bucket->count, KEY_BYTES, compare_text);
    count = 0;
    for (unsigned i = 0; i < bucket->count; i++) {
        if (i == 0 || strcmp(bucket->keys[i], bucket->keys[count - 1]) != 0)
            memmove(bucket->keys[count++], bucket->keys[i], KEY_BYTES);
    }
    bucket->count = count;
}

static void expect_one(struct shown *shown, const char *name, size_t len, bool directory,
                       uint64_t size)
{
    struct named *named = NULL;

    if (!fb_s3_name_ok(name, len))
        return;
    for (unsigned i = 0; i < shown->count; i++) {
        if (strlen(shown->all[i].name) == len && !memcmp(shown->all[i].name, name, len))
            named = &shown->all[i];
    }
    if (named && !directory)
        return;
    if (!named)
        named = &shown->all[shown->count++];
    memset(named, 0, sizeof *named);
    memcpy(named->name, name, len);
    named->directory = directory;
    named->size = size;
}

/* What the directory `prefix` holds, from all keys at once. */
static void expect(const struct bucket *bucket, const char *prefix, struct shown *ret_shown)
{
    ret_shown->count = 0;
    for (unsigned i = 0; i < bucket->count; i++) {
        const char *rest = bucket->keys[i] + strlen(prefix);
        size_t len;

        if (strncmp(bucket->keys[i], prefix, strlen(prefix)) != 0 || !*rest)
            continue;
        len = strcspn(rest, "/");
        expect_one(ret_shown, rest, len, rest[len] == '/', rest[len] ? 0 : 100 + i);
    }
    qsort(ret_shown->all, ret_shown->count, sizeof ret_shown->all[0], compare_named);
}

/* How a server behaves. */
struct server {
    unsigned page;       /* entries in a page */
    bool repeats;        /* the last common prefix of a page comes again in the next one */
    bool prefixes_first; /* in the body */
    bool breaks_off;     /* now and then a page is asked for twice */
    bool no_delimiter;
};

struct line {
    const char *key;
    size_t len;
    bool prefix;
    uint64_t size;
};

/* The listing as a server makes it, before it is cut into pages. */
static unsigned list(const struct bucket *bucket, const char *prefix, bool no_delimiter,
                     struct line *ret_lines)
{
    unsigned count = 0;

    for (unsigned i = 0; i < bucket->count; i++) {
        const char *key = bucket->keys[i];
        const char *slash = strchr(key + strlen(prefix), '/');
        struct line line = {.key = key, .len = strlen(key), .size = 100 + i};

        if (strncmp(key, prefix, strlen(prefix)) != 0)
            continue;
        if (slash && !no_delimiter) {
            line.prefix = true;
            line.len = (size_t)(slash - key) + 1;
        }
        if (count > 0 && line.prefix && ret_lines[count - 1].prefix &&
            ret_lines[count - 1].len == line.len &&
            !memcmp(ret_lines[count - 1].key, key, line.len))
            continue;
        ret_lines[count++] = line;
    }
    return count;
}

static void send_kind(struct fb_s3_listing *listing, const struct line *lines, unsigned count,
                      bool prefixes)
{
    for (unsigned i = 0; i < count; i++) {
        struct fb_version version = {.size = lines[i].size};

        if (lines[i].prefix != prefixes)
            continue;
        if (prefixes)
            assert_int_equal(fb_s3_listing_add_prefix(listing, lines[i].key, lines[i].len), 0);
        else
            assert_int_equal(fb_s3_listing_add(listing, lines[i].key, lines[i].len, &version), 0);
    }
}

static void send_page(struct fb_s3_listing *listing, const struct line *lines, unsigned count,
                      const struct server *server)
{
    send_kind(listing, lines, count, server->prefixes_first);
    send_kind(listing, lines, count, !server->prefixes_first);
}

static void serve(const struct bucket *bucket, const char *prefix, const struct server *server,
                  struct fb_s3_listing *listing, struct fb_rand *rand)
{
    struct line lines[KEYS_MAX];
    unsigned count = list(bucket, prefix, server->no_delimiter, lines);

    for (unsigned i = 0; i < count || i == 0;) {
        unsigned from = server->repeats && i > 0 && lines[i - 1].prefix ? i - 1 : i;
        unsigned end = i + server->page < count ? i + server->page : count;

        if (server->breaks_off && fb_rand_below(rand, 3) == 0) {
            send_page(listing, lines + from, (end - from) / 2, server);
            fb_s3_listing_forget_page(listing);
        }
        send_page(listing, lines + from, end - from, server);
        assert_int_equal(fb_s3_listing_end_page(listing, end == count), 0);
        i = end > 0 ? end : 1;
    }
}

/* Entries come out ordered as if each had a slash at its end. */
static void check_order(const struct shown *shown)
{
    char last[FB_NAME_MAX + 2] = "", name[FB_NAME_MAX + 2];

    for (unsigned i = 0; i < shown->count; i++) {
        snprintf(name, sizeof name, "%s/", shown->all[i].name);
        assert_true(strcmp(last, name) < 0);
        memcpy(last, name, sizeof last);
    }
}

static void test_against_model(void **state)
{
    static const char *const prefixes[] = {"", "", "a/", "aa/", "b/a/", "/", "./"};
    struct fb_rand rand = {.state = 4};
    unsigned most = 0;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        const char *prefix = prefixes[fb_rand_below(&rand, FB_ARRAY_SIZE(prefixes))];
        uint64_t how = fb_rand_u64(&rand);
        const struct server server = {
            .page = 1 + (unsigned)fb_rand_below(&rand, 8),
            .repeats = how & 1,
            .prefixes_first = how & 2,
            .breaks_off = how & 4,
            .no_delimiter = (how & 0xf0) == 0,
        };
        struct shown got = {.count = 0}, want;
        struct fb_s3_listing_stats stats;
        struct fb_s3_listing *listing;
        struct bucket bucket;

        fill(&bucket, &rand);
        assert_int_equal(fb_s3_listing_create(prefix, show, &got, &listing), 0);
        serve(&bucket, prefix, &server, listing, &rand);
        fb_s3_listing_stats(listing, &stats);
        fb_s3_listing_destroy(listing);
        expect(&bucket, prefix, &want);
        check_order(&got);
        qsort(got.all, got.count, sizeof got.all[0], compare_named);
        assert_int_equal(got.count, want.count);
        assert_int_equal(stats.entries, want.count);
        for (unsigned i = 0; i < want.count; i++) {
            assert_string_equal(got.all[i].name, want.all[i].name);
            assert_int_equal(got.all[i].directory, want.all[i].directory);
            assert_int_equal(got.all[i].size, want.all[i].size);
        }
        most = want.count > most ? want.count : most;
    }
    assert_true(most > 10);
}

static void add_named(struct fb_s3_listing *listing, size_t len)
{
    char name[FB_NAME_MAX];
    const struct fb_version version = {.size = len};

    memset(name, '!', len);
    assert_int_equal(fb_s3_listing_add(listing, name, len, &version), 0);
}

/* The most that can be held back: every beginning of the longest name. */
static void test_longest_stack(void **state)
{
    struct fb_s3_listing *listing;
    struct fb_s3_listing_stats stats;
    struct shown got = {.count = 0};
    char name[FB_NAME_MAX + 1];

    (void)state;
    assert_int_equal(fb_s3_listing_create("", show, &got, &listing), 0);
    for (size_t len = 1; len <= FB_NAME_MAX; len++) {
        add_named(listing, len);
        assert_int_equal(fb_s3_listing_end_page(listing, false), 0);
    }
    assert_int_equal(got.count, 0);
    /* Directories of all these names follow, the longest first, and hide the files. */
    for (size_t len = FB_NAME_MAX; len > FB_NAME_MAX - ENTRIES_MAX; len--) {
        memset(name, '!', len);
        name[len] = '/';
        assert_int_equal(fb_s3_listing_add_prefix(listing, name, len + 1), 0);
        assert_int_equal(fb_s3_listing_end_page(listing, false), 0);
    }
    assert_int_equal(got.count, ENTRIES_MAX);
    fb_s3_listing_stats(listing, &stats);
    assert_int_equal(stats.hidden, ENTRIES_MAX);
    fb_s3_listing_destroy(listing);
}

static void test_invisible(void **state)
{
    struct fb_s3_listing *listing;
    struct fb_s3_listing_stats stats;
    struct shown got = {.count = 0};
    const struct fb_version version = {.size = 1};
    char name[FB_NAME_MAX + 3] = "d/";

    (void)state;
    memset(name + 2, 'x', FB_NAME_MAX + 1);
    assert_int_equal(fb_s3_listing_create("d/", show, &got, &listing), 0);
    assert_int_equal(fb_s3_listing_add(listing, "d/", 2, &version), 0);
    assert_int_equal(fb_s3_listing_add(listing, "d/.", 3, &version), 0);
    assert_int_equal(fb_s3_listing_add(listing, "d/..", 4, &version), 0);
    assert_int_equal(fb_s3_listing_add(listing, "d/a\0b", 5, &version), 0);
    assert_int_equal(fb_s3_listing_add(listing, name, sizeof name, &version), 0);
    assert_int_equal(fb_s3_listing_add(listing, "d/ok", 4, &version), 0);
    assert_int_equal(fb_s3_listing_add_prefix(listing, "d//", 3), 0);
    assert_int_equal(fb_s3_listing_add_prefix(listing, "d/../", 5), 0);
    assert_int_equal(fb_s3_listing_end_page(listing, true), 0);
    fb_s3_listing_stats(listing, &stats);
    assert_true(stats.marker);
    assert_int_equal(stats.invisible, 6);
    assert_int_equal(stats.entries, 1);
    assert_string_equal(got.all[0].name, "ok");
    /* Nobody asked for that: nothing of the page is taken. */
    assert_int_equal(fb_s3_listing_add(listing, "d/more", 6, &version), 0);
    assert_int_equal(fb_s3_listing_add(listing, "other", 5, &version), 0);
    assert_int_equal(fb_s3_listing_end_page(listing, true), -EBADMSG);
    assert_int_equal(got.count, 1);
    assert_int_equal(fb_s3_listing_add_prefix(listing, "e/", 2), 0);
    fb_s3_listing_forget_page(listing);
    assert_int_equal(fb_s3_listing_end_page(listing, true), 0);
    fb_s3_listing_destroy(listing);
    fb_s3_listing_destroy(NULL);
}

static int refuse(void *arg, const struct fb_s3_entry *entry)
{
    (void)entry;
    return --*(int *)arg < 0 ? -ENOSPC : 0;
}

static void test_limits(void **state)
{
    const struct fb_version version = {.size = 1};
    struct fb_s3_listing *listing;
    int room = 10;
    char name[16];

    (void)state;
    assert_int_equal(fb_s3_listing_create("", refuse, &room, &listing), 0);
    for (int i = 0; i < FB_S3_PAGE_MAX; i++) {
        snprintf(name, sizeof name, "%08d", i);
        assert_int_equal(fb_s3_listing_add(listing, name, 8, &version), 0);
    }
    assert_int_equal(fb_s3_listing_add(listing, "a", 1, &version), -EBADMSG);
    assert_int_equal(fb_s3_listing_end_page(listing, true), -ENOSPC);
    assert_int_equal(room, -1);
    fb_s3_listing_destroy(listing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),          cmocka_unit_test(test_names),
        cmocka_unit_test(test_paths),         cmocka_unit_test(test_inodes),
        cmocka_unit_test(test_decode),        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_longest_stack), cmocka_unit_test(test_invisible),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
