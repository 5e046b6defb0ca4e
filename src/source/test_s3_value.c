#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "core/clock.h"
#include "source/s3_value.h"

static void check_size(const char *text, int code, uint64_t expect)
{
    uint64_t size = 7;

    assert_int_equal(fb_s3_parse_size(text, strlen(text), &size), code);
    assert_int_equal(size, code ? 7 : expect);
}

static void test_sizes(void **state)
{
    (void)state;
    check_size("0", 0, 0);
    check_size("0012", 0, 12);
    check_size("9223372036854775807", 0, INT64_MAX);
    check_size("9223372036854775808", -EBADMSG, 0);
    check_size("99999999999999999999999", -EBADMSG, 0);
    check_size("", -EBADMSG, 0);
    check_size("-1", -EBADMSG, 0);
    check_size("+1", -EBADMSG, 0);
    check_size(" 1", -EBADMSG, 0);
    check_size("1 ", -EBADMSG, 0);
    check_size("0x1", -EBADMSG, 0);
}

/* Every second that matters, against the C library. */
static void test_times(void **state)
{
    struct fb_rand rand = {.state = 1};

    (void)state;
    for (int i = 0; i < 20000; i++) {
        time_t seconds = (time_t)fb_rand_below(&rand, 9214646400); /* to the end of 2261 */
        int64_t iso_ns = -1, http_ns = -1;
        char text[64];
        struct tm tm;

        gmtime_r(&seconds, &tm);
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.999Z", &tm);
        assert_int_equal(fb_s3_parse_time(text, strlen(text), &iso_ns), 0);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        assert_int_equal(fb_s3_parse_http_time(text, strlen(text), &http_ns), 0);
        assert_int_equal(iso_ns, seconds * FB_NS_PER_S);
        assert_int_equal(http_ns, iso_ns);
    }
}

static void test_bad_times(void **state)
{
    const char *good[] = {"2024-02-29T00:00:00Z", "2026-11-15T15:36:54.1Z",
                          "2026-11-15T15:36:54.123456789Z", "2016-12-31T23:59:60Z"};
    const char *bad[] = {"",
                         "2026-11-15",
                         "2026-11-15T15:36:54",
                         "2026-11-15T15:36:54.Z",
                         "2026-11-15T15:36:54.1234567890Z",
                         "2026-11-15T15:36:54+00:00",
                         "2026-11-15 15:36:54Z",
                         "2026-13-15T15:36:54Z",
                         "2026-00-15T15:36:54Z",
                         "2026-11-31T15:36:54Z",
                         "2026-11-00T15:36:54Z",
                         "2023-02-29T00:00:00Z",
                         "2100-02-29T00:00:00Z",
                         "2026-11-15T24:36:54Z",
                         "2026-11-15T15:60:54Z",
                         "2026-11-15T15:36:61Z",
                         "1969-12-31T23:59:59Z",
                         "2262-01-01T00:00:00Z",
                         "2026-11-15T15:36:54Zx",
                         "x026-11-15T15:36:54Z"};
    const char *bad_http[] = {"",
                              "Sun, 15 Nov 2026 15:36:54",
                              "Sun, 15 Nov 2026 15:36:54 UTC",
                              "sun, 15 Nov 2026 15:36:54 GMT",
                              "Sun, 15 Noo 2026 15:36:54 GMT",
                              "Sun, 5 Nov 2026 15:36:54 GMT",
                              "Sunday, 15-Nov-26 15:36:54 GMT",
                              "Sun, 31 Nov 2026 15:36:54 GMT"};
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(good); i++)
        assert_int_equal(fb_s3_parse_time(good[i], strlen(good[i]), &ns), 0);
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++)
        assert_int_equal(fb_s3_parse_time(bad[i], strlen(bad[i]), &ns), -EBADMSG);
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad_http); i++)
        assert_int_equal(fb_s3_parse_http_time(bad_http[i], strlen(bad_http[i]), &ns), -EBADMSG);
}

static void check_etag(const char *text, const char *expect)
{
    char etag[FB_S3_ETAG_MAX + 1];

    if (!expect) {
        assert_int_equal(fb_s3_parse_etag(text, strlen(text), etag), -EBADMSG);
        return;
    }
    assert_int_equal(fb_s3_parse_etag(text, strlen(text), etag), 0);
    assert_string_equal(etag, expect);
}

static void test_etags(void **state)
{
    uint8_t md5[16];
    char text[FB_S3_ETAG_MAX + 4];

    (void)state;
    check_etag("\"abc-2\"", "abc-2");
    check_etag("W/\"abc\"", "abc");
    check_etag("abc", "abc");
    check_etag("\"\"", "");
    check_etag("", "");
    check_etag("\"a b\"", NULL);
    check_etag("\"a\"b\"", NULL);
    check_etag("\"", NULL);
    check_etag("a\r\nX: y", NULL);
    memset(text, 'x', sizeof text);
    text[FB_S3_ETAG_MAX + 1] = '\0';
    check_etag(text, NULL);
    text[FB_S3_ETAG_MAX] = '\0';
    check_etag(text, text);

    assert_true(fb_s3_etag_md5("49f68a5c8493ec2c0bf489821c21fc3B", md5));
    assert_int_equal(md5[0], 0x49);
    assert_int_equal(md5[15], 0x3b);
    assert_false(fb_s3_etag_md5("49f68a5c8493ec2c0bf489821c21fc3b-2", md5));
    assert_false(fb_s3_etag_md5("49f68a5c8493ec2c0bf489821c21fc3g", md5));
    assert_false(fb_s3_etag_md5("", md5));
}

static void test_versions(void **state)
{
    const int64_t now_ns = 1794756600 * FB_NS_PER_S;
    struct fb_version a = fb_s3_version(5, now_ns, "one"), b = fb_s3_version(5, now_ns, "two");
    struct fb_version none = fb_s3_version(5, now_ns, "");

    (void)state;
    assert_int_equal(a.size, 5);
    assert_int_equal(a.mtime_ns, now_ns);
    assert_true(a.tag[1] != 0);
    assert_false(fb_version_equal(&a, &b));
    assert_true(fb_version_settled(&a, now_ns));
    assert_int_equal(none.tag[0], 0);
    assert_int_equal(none.tag[1], 0);
    assert_false(fb_version_settled(&none, now_ns));
    {
        static const char *const told[] = {"0123456789abcdef0123456789abcdef",
                                           "0123456789abcdef0123456789abcdef-1",
                                           "ffffffffffffffffffffffffffffffff-10000"};
        static const char *const hashed[] = {"one",
                                             "0123456789ABCDEF0123456789abcdef",
                                             "0123456789abcdef0123456789abcdef-",
                                             "0123456789abcdef0123456789abcdef-01",
                                             "0123456789abcdef0123456789abcdef-1x",
                                             "0123456789abcdef0000000000000000"};
        char quoted[FB_S3_ETAG_TEXT], text[FB_S3_ETAG_TEXT];

        for (size_t i = 0; i < FB_ARRAY_SIZE(told); i++) {
            struct fb_version v = fb_s3_version(5, now_ns, told[i]);

            snprintf(quoted, sizeof quoted, "\"%s\"", told[i]);
            assert_true(fb_s3_version_etag(&v, text));
            assert_string_equal(text, quoted);
        }
        for (size_t i = 0; i < FB_ARRAY_SIZE(hashed); i++) {
            struct fb_version v = fb_s3_version(5, now_ns, hashed[i]);

            assert_true(fb_version_settled(&v, now_ns));
            assert_false(fb_s3_version_etag(&v, text));
        }
    }
}

/* ---- headers --------------------------------------------------------------------------------- */

static void feed(struct fb_s3_headers *headers, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");

        len += text[len] == '\n';
        fb_s3_headers_line(headers, text, len);
        text += len;
    }
}

static void test_headers(void **state)
{
    struct fb_s3_headers h = {0};

    (void)state;
    feed(&h, "HTTP/1.1 100 Continue\r\nContent-Length: 77\r\n\r\n"
             "HTTP/1.1 206 Partial Content\r\n"
             "content-LENGTH:  10 \r\n"
             "Content-Range: bytes 5-14/100\r\n"
             "ETag: \"49f68a5c8493ec2c0bf489821c21fc3b\"\r\n"
             "Last-Modified: Sun, 15 Nov 2026 15:36:54 GMT\r\n"
             "Date: Sun, 15 Nov 2026 15:36:55 GMT\r\n"
             "x-amz-request-id: tx01-default\r\n"
             "x-amz-bucket-region: eu-west-3\r\n"
             "x-amz-server-side-encryption: AES256\r\n"
             "x-amz-checksum-crc32c: 4waSgw==\r\n"
             "x-amz-checksum-sha256: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\r\n"
             "x-amz-checksum-crc32: AAAAAA==-3\r\n"
             "Retry-After: 3\r\n"
             "X-Other: value\r\n"
             "no colon\r\n\r\n");
    assert_false(h.malformed);
    assert_true(h.has_length && h.length == 10);
    assert_true(h.has_range && h.range_first == 5 && h.range_last == 14);
    assert_true(h.has_total && h.range_total == 100);
    assert_string_equal(h.etag, "49f68a5c8493ec2c0bf489821c21fc3b");
    assert_true(h.has_mtime && h.has_date && h.date_ns == h.mtime_ns + FB_NS_PER_S);
    assert_string_equal(h.request_id, "tx01-default");
    assert_string_equal(h.region, "eu-west-3");
    assert_false(h.encrypted);
    assert_true(h.has_retry_after && h.retry_after_s == 3);
    assert_true(h.checksums[FB_S3_CRC32C].present);
    assert_memory_equal(h.checksums[FB_S3_CRC32C].bytes, "\xe3\x06\x92\x83", 4);
    assert_true(h.checksums[FB_S3_SHA256].present);
    assert_memory_equal(h.checksums[FB_S3_SHA256].bytes, "\xe3\xb0\xc4\x42", 4);
    assert_false(h.checksums[FB_S3_CRC32].present);
    assert_false(h.checksums[FB_S3_SHA1].present);
}

static bool malformed(const char *line)
{
    struct fb_s3_headers h = {0};

    feed(&h, line);
    return h.malformed;
}

static void test_bad_headers(void **state)
{
    const char *bad[] = {"Content-Length: -1",
                         "Content-Length: 1\nContent-Length: 2",
                         "Content-Length: 18446744073709551616",
                         "Content-Range: bytes 5-14",
                         "Content-Range: bytes 14-5/100",
                         "Content-Range: bytes 5-100/100",
                         "Content-Range: bytes 5/100",
                         "Content-Range: bytes -/100",
                         "Content-Range: bytes */*",
                         "Content-Range: items 5-14/100",
                         "Content-Range:",
                         "ETag: \"a b\"",
                         "Last-Modified: yesterday",
                         "x-amz-bucket-region: a b",
                         "x-amz-checksum-crc32c: 4waSgw=",
                         "x-amz-checksum-crc32c: 4waSgx==",
                         "x-amz-checksum-crc32c: 4waSg*==",
                         "x-amz-checksum-crc32c: 4waSgwAA"};
    const char *good[] = {"Content-Length: 1\nContent-Length: 1",
                          "Content-Range: bytes */100",
                          "Content-Range: bytes 5-14/*",
                          "Date: yesterday",
                          "Retry-After: Sun, 15 Nov 2026",
                          "x-amz-request-id: a b",
                          "x-amz-checksum-sha512: x",
                          ":",
                          "Content-Lengthy: x",
                          ""};
    struct fb_s3_headers h = {0};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++)
        assert_true(malformed(bad[i]));
    for (size_t i = 0; i < FB_ARRAY_SIZE(good); i++)
        assert_false(malformed(good[i]));
    feed(&h, "Content-Range: bytes */100");
    assert_true(h.has_total && !h.has_range);
    feed(&h, "x-amz-server-side-encryption: aws:kms");
    assert_true(h.encrypted);
    fb_s3_headers_line(&h, "", 0);
}

static void test_locations(void **state)
{
    const char *none[] = {"Location: /path",
                          "Location: ftp://host/",
                          "Location: http://",
                          "Location: http:///path",
                          "Location: https://name@host/",
                          "Location: http://a b/",
                          "Location: http://a\\b/",
                          "Location:"};
    char longest[FB_S3_PLACE_MAX + 64];
    struct fb_s3_headers h = {0};

    (void)state;
    feed(&h, "Location: https://bucket.s3-far.example.com:8443/key?x=1\r\n");
    assert_string_equal(h.location, "https://bucket.s3-far.example.com:8443");
    feed(&h, "HTTP/1.1 307\r\nlocation: http://[::1]:80\r\n");
    assert_string_equal(h.location, "http://[::1]:80");
    for (size_t i = 0; i < FB_ARRAY_SIZE(none); i++) {
        feed(&h, "HTTP/1.1 307\r\n");
        feed(&h, none[i]);
        assert_string_equal(h.location, "");
        assert_false(h.malformed);
    }
    for (int over = 0; over < 2; over++) {
        feed(&h, "HTTP/1.1 307\r\n");
        snprintf(longest, sizeof longest, "Location: http://%0*d/x", FB_S3_PLACE_MAX - 7 + over, 0);
        feed(&h, longest);
        assert_int_equal(strlen(h.location), over ? 0 : FB_S3_PLACE_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_times),
        cmocka_unit_test(test_bad_times),   cmocka_unit_test(test_etags),
        cmocka_unit_test(test_versions),    cmocka_unit_test(test_headers),
        cmocka_unit_test(test_bad_headers), cmocka_unit_test(test_locations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
