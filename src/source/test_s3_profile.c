#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rand.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/s3_profile.h"

static int parse(struct fb_s3_profile *profile, const char *text, const char *name, bool config)
{
    struct fb_error err = {0};
    int r = fb_s3_profile_parse(profile, text, strlen(text), name, config, "FILE", &err);

    assert_int_equal(r < 0, err.text[0] != 0);
    assert_null(strstr(err.text, "SECRET"));
    return r;
}

/* Key and secret of profile `name` in a credentials file. */
static void check(const char *text, const char *name, const char *key, const char *secret)
{
    struct fb_s3_profile profile = {0};

    assert_int_equal(parse(&profile, text, name, false), 0);
    assert_string_equal(fb_s3_text_string(&profile.access_key), key);
    assert_string_equal(fb_s3_text_string(&profile.secret), secret);
    fb_s3_profile_free(&profile);
}

static void test_credentials(void **state)
{
    (void)state;
    check("[default]\naws_access_key_id=AK\naws_secret_access_key=SK\n", "default", "AK", "SK");
    check("\xef\xbb\xbf[default]\r\n\taws_access_key_id =\tAK \r\n\taws_secret_access_key= "
          "SK/+= \r\n",
          "default", "AK", "SK/+=");
    check("[a]\naws_access_key_id=1\n[ b ] # two\nAWS_ACCESS_KEY_ID = 2\n[c]\naws_access_key_id=3",
          "b", "2", "");
    check("[a]\naws_access_key_id=1\n[b]\naws_access_key_id=2\n[a]\naws_secret_access_key=3\n", "a",
          "1", "3");
    check("# [a]\n; x\n[a] ; c\n#aws_access_key_id=0\naws_access_key_id=1 # comment\n"
          "aws_secret_access_key=S#;K ; comment",
          "a", "1", "S#;K");
    check("aws_access_key_id=1\n[a]\naws_access_key_id 2\n=3\nnonsense\n[unclosed\n"
          "aws_access_key_id=4",
          "a", "", "");
    check("[profile a]\naws_access_key_id=1\n", "a", "", "");
    check("", "default", "", "");
    check("[a]", "a", "", "");
    check("[a]\naws_access_key_id=\naws_secret_access_key=", "a", "", "");
}

static void test_config(void **state)
{
    static const char text[] = "[default]\nregion = eu-west-1\ns3 =\n"
                               "  endpoint_url = http://nested\n  addressing_style = path\n"
                               "output = json\n"
                               "[profile  x]\n  region = eu-west-2\n  endpoint_url = http://e:1\n"
                               "    region = nested\n  credential_process = /bin/p \"a b\" # c\n"
                               "[profile \"my one\"]\nregion=eu-west-3\nrole_arn=arn:r\n"
                               "source_profile = default\n"
                               "[x]\nregion = wrong\n"
                               "[profile default]\nregion = eu-west-4\n"
                               "[sso-session s]\nsso_start_url = https://w\n";
    struct fb_s3_profile profile = {0};

    (void)state;
    assert_int_equal(parse(&profile, text, "default", true), 0);
    assert_string_equal(fb_s3_text_string(&profile.region), "eu-west-4");
    assert_string_equal(fb_s3_text_string(&profile.endpoint_url), "");
    assert_int_equal(profile.sso.len, 0);
    fb_s3_profile_free(&profile);
    assert_int_equal(parse(&profile, text, "x", true), 0);
    assert_string_equal(fb_s3_text_string(&profile.region), "eu-west-2");
    assert_string_equal(fb_s3_text_string(&profile.endpoint_url), "http://e:1");
    assert_string_equal(fb_s3_text_string(&profile.credential_process), "/bin/p \"a b\" # c");
    fb_s3_profile_free(&profile);
    assert_int_equal(parse(&profile, text, "my one", true), 0);
    assert_string_equal(fb_s3_text_string(&profile.region), "eu-west-3");
    assert_string_equal(fb_s3_text_string(&profile.role_arn), "arn:r");
    fb_s3_profile_free(&profile);
    assert_int_equal(parse(&profile, text, "none", true), 0);
    assert_false(profile.found);
    fb_s3_profile_free(&profile);
}

static void test_refused(void **state)
{
    static const char zero[] = "[a]\naws_secret_access_key=SECRET\0x\n";
    struct fb_s3_profile profile = {0};
    struct fb_error err = {0};

    (void)state;
    assert_int_equal(parse(&profile, "[a]\naws_secret_access_key=SECRET two\n", "a", false),
                     -EINVAL);
    assert_int_equal(parse(&profile, "[a]\naws_session_token=SECRET\x7f\n", "a", false), -EINVAL);
    assert_int_equal(parse(&profile, "[a]\naws_access_key_id=SECRET\xc3\xa9\n", "a", false),
                     -EINVAL);
    assert_int_equal(fb_s3_profile_parse(&profile, zero, sizeof zero - 1, "a", false, "FILE", &err),
                     -EINVAL);
    assert_string_equal(err.text, "FILE is not a text file");
    fb_s3_profile_free(&profile);
}

/* Session tokens know no limit. */
static void test_long_lines(void **state)
{
    struct fb_s3_text text = {0};
    struct fb_s3_profile profile = {0};

    (void)state;
    fb_s3_text_adds(&text, "[a]\naws_session_token = ");
    for (int i = 0; i < 100000; i++)
        fb_s3_text_addc(&text, (char)('a' + i % 26));
    fb_s3_text_adds(&text, "\nregion = r\n");
    assert_int_equal(parse(&profile, text.data, "a", false), 0);
    assert_int_equal(profile.session_token.len, 100000);
    assert_string_equal(profile.region.data, "r");
    fb_s3_profile_free(&profile);
    fb_s3_text_free(&text);
}

/* Whatever the bytes, parsing ends, and what it gives has no control characters. */
static void test_noise(void **state)
{
    static const char pieces[][24] = {"[a]",  "[profile a]", "\n", "=",  "aws_access_key_id", " ",
                                      "\r\n", "#",           "\t", "\"", "aws_session_token", "]"};
    struct fb_rand rand = {.state = 9};

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct fb_s3_text text = {0};
        struct fb_s3_profile profile = {0};
        struct fb_error err = {0};
        int r;

        for (uint64_t i = fb_rand_below(&rand, 40); i > 0; i--) {
            if (fb_rand_below(&rand, 5) == 0)
                fb_s3_text_addc(&text, (char)fb_rand_below(&rand, 256));
            else
                fb_s3_text_adds(&text, pieces[fb_rand_below(&rand, FB_ARRAY_SIZE(pieces))]);
        }
        r = fb_s3_profile_parse(&profile, fb_s3_text_string(&text), text.len, "a", round & 1, "F",
                                &err);
        assert_true(r == 0 || r == -EINVAL);
        for (size_t i = 0; r == 0 && i < profile.access_key.len; i++)
            assert_true(profile.access_key.data[i] > ' ');
        fb_s3_profile_free(&profile);
        fb_s3_text_free(&text);
    }
}

static void test_files(void **state)
{
    struct fb_s3_text text = {0};
    struct fb_test_dir dir;
    FB_AUTO_FREE char *big = fb_alloc(FB_S3_FILE_MAX + 2);

    (void)state;
    fb_test_dir_make(&dir);
    fb_test_dir_write(&dir, "f", "hello");
    assert_int_equal(fb_s3_file_read(fb_test_dir_path(&dir, "f"), &text), 0);
    assert_string_equal(text.data, "hello");
    assert_int_equal(fb_s3_file_read(fb_test_dir_path(&dir, "none"), &text), -ENOENT);
    assert_int_equal(fb_s3_file_read(dir.path, &text), -EISDIR);
    assert_int_equal(fb_s3_file_read("/dev/null", &text), 0);
    assert_int_equal(text.len, 0);
    assert_int_equal(mkfifo(fb_test_dir_path(&dir, "fifo"), 0600), 0);
    assert_int_equal(fb_s3_file_read(fb_test_dir_path(&dir, "fifo"), &text), 0);
    assert_non_null(big);
    memset(big, 'x', FB_S3_FILE_MAX + 1);
    fb_test_dir_write(&dir, "big", big);
    assert_int_equal(fb_s3_file_read(fb_test_dir_path(&dir, "big"), &text), -EFBIG);
    fb_s3_text_free(&text);
    fb_test_dir_remove(&dir);
}

static void test_environment(void **state)
{
    const char *const env[] = {"A=1", "AB=2", "EMPTY=", "A=3", "NONE", NULL};

    (void)state;
    assert_string_equal(fb_s3_env(env, "A"), "1");
    assert_string_equal(fb_s3_env(env, "AB"), "2");
    assert_null(fb_s3_env(env, "EMPTY"));
    assert_null(fb_s3_env(env, "NONE"));
    assert_null(fb_s3_env(NULL, "A"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_credentials), cmocka_unit_test(test_config),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_noise),       cmocka_unit_test(test_files),
        cmocka_unit_test(test_environment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
