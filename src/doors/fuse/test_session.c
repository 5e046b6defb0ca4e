/*
 * What becomes of the buffer that a request came in: small data is copied, for larger the buffer is
 * taken over, and of a large one that is mostly empty no more is kept than the data needs.
 */
#include <cmocka.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "doors/fuse/fuse_priv.h"

#define HEADER 80
#define BUFFER (FB_FUSE_WRITE_MAX + 4096)

static char pattern(size_t i)
{
    return (char)(i * 7 % 251);
}

/* Returns how much memory the data keeps. */
static size_t take(size_t size, bool *ret_taken_over)
{
    struct fuse_buf buf = {.mem = malloc(BUFFER), .size = HEADER + size};
    char *data, *mem = buf.mem;
    size_t bytes;
    void *memory;

    assert_non_null(mem);
    for (size_t i = 0; i < size; i++)
        mem[HEADER + i] = pattern(i);
    memory = fb_buffer_take(&buf, mem + HEADER, size, &data);
    assert_non_null(memory);
    *ret_taken_over = buf.mem == NULL;
    free(buf.mem);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(data[i], pattern(i));
    bytes = malloc_usable_size(memory);
    assert_true(data >= (char *)memory && data + size <= (char *)memory + bytes);
    free(memory);
    return bytes;
}

static void small_data_is_copied(void **state)
{
    bool taken_over;

    (void)state;
    assert_in_range(take(1, &taken_over), 1, 4096);
    assert_false(taken_over);
    assert_in_range(take(FB_FUSE_COPY_MAX, &taken_over), FB_FUSE_COPY_MAX, 2 * FB_FUSE_COPY_MAX);
    assert_false(taken_over);
}

static void buffers_are_taken_over(void **state)
{
    bool taken_over;

    (void)state;
    assert_in_range(take(FB_FUSE_WRITE_MAX, &taken_over), FB_FUSE_WRITE_MAX, 2 * BUFFER);
    assert_true(taken_over);
}

static void empty_room_is_not_kept(void **state)
{
    bool taken_over;

    (void)state;
    assert_in_range(take(128 << 10, &taken_over), 128 << 10, 256 << 10);
    assert_true(taken_over);
}

static void without_a_buffer(void **state)
{
    char *data;
    char *memory = fb_buffer_take(NULL, "text", 4, &data);

    (void)state;
    assert_non_null(memory);
    assert_memory_equal(data, "text", 4);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_data_is_copied),
        cmocka_unit_test(buffers_are_taken_over),
        cmocka_unit_test(empty_room_is_not_kept),
        cmocka_unit_test(without_a_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
