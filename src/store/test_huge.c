/*
 * store/huge.h: whatever becomes of the pages, the bytes are the same for all who have mapped them,
 * those who write meanwhile among them; and nothing waits for ever.
 */
#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/attr.h"
#include "core/thread.h"
#include "store/huge.h"

#define STRETCHES 6
#define TAIL      (64u << 10) /* no whole stretch */
#define BYTES     (STRETCHES * FB_HUGE_BYTES + TAIL)
#define WORDS     (BYTES / sizeof(uint64_t))

struct fixture {
    int fd;
    uint8_t *map;         /* as the daemon's */
    const uint8_t *other; /* as a client's: read only, wherever it lies */
    uint8_t *room;
    size_t room_bytes;
    struct fb_huge *huge;
    _Atomic bool enough; /* relaxed: only says when to stop */
};

static uint64_t word(uint64_t round, uint64_t i)
{
    return (round << 32 | i) * 0x9e3779b97f4a7c15u;
}

static int set_up(void **state)
{
    static struct fixture f;

    memset(&f, 0, sizeof f);
    f.fd = memfd_create("test-huge", MFD_CLOEXEC);
    f.room_bytes = BYTES + FB_HUGE_BYTES;
    if (f.fd < 0 || ftruncate(f.fd, BYTES) < 0)
        return -1;
    f.room = mmap(NULL, f.room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f.room == MAP_FAILED)
        return -1;
    f.map = (uint8_t *)fb_align_up((uintptr_t)f.room, FB_HUGE_BYTES);
    f.map = mmap(f.map, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, f.fd, 0);
    f.other = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, f.fd, 0);
    if (f.map == MAP_FAILED || f.other == MAP_FAILED)
        return -1;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    fb_huge_destroy(f->huge);
    munmap((void *)f->other, BYTES);
    munmap(f->room, f->room_bytes);
    close(f->fd);
    return 0;
}

static void fill(struct fixture *f, uint64_t round)
{
    uint64_t *words = (uint64_t *)f->map;

    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = word(round, i);
}

static void expect(const struct fixture *f, uint64_t round)
{
    const uint64_t *ours = (const uint64_t *)f->map, *theirs = (const uint64_t *)f->other;
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < WORDS; i++)
        wrong += ours[i] != word(round, i) || theirs[i] != word(round, i);
    assert_int_equal(wrong, 0);
}

static void wait_until_made(struct fixture *f)
{
    while (fb_huge_waiting(f->huge) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Dear ones wait, and are made although nobody asks again; the rest is not touched. */
static void test_later(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fb_huge_create(f->map, BYTES, 0, &f->huge), 0);
    fill(f, 1);
    fb_huge_want(f->huge, FB_HUGE_BYTES + 4096, 3 * FB_HUGE_BYTES, true);
    fb_huge_want(f->huge, FB_HUGE_BYTES, FB_HUGE_BYTES + 1, true);
    fb_huge_want(f->huge, BYTES - TAIL, BYTES, true);
    assert_true(fb_huge_waiting(f->huge) <= 2);
    wait_until_made(f);
    expect(f, 1);
    fill(f, 2);
    expect(f, 2);
}

/* Where they cost nothing worth mentioning, none waits. */
static void test_at_once(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fb_huge_create(f->map, BYTES, INT64_MAX, &f->huge), 0);
    fb_huge_want(f->huge, 0, BYTES, true);
    assert_int_equal(fb_huge_waiting(f->huge), 0);
    fill(f, 3);
    expect(f, 3);
}

static void *write_on(void *arg)
{
    struct fixture *f = arg;
    _Atomic uint64_t *words = (_Atomic uint64_t *)f->map;

    /* One word of each page. */
    for (uint64_t n = 0; !atomic_load_explicit(&f->enough, memory_order_relaxed); n++) {
        for (uint64_t i = 0; i < WORDS; i += 512)
            atomic_store_explicit(&words[i], word(n, i), memory_order_relaxed);
    }
    return NULL;
}

/* Somebody wants more all the time and never is there a quiet moment: it goes on all the same. The
 * last that was written is there, however often pages were moved beneath it. */
static void test_busy(void **state)
{
    struct fixture *f = *state;
    pthread_t writer;

    assert_int_equal(fb_huge_create(f->map, BYTES, 0, &f->huge), 0);
    fill(f, 4);
    assert_int_equal(fb_thread_start(&writer, "writer", write_on, f), 0);
    for (uint64_t i = 0; i < STRETCHES; i++)
        fb_huge_want(f->huge, i * FB_HUGE_BYTES, (i + 1) * FB_HUGE_BYTES, true);
    wait_until_made(f);
    atomic_store_explicit(&f->enough, true, memory_order_relaxed);
    pthread_join(writer, NULL);
    for (uint64_t i = 0; i < WORDS; i += 512)
        ((uint64_t *)f->map)[i] = word(4, i);
    expect(f, 4);
}

/* With most of it waiting it can be closed. */
static void test_close(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(fb_huge_create(f->map, BYTES, 0, &f->huge), 0);
    fb_huge_want(f->huge, 0, BYTES, true);
    fb_huge_destroy(f->huge);
    f->huge = NULL;
    fill(f, 5);
    expect(f, 5);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_later),
        TEST(test_at_once),
        TEST(test_busy),
        TEST(test_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
