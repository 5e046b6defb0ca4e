#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/mount_options.h"

#define WORDS_MAX 16

struct line {
    char text[512];
    char *argv[WORDS_MAX + 1];
    int argc;
};

/* Words are separated by blanks. */
static void split(const char *text, struct line *ret)
{
    char *save = NULL;

    snprintf(ret->text, sizeof ret->text, "%s", text);
    ret->argc = 0;
    for (char *w = strtok_r(ret->text, " ", &save); w && ret->argc < WORDS_MAX;
         w = strtok_r(NULL, " ", &save))
        ret->argv[ret->argc++] = w;
    ret->argv[ret->argc] = NULL;
}

static void expect_words(char **words, int count, const char *expected)
{
    char got[1024] = "";

    for (int i = 0; i < count; i++) {
        size_t used = strlen(got);

        snprintf(got + used, sizeof got - used, "%s%s", i ? " " : "", words[i]);
    }
    assert_null(words[count]);
    assert_string_equal(got, expected);
}

static const struct fb_setting table[] = {
    {.name = "a"},           {.name = "b"},     {.name = "d"},
    {.name = "a\\b"},        {.name = "a\\"},   {.name = "metadata-ttl"},
    {.name = "allow-other"}, {.name = "fault"}, {.name = "cache"},
};

static void expect_refusal(const char *text, const char *sentence)
{
    struct fb_error err = {""};
    struct line line;
    char **words = NULL;
    int count = 0;

    split(text, &line);
    assert_int_equal(
        cli_mount_options(table, FB_ARRAY_SIZE(table), line.argc, line.argv, &count, &words, &err),
        -ENOENT);
    assert_non_null(strstr(err.text, sentence));
}

static void expect(const char *text, const char *expected)
{
    struct fb_error err = {""};
    struct line line;
    char **words = NULL;
    int count = 0;
    int rc;

    split(text, &line);
    rc = cli_mount_options(table, FB_ARRAY_SIZE(table), line.argc, line.argv, &count, &words, &err);
    assert_int_equal(rc, 0);
    expect_words(words, count, expected);
    free(words);
}

static void test_options(void **state)
{
    (void)state;
    expect("mount /s /m", "mount /s /m");
    expect("mount /s /m -o a", "mount /s /m --a");
    expect("mount -o a,b=c,d /s /m", "mount --a --b=c --d /s /m");
    expect("mount -oa,b=c /s", "mount --a --b=c /s");
    expect("mount -o a /s -o b /m", "mount --a /s --b /m");
    expect("mount -o ro,defaults,noauto,x-systemd.automount,_netdev,nofail /s",
           "mount --read-only /s");
    expect("mount -o ,,a,,b, /s", "mount --a --b /s");
    expect("mount -o fault=latency=1ms\\,error=1% /s", "mount --fault=latency=1ms,error=1% /s");
    expect("mount -o a\\\\b /s", "mount --a\\b /s");
    expect("mount -o a\\", "mount --a\\");
    expect("mount -o no-cache", "mount --no-cache");
    expect("mount -o allow_other,metadata_ttl=5s,fault=a_b=c_d /s",
           "mount --allow-other --metadata-ttl=5s --fault=a_b=c_d /s");
    expect("mount /s_1 /m_1 -o no_cache,_netdev", "mount /s_1 /m_1 --no-cache");
    expect("mount -o rw", "mount --no-read-only");
    expect("mount -o noexec,nosuid,nodev /s", "mount --no-exec /s");
    expect("mount -o users,exec,sync,dirsync /s", "mount --exec /s");
    expect("mount -o a,rw,b /s", "mount --a --no-read-only --b /s");
}

static void test_unknown(void **state)
{
    (void)state;
    expect_refusal("mount /s -o bogus", "-o bogus: no such option; --help lists");
    expect_refusal("mount /s -o a,bog_us=5,b", "-o bog_us: no such option");
    expect_refusal("mount /s -oalow_other", "-o alow_other: no such option; did you mean -o allow");
    expect_refusal("mount /s -o no_thing", "-o no_thing: no such option");
    expect_refusal("mount /s -o remount,ro", "-o remount: a mount of Forebay keeps its options");
}

/* What is after `--` is a name, whatever it looks like; a lone -o is for the flags to refuse. */
static void test_not_options(void **state)
{
    (void)state;
    expect("mount -- -o rw", "mount -- -o rw");
    expect("mount /s -o", "mount /s -o");
    expect("mount", "mount");
}

static void expect_helper(const char *text, const char *expected, bool expected_fake)
{
    struct fb_error err = {""};
    struct line line;
    char **words = NULL;
    int count = 0;
    bool fake;

    split(text, &line);
    assert_int_equal(cli_mount_helper_args(line.argc, line.argv, &count, &words, &fake, &err), 0);
    expect_words(words, count, expected);
    assert_int_equal(fake, expected_fake);
    free(words);
}

static void test_helper(void **state)
{
    (void)state;
    expect_helper("/sbin/mount.forebay /s /m -o rw", "mount /s /m -o ", false);
    expect_helper("mount.forebay /s /m -o rw,a=rw,b", "mount /s /m -o a=rw,b", false);
    expect_helper("mount.forebay /s /m -o a,rw", "mount /s /m -o a,", false);
    expect_helper("mount.forebay /s /m -sn -v -N /ns -t forebay.x -o ro", "mount /s /m -o ro",
                  false);
    expect_helper("mount.forebay /s /m -f", "mount /s /m", true);
    expect_helper("mount.forebay /s /m -sfn", "mount /s /m", true);
    expect_helper("mount.forebay --help", "mount --help", false);
    expect_helper("mount.forebay", "mount", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_not_options),
        cmocka_unit_test(test_helper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
