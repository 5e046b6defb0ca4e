/* MD5 side by side: held against OpenSSL's, for all lengths around a block, and cut anyhow. */
#include <cmocka.h>
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "source/s3_md5.h"

#define MESSAGES 40
#define PIECES   5
#define LONGEST  3000u

struct message {
    uint8_t bytes[LONGEST];
    struct iovec iov[PIECES];
    uint8_t digest[FB_S3_MD5_BYTES];
};

static void cut(struct message *m, size_t length, struct fb_rand *dice)
{
    size_t at = 0;

    for (unsigned i = 0; i < PIECES; i++) {
        size_t n = i + 1 < PIECES ? fb_rand_below(dice, length - at + 1) : length - at;

        m->iov[i] = (struct iovec){.iov_base = m->bytes + at, .iov_len = n};
        at += n;
    }
}

static void check(const struct message *m, size_t length)
{
    uint8_t digest[EVP_MAX_MD_SIZE];

    assert_int_equal(EVP_Digest(m->bytes, length, digest, NULL, EVP_md5(), NULL), 1);
    assert_memory_equal(m->digest, digest, FB_S3_MD5_BYTES);
}

/* The same length for all, or one of its own for each; fewer messages than lanes, and more. */
static void one_turn(size_t length, bool alike, unsigned count, struct fb_rand *dice)
{
    FB_AUTO_FREE struct message *messages = fb_alloc_array(MESSAGES, sizeof *messages);
    struct fb_s3_md5 all[MESSAGES];
    size_t lengths[MESSAGES];

    assert_non_null(messages);
    for (unsigned i = 0; i < count; i++) {
        struct message *m = &messages[i];

        lengths[i] = alike ? length : fb_rand_below(dice, LONGEST + 1);
        for (size_t b = 0; b < lengths[i]; b++)
            m->bytes[b] = (uint8_t)fb_rand_u64(dice);
        cut(m, lengths[i], dice);
        all[i] = (struct fb_s3_md5){.iov = m->iov, .count = PIECES, .digest = m->digest};
    }
    fb_s3_md5_all(all, count);
    for (unsigned i = 0; i < count; i++)
        check(&messages[i], lengths[i]);
}

static void test_lengths(void **state)
{
    struct fb_rand dice = {.state = 1};

    (void)state;
    for (size_t length = 0; length <= 2 * FB_S3_MD5_BLOCK + 1; length++)
        one_turn(length, true, FB_S3_MD5_LANES, &dice);
}

static void test_mixtures(void **state)
{
    struct fb_rand dice = {.state = 2};

    (void)state;
    for (unsigned count = 0; count <= MESSAGES; count++)
        one_turn(0, false, count, &dice);
}

/* Each kind of vectors that there is makes the same of it. */
static void test_kinds(void **state)
{
#if defined(__x86_64__)
    static uint8_t bytes[FB_S3_MD5_LANES][4 * FB_S3_MD5_BLOCK];
    uint32_t one[4][FB_S3_MD5_LANES] = {{0}}, other[4][FB_S3_MD5_LANES] = {{0}};
    const uint8_t *data[FB_S3_MD5_LANES];
    struct fb_rand dice = {.state = 3};

    if (!__builtin_cpu_supports("avx512vl"))
        return;
    for (unsigned i = 0; i < FB_S3_MD5_LANES; i++) {
        data[i] = bytes[i];
        for (unsigned b = 0; b < sizeof bytes[i]; b++)
            bytes[i][b] = (uint8_t)fb_rand_u64(&dice);
    }
    fb_s3_md5_blocks_avx2(one, data, 4);
    fb_s3_md5_blocks_avx512(other, data, 4);
    assert_memory_equal(one, other, sizeof one);
#endif
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_kinds),
    };

    if (!fb_s3_md5_able())
        return 77; /* without AVX2 nobody calls it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
