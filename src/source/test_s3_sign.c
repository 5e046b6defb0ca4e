#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "source/s3_sign.h"

#define S(n)        ((n)*FB_NS_PER_S)
#define DAY_2013    S(1369353600LL) /* 2013-05-24 00:00:00 */
#define MOMENT_2026 S(1794756600LL) /* 2026-11-15 15:30:00 */

/* Who signs in the examples of the S3 API reference, "Authenticating Requests: Using the
 * Authorization Header". */
static const struct fb_s3_identity example = {
    .access_key = "AKIAIOSFODNN7EXAMPLE",
    .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    .region = "us-east-1",
};

static const struct fb_s3_identity other = {
    .access_key = "AKTEST",
    .secret = "SKTEST0123456789",
    .session_token = "tok/en+==",
    .region = "default",
};

static int setup(void **state)
{
    return fb_s3_signer_create((struct fb_s3_signer **)state);
}

static int teardown(void **state)
{
    fb_s3_signer_destroy(*state);
    return 0;
}

/* The Authorization header of a request of the examples. */
static const char *authorize(struct fb_s3_signer *signer, struct fb_s3_request request)
{
    struct fb_s3_signed out;

    request.host = "examplebucket.s3.amazonaws.com";
    request.wall_ns = DAY_2013 + 999;
    if (!request.payload_hash)
        request.payload_hash = FB_S3_EMPTY_PAYLOAD;
    assert_int_equal(fb_s3_sign(signer, &example, &request, &out), 0);
    assert_string_equal(out.date, "20130524T000000Z");
    return out.authorization;
}

#define AUTHORIZATION(names, signature)                                                 \
 "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request," \
 "SignedHeaders=" names ",Signature=" signature

/* The four examples, with the signatures printed there. */
static void test_published_examples(void **state)
{
    const struct fb_s3_pair range = {"range", "bytes=0-9"};
    const struct fb_s3_pair put[] = {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                                     {"date", "Fri, 24 May 2013 00:00:00 GMT"}};
    const struct fb_s3_pair lifecycle = {"lifecycle", NULL};
    const struct fb_s3_pair list[] = {{"prefix", "J"}, {"max-keys", "2"}};
    char welcome[FB_S3_SHA256_TEXT];

    assert_string_equal(
        authorize(*state,
                  (struct fb_s3_request){
                      .method = "GET", .path = "/test.txt", .headers = &range, .header_count = 1}),
        AUTHORIZATION("host;range;x-amz-content-sha256;x-amz-date",
                      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
    assert_int_equal(fb_s3_sha256(*state, "Welcome to Amazon S3.", 21, welcome), 0);
    assert_string_equal(
        authorize(*state, (struct fb_s3_request){.method = "PUT",
                                                 .path = "/test$file.text",
                                                 .headers = put,
                                                 .header_count = 2,
                                                 .payload_hash = welcome}),
        AUTHORIZATION("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
    assert_string_equal(
        authorize(*state,
                  (struct fb_s3_request){
                      .method = "GET", .path = "/", .query = &lifecycle, .query_count = 1}),
        AUTHORIZATION("host;x-amz-content-sha256;x-amz-date",
                      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
    assert_string_equal(
        authorize(
            *state,
            (struct fb_s3_request){.method = "GET", .path = "/", .query = list, .query_count = 2}),
        AUTHORIZATION("host;x-amz-content-sha256;x-amz-date",
                      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

static const struct fb_s3_pair odd_query[] = {
    {"prefix", "a b+/\xc3\xa9&="},
    {"list-type", "2"},
    {"delimiter", "/"},
    {"a", "2"},
    {"a-b", "1"},
    {"a", "10"},
    {"uploads", NULL},
};
static const struct fb_s3_pair odd_headers[] = {
    {"x-amz-meta-a", "  two \t  words "},
    {"if-match", "\"e\""},
};
static const struct fb_s3_request odd = {
    .method = "GET",
    .host = "127.0.0.1:8000",
    .path = "/b/a b+c=d!*'()/\xc3\xa9/../x//~-_.",
    .query = odd_query,
    .query_count = FB_ARRAY_SIZE(odd_query),
    .headers = odd_headers,
    .header_count = FB_ARRAY_SIZE(odd_headers),
    .payload_hash = FB_S3_UNSIGNED_PAYLOAD,
    .wall_ns = MOMENT_2026,
};

/* Everything that has to be encoded, sorted or trimmed, and a session token; the signature was
 * computed with another implementation of the same rules (Python's hmac and urllib). */
static void test_odd_names(void **state)
{
    struct fb_s3_signed out;

    assert_int_equal(fb_s3_sign(*state, &other, &odd, &out), 0);
    assert_string_equal(out.path, "/b/a%20b%2Bc%3Dd%21%2A%27%28%29/%C3%A9/../x//~-_.");
    assert_string_equal(out.query, "a=10&a=2&a-b=1&delimiter=%2F&list-type=2&"
                                   "prefix=a%20b%2B%2F%C3%A9%26%3D&uploads=");
    assert_string_equal(out.date, "20261115T153000Z");
    assert_string_equal(
        out.authorization,
        "AWS4-HMAC-SHA256 Credential=AKTEST/20261115/default/s3/aws4_request,SignedHeaders=host;"
        "if-match;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-security-token,"
        "Signature=b66660243df08832e6763cc097ccc4bffa5f39eb26ccf7ca1c34c063559e6d32");
}

/* All bytes there are; computed in the same way. */
static void test_every_byte(void **state)
{
    const struct fb_s3_identity who = {.access_key = "A", .secret = "B", .region = "r"};
    char bytes[257] = "/";
    const struct fb_s3_pair query = {"k", bytes + 1};
    const struct fb_s3_request request = {
        .method = "POST",
        .host = "h",
        .path = bytes,
        .query = &query,
        .query_count = 1,
        .payload_hash = FB_S3_EMPTY_PAYLOAD,
        .wall_ns = MOMENT_2026,
    };
    struct fb_s3_signed out;

    for (int i = 1; i < 256; i++)
        bytes[i] = (char)i;
    assert_int_equal(fb_s3_sign(*state, &who, &request, &out), 0);
    assert_non_null(
        strstr(out.authorization,
               ",Signature=0d456c8b79b5d5ce0a3175e3c0a086c81b2d0c769c4deab308dc98f18b16a6bc"));
}

static void sign_odd(struct fb_s3_signer *signer, const struct fb_s3_identity *who, int64_t wall_ns,
                     char ret[512])
{
    struct fb_s3_request request = odd;
    struct fb_s3_signed out;

    request.wall_ns = wall_ns;
    assert_int_equal(fb_s3_sign(signer, who, &request, &out), 0);
    assert_true(strlen(out.authorization) < 512);
    memcpy(ret, out.authorization, strlen(out.authorization) + 1);
}

/* A kept key is used only for the day, region and secret it was made of. */
static void test_kept_key(void **state)
{
    struct fb_s3_identity who[4] = {other, other, other, other};
    char kept[512], fresh[512];

    who[1].region = "eu-west-3";
    who[2].secret = "another";
    who[3].access_key = "AKOTHER";
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            int64_t wall_ns = MOMENT_2026 + S(86400LL) * (i / 4);
            struct fb_s3_signer *signer;

            assert_int_equal(fb_s3_signer_create(&signer), 0);
            sign_odd(signer, &who[i % 4], wall_ns, fresh);
            fb_s3_signer_destroy(signer);
            sign_odd(*state, &who[i % 4], wall_ns, kept);
            assert_string_equal(kept, fresh);
        }
    }
}

static void test_not_signed(void **state)
{
    struct fb_s3_signed out;

    assert_int_equal(fb_s3_sign(*state, &other, &odd, &out), 0);
    assert_int_equal(fb_s3_sign(*state, NULL, &odd, &out), 0);
    assert_string_equal(out.path, "/b/a%20b%2Bc%3Dd%21%2A%27%28%29/%C3%A9/../x//~-_.");
    assert_string_equal(out.authorization, "");
}

static void test_limits(void **state)
{
    struct fb_s3_pair pairs[FB_S3_PAIRS_MAX + 1];
    struct fb_s3_request request = odd;
    struct fb_s3_identity who = other;
    struct fb_s3_signed out;

    for (size_t i = 0; i < FB_ARRAY_SIZE(pairs); i++)
        pairs[i] = (struct fb_s3_pair){"n", "v"};
    request.query = pairs;
    request.query_count = FB_S3_PAIRS_MAX;
    request.headers = pairs;
    request.header_count = FB_S3_PAIRS_MAX;
    assert_int_equal(fb_s3_sign(*state, &who, &request, &out), 0);
    request.query_count++;
    assert_int_equal(fb_s3_sign(*state, &who, &request, &out), -E2BIG);
    request.query_count--;
    request.header_count++;
    assert_int_equal(fb_s3_sign(*state, &who, &request, &out), -E2BIG);
    who.region = "a-region-whose-name-is-longer-than-any-that-ever-was-by-quite-a-bit";
    assert_int_equal(fb_s3_sign(*state, &who, &odd, &out), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_published_examples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kept_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_signed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
