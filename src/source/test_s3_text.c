#include <cmocka.h>
#include <string.h>

#include "core/mem.h"
#include "source/s3_text.h"

static void test_growing(void **state)
{
    struct fb_s3_text text = {0};

    (void)state;
    assert_string_equal(fb_s3_text_string(&text), "");
    fb_s3_text_adds(&text, "");
    assert_string_equal(text.data, "");
    for (int i = 0; i < 10000; i++) {
        fb_s3_text_addc(&text, (char)('a' + i % 26));
        assert_int_equal(text.len, i + 1);
        assert_int_equal(text.data[i + 1], 0);
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(text.data[i], 'a' + i % 26);
    assert_true(fb_s3_text_ok(&text));
    fb_s3_text_free(&text);
    fb_s3_text_free(&text);
    assert_null(text.data);
}

/* Clearing keeps the memory. */
static void test_clearing(void **state)
{
    struct fb_s3_text text = {0};
    const char *data;

    (void)state;
    fb_s3_text_clear(&text);
    fb_s3_text_adds(&text, "something");
    data = text.data;
    fb_s3_text_clear(&text);
    assert_string_equal(fb_s3_text_string(&text), "");
    fb_s3_text_adds(&text, "else");
    assert_ptr_equal(text.data, data);
    assert_string_equal(text.data, "else");
    fb_s3_text_free(&text);
}

static void test_limit(void **state)
{
    FB_AUTO_FREE char *bytes = fb_alloc(FB_S3_TEXT_MAX);
    struct fb_s3_text text = {0};

    (void)state;
    assert_non_null(bytes);
    memset(bytes, 'x', FB_S3_TEXT_MAX);
    fb_s3_text_add(&text, bytes, FB_S3_TEXT_MAX);
    assert_true(fb_s3_text_ok(&text));
    fb_s3_text_addc(&text, 'y');
    assert_false(fb_s3_text_ok(&text));
    fb_s3_text_add(&text, "", 0); /* once broken, always */
    assert_false(fb_s3_text_ok(&text));
    assert_int_equal(text.len, FB_S3_TEXT_MAX);
    fb_s3_text_clear(&text);
    fb_s3_text_add(&text, bytes, SIZE_MAX);
    assert_false(fb_s3_text_ok(&text));
    fb_s3_text_clear(&text);
    fb_s3_text_addc(&text, 'z');
    assert_true(fb_s3_text_ok(&text));
    assert_string_equal(text.data, "z");
    fb_s3_text_free(&text);
}

static void test_encoding(void **state)
{
    struct fb_s3_text text = {0};

    (void)state;
    fb_s3_text_add_encoded(&text, "aZ09-_.~/ +%\xff", 13, false);
    assert_string_equal(text.data, "aZ09-_.~%2F%20%2B%25%FF");
    fb_s3_text_clear(&text);
    fb_s3_text_add_encoded(&text, "/a\0b/", 5, true);
    assert_string_equal(text.data, "/a%00b/");
    fb_s3_text_clear(&text);
    fb_s3_text_add_encoded(&text, "", 0, true);
    assert_string_equal(text.data, "");
    fb_s3_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_clearing),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_encoding),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
