#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/s3_journal.h"
#include "source/test_s3_disk.h"

#define NAME        "uploads"
#define LEFT_MAX    16
#define PATIENCE_NS (120 * FB_NS_PER_S)
#define QUEUED_MAX  (64 << 10) /* bytes that wait for the disk */

struct left {
    unsigned count;
    uint64_t tickets[LEFT_MAX];
    char ids[LEFT_MAX][32];
};

struct rig {
    struct fb_test_dir dir;
    int fd;
    struct fb_s3_journal *journal;
    struct left left;
};

static int setup(void **state)
{
    struct rig *rig = fb_alloc(sizeof *rig);

    assert_non_null(rig);
    /* In memory where possible: thousands of flushes to a disk take minutes. */
    snprintf(rig->dir.path, sizeof rig->dir.path, "/dev/shm/forebay-test-XXXXXX");
    if (!mkdtemp(rig->dir.path))
        fb_test_dir_make(&rig->dir);
    rig->fd = open(rig->dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(rig->fd >= 0);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;

    fb_test_disk_reset();
    fb_s3_journal_close(rig->journal);
    close(rig->fd);
    fb_test_dir_remove(&rig->dir);
    free(rig);
    return 0;
}

static bool note(void *arg, uint64_t ticket, const struct fb_s3_upload *upload)
{
    struct left *left = arg;

    assert_true(left->count < LEFT_MAX);
    left->tickets[left->count] = ticket;
    assert_true(strlen(upload->id) < sizeof left->ids[0]);
    memcpy(left->ids[left->count++], upload->id, strlen(upload->id) + 1);
    return true;
}

/* Opens anew, as after a crash: nothing is written at close. */
static void reopen(struct rig *rig)
{
    fb_s3_journal_close(rig->journal);
    rig->journal = NULL;
    rig->left.count = 0;
    assert_int_equal(fb_s3_journal_open(rig->fd, NAME, &rig->journal, NULL), 0);
    assert_int_equal(fb_s3_journal_left(rig->journal, note, &rig->left), 0);
}

static uint64_t begin(struct rig *rig, const char *id)
{
    const struct fb_s3_upload upload = {"https://s3", "bucket", "a/b c", id, 0};
    uint64_t ticket = 0;

    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
    assert_true(ticket > 0);
    return ticket;
}

/* What was begun is where it is to be, or cannot get there. */
static void settle(struct rig *rig, uint64_t ticket)
{
    while (fb_s3_journal_until(rig->journal, ticket, PATIENCE_NS) > 0)
        fb_sleep_ns(FB_NS_PER_MS);
}

static void expect(const struct rig *rig, unsigned count, const char *first, const char *second)
{
    assert_int_equal(rig->left.count, count);
    assert_int_equal(fb_s3_journal_count(rig->journal), count);
    if (first)
        assert_string_equal(rig->left.ids[0], first);
    if (second)
        assert_string_equal(rig->left.ids[1], second);
}

static void test_begin_and_end(void **state)
{
    struct rig *rig = *state;
    uint64_t one, two;

    reopen(rig);
    expect(rig, 0, NULL, NULL);
    one = begin(rig, "one");
    two = begin(rig, "two");
    assert_int_not_equal(one, two);
    assert_int_equal(fb_s3_journal_count(rig->journal), 2);
    assert_true(fb_s3_journal_knows(rig->journal, "one"));
    assert_true(fb_s3_journal_knows(rig->journal, "two"));
    assert_false(fb_s3_journal_knows(rig->journal, "on"));
    assert_false(fb_s3_journal_knows(rig->journal, "three"));
    reopen(rig);
    expect(rig, 2, "one", "two");
    assert_int_equal(rig->left.tickets[0], one);
    fb_s3_journal_end(rig->journal, one);
    fb_s3_journal_end(rig->journal, one);
    fb_s3_journal_end(rig->journal, 12345);
    assert_true(begin(rig, "three") > two);
    reopen(rig);
    expect(rig, 2, "two", "three");
    reopen(rig);
    expect(rig, 2, "two", "three");
    fb_s3_journal_close(NULL);
}

static bool check_bytes(void *arg, uint64_t ticket, const struct fb_s3_upload *upload)
{
    const struct fb_s3_upload *wanted = arg;

    (void)ticket;
    assert_string_equal(upload->endpoint, wanted->endpoint);
    assert_string_equal(upload->bucket, wanted->bucket);
    assert_string_equal(upload->key, wanted->key);
    assert_string_equal(upload->id, wanted->id);
    return false;
}

static bool take_asked(void *arg, uint64_t ticket, const struct fb_s3_upload *upload)
{
    uint64_t *ret_ticket = arg;

    assert_string_equal(upload->key, "a key");
    assert_null(upload->id);
    assert_int_equal(upload->asked_s, 1794771255);
    *ret_ticket = ticket;
    return true;
}

/* One that was asked for has no id yet. */
static void test_asked(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_upload upload = {"e", "b", "a key", NULL, 1794771255};
    uint64_t ticket, found = 0;

    reopen(rig);
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
    for (int i = 0; i < 2; i++) {
        fb_s3_journal_close(rig->journal);
        assert_int_equal(fb_s3_journal_open(rig->fd, NAME, &rig->journal, NULL), 0);
        assert_int_equal(fb_s3_journal_left(rig->journal, take_asked, &found), 0);
        assert_int_equal(found, ticket);
    }
    fb_s3_journal_end(rig->journal, ticket);
    assert_int_equal(fb_s3_journal_count(rig->journal), 0);
}

static void test_any_byte(void **state)
{
    struct rig *rig = *state;
    char key[FB_S3_JOURNAL_FIELD_MAX + 2];
    struct fb_s3_upload upload = {"http://[::1]:80", "b", key, "2~x+/=% \n", 0};
    uint64_t ticket;

    reopen(rig);
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (char)(1 + i % 255);
    key[FB_S3_JOURNAL_FIELD_MAX + 1] = '\0';
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), -ENAMETOOLONG);
    key[FB_S3_JOURNAL_FIELD_MAX] = '\0';
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
    upload.id = "";
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), -ENAMETOOLONG);
    upload.id = "2~x+/=% \n";
    fb_s3_journal_close(rig->journal);
    assert_int_equal(fb_s3_journal_open(rig->fd, NAME, &rig->journal, NULL), 0);
    /* Nobody's until somebody takes it. */
    assert_int_equal(fb_s3_journal_left(rig->journal, check_bytes, &upload), 0);
    rig->left.count = 0;
    assert_int_equal(fb_s3_journal_left(rig->journal, note, &rig->left), 0);
    assert_int_equal(rig->left.count, 1);
    assert_int_equal(fb_s3_journal_left(rig->journal, note, &rig->left), 0);
    assert_int_equal(rig->left.count, 1);
    assert_int_equal(fb_s3_journal_count(rig->journal), 1);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static char image[4096];
static size_t image_len;

static void take_image(struct rig *rig)
{
    fb_s3_journal_close(rig->journal);
    rig->journal = NULL;
    assert_non_null(fb_test_dir_read(&rig->dir, NAME, image, sizeof image));
    image_len = strlen(image);
}

static void put_image(struct rig *rig, const char *bytes, size_t len)
{
    FILE *f = fopen(fb_test_dir_path(&rig->dir, NAME), "we");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* What a prefix of begin one, begin two, end one, begin three must give. */
static void check_prefix(const struct rig *rig, size_t len)
{
    size_t ends[8] = {0}, lines = 0;
    static const char *const first[] = {NULL, NULL, "one", "one", "two", "two"};
    static const char *const second[] = {NULL, NULL, NULL, "two", NULL, "three"};
    static const unsigned counts[] = {0, 0, 1, 2, 1, 2};

    for (size_t i = 0; i < image_len; i++) {
        if (image[i] == '\n')
            ends[lines++] = i + 1;
    }
    assert_int_equal(lines, 5);
    for (lines = 0; lines < 5 && ends[lines] <= len;)
        lines++;
    expect(rig, counts[lines], first[lines], second[lines]);
}

static void fill(struct rig *rig)
{
    uint64_t one;

    reopen(rig);
    one = begin(rig, "one");
    settle(rig, one); /* what follows is appended */
    begin(rig, "two");
    fb_s3_journal_end(rig->journal, one);
    begin(rig, "three");
    take_image(rig);
}

/* A crash may cut the file anywhere; the whole lines before count, and it can be appended to. */
static void test_truncated(void **state)
{
    struct rig *rig = *state;

    fill(rig);
    for (size_t len = 0; len <= image_len; len++) {
        unsigned count;

        put_image(rig, image, len);
        reopen(rig);
        check_prefix(rig, len);
        count = rig->left.count;
        begin(rig, "four");
        reopen(rig);
        assert_int_equal(rig->left.count, count + 1);
        assert_string_equal(rig->left.ids[count], "four");
    }
}

/* A flipped bit costs the line it is in, or with a line's end that line and the next. */
static void test_flipped_bits(void **state)
{
    struct rig *rig = *state;
    char bytes[sizeof image];

    fill(rig);
    for (size_t bit = 0; bit < 8 * image_len; bit++) {
        unsigned known = 0;

        memcpy(bytes, image, image_len);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        put_image(rig, bytes, image_len);
        reopen(rig);
        for (unsigned i = 0; i < rig->left.count; i++) {
            const char *id = rig->left.ids[i];

            assert_true(!strcmp(id, "one") || !strcmp(id, "two") || !strcmp(id, "three"));
            known += strcmp(id, "one") != 0;
        }
        assert_true(known >= 1);
    }
}

static void test_noise(void **state)
{
    struct rig *rig = *state;
    struct fb_rand rand = {.state = 5};
    char bytes[600];

    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)fb_rand_below(&rand, round % 2 ? 256 : 40);
        put_image(rig, bytes, sizeof bytes);
        reopen(rig);
        expect(rig, 0, NULL, NULL);
    }
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_compacts(void **state)
{
    struct rig *rig = *state;
    struct stat st;
    uint64_t most = 0;

    reopen(rig);
    begin(rig, "stays");
    for (int i = 0; i < 15000; i++) {
        const struct fb_s3_upload upload = {"e", "b", "k", "id", 0};
        uint64_t ticket;

        assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
        if (i % 100 == 0)
            settle(rig, ticket);
        fb_s3_journal_end(rig->journal, ticket);
        if (i % 100 == 0) {
            assert_int_equal(stat(fb_test_dir_path(&rig->dir, NAME), &st), 0);
            most = (uint64_t)st.st_size > most ? (uint64_t)st.st_size : most;
        }
    }
    assert_true(most > FB_S3_JOURNAL_ROOM / 2 && most <= FB_S3_JOURNAL_ROOM + QUEUED_MAX);
    assert_int_equal(stat(fb_test_dir_path(&rig->dir, NAME), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    reopen(rig);
    expect(rig, 1, "stays", NULL);
    assert_int_equal(stat(fb_test_dir_path(&rig->dir, NAME), &st), 0);
    assert_true(st.st_size < 200);
}

static void test_bounded(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_upload upload = {"e", "b", "k", "id", 0};
    uint64_t ticket = 0;

    reopen(rig);
    for (int i = 0; i < FB_S3_UPLOADS_MAX; i++)
        assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), -EAGAIN);
    fb_s3_journal_end(rig->journal, ticket);
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
}

/* A line that was written in part, for want of space, spoils no other, and is written later. */
static void test_no_space(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_upload upload = {"e", "b", "k", "lost", 0};
    struct rlimit old, tight;
    struct stat st;
    uint64_t ticket;

    reopen(rig);
    settle(rig, begin(rig, "before"));
    assert_int_equal(stat(fb_test_dir_path(&rig->dir, NAME), &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = (rlim_t)st.st_size + 20;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &ticket), 0);
    settle(rig, ticket);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    begin(rig, "after");
    reopen(rig);
    expect(rig, 3, "before", "lost");
    assert_string_equal(rig->left.ids[2], "after");
}

/* ---- a disk that hangs ----------------------------------------------------------------------- */

static void count_moved(void *arg)
{
    atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

/* Whoever tells the journal of something, or asks it, goes on; what it holds has a bound. */
static void test_disk_hangs(void **state)
{
    struct rig *rig = *state;
    _Atomic unsigned moved = 0;
    struct fb_s3_journal_watch watch = {.moved = count_moved, .arg = &moved};
    uint64_t one, two, three;
    int64_t now_ns;
    struct stat st;

    reopen(rig);
    one = begin(rig, "one");
    settle(rig, one);
    fb_s3_journal_watch(rig->journal, &watch);
    fb_test_disk_hang(true, true);
    two = begin(rig, "two");
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    assert_true(fb_s3_journal_until(rig->journal, two, PATIENCE_NS) > 0);
    assert_int_equal(fb_s3_journal_until(rig->journal, two, 0), 0);
    /* Who comes later waits less. */
    fb_sleep_ns(2 * FB_NS_PER_MS);
    now_ns = fb_now_ns();
    three = begin(rig, "three");
    assert_true(fb_s3_journal_until(rig->journal, three, PATIENCE_NS) < now_ns + PATIENCE_NS);
    fb_s3_journal_end(rig->journal, one);
    for (int i = 0; i < 20000; i++)
        fb_s3_journal_end(rig->journal, begin(rig, "many"));
    assert_true(fb_s3_journal_knows(rig->journal, "three"));
    assert_int_equal(fb_s3_journal_count(rig->journal), 2);
    assert_int_equal(fb_s3_journal_left(rig->journal, note, &rig->left), 0);
    assert_int_equal(rig->left.count, 0);
    fb_test_disk_hang(false, false);
    settle(rig, three);
    assert_int_equal(fb_s3_journal_until(rig->journal, two, PATIENCE_NS), 0);
    fb_s3_journal_unwatch(rig->journal, &watch);
    assert_true(atomic_load(&moved) > 0);
    assert_false(fb_test_disk_trespassed());
    assert_int_equal(stat(fb_test_dir_path(&rig->dir, NAME), &st), 0);
    assert_true(st.st_size <= QUEUED_MAX);
    fb_test_disk_reset();
    reopen(rig);
    expect(rig, 2, "two", "three");
}

/* What is told meanwhile is written in the order in which it was told. */
static void test_order(void **state)
{
    struct rig *rig = *state;
    static const char *const wanted[] = {"forebay-uploads 1 ", "begin 1 ", "begin 2 ", "end 1 ",
                                         "begin 3 ",           "end 2 ",   "begin 4 "};
    const char *line = image;
    uint64_t one, two;

    reopen(rig);
    one = begin(rig, "one");
    settle(rig, one);
    fb_test_disk_hang(true, true);
    two = begin(rig, "two");
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    fb_s3_journal_end(rig->journal, one);
    begin(rig, "three");
    fb_s3_journal_end(rig->journal, two);
    begin(rig, "four");
    fb_test_disk_hang(false, false);
    take_image(rig);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(wanted); i++) {
        assert_memory_equal(line, wanted[i], strlen(wanted[i]));
        line = strchr(line, '\n');
        assert_non_null(line++);
    }
    assert_string_equal(line, "");
    assert_false(fb_test_disk_trespassed());
}

/* One that was asked for need only outlive the process. */
static void test_asked_is_written(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_upload upload = {"e", "b", "a key", NULL, 1794771255};
    uint64_t asked, begun;

    reopen(rig);
    settle(rig, begin(rig, "one"));
    fb_test_disk_hang(false, true);
    assert_int_equal(fb_s3_journal_begin(rig->journal, &upload, &asked), 0);
    settle(rig, asked);
    begun = begin(rig, "two");
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    assert_true(fb_s3_journal_until(rig->journal, begun, PATIENCE_NS) > 0);
}

static unsigned threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    const struct dirent *d;
    unsigned count = 0;

    assert_non_null(dir);
    while ((d = readdir(dir))) /* NOLINT: a stream of our own */
        count += d->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Closing ends; the thread does when the disk lets it, and what it had is freed. */
static void test_left_behind(void **state)
{
    struct rig *rig = *state;
    unsigned before = threads();
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;

    reopen(rig);
    fb_test_disk_hang(true, true);
    begin(rig, "one");
    fb_test_disk_wait(&fb_test_disk.syncs);
    assert_false(fb_s3_journal_close(fb_steal(rig->journal)));
    fb_test_disk_reset();
    while (threads() > before) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    reopen(rig);
    expect(rig, 1, "one", NULL);
}

static void test_cannot_open(void **state)
{
    struct rig *rig = *state;
    struct fb_error err = {0};

    assert_int_equal(mkdir(fb_test_dir_path(&rig->dir, NAME), 0700), 0);
    assert_true(fb_s3_journal_open(rig->fd, NAME, &rig->journal, &err) < 0);
    assert_non_null(strstr(err.text, "cannot read the journal of uploads uploads"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_begin_and_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_any_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_noise, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compacts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_space, setup, teardown),
        cmocka_unit_test_setup_teardown(test_disk_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asked_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cannot_open, setup, teardown),
    };

    /* Damage is what most of this is about: it would be said thousands of times. */
    if (fb_log_open(NULL, FB_LOG_ERROR, 0, 0) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
