#include <cmocka.h>

#include "base/checksum.h"
#include "base/rand.h"

/* Data written on one machine is read on another: the vectors used must not show. */
static void same_as_the_plain_hash(void **state)
{
    static uint8_t data[70000];
    struct fb_rand r = {.state = 3};

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)fb_rand_u64(&r);
    for (size_t len = 0; len < 2100; len++)
        assert_int_equal(fb_checksum(data + len % 7, len), fb_hash64(data + len % 7, len));
    for (int i = 0; i < 500; i++) {
        size_t at = fb_rand_below(&r, 1000), len = fb_rand_below(&r, sizeof data - 1000);

        assert_int_equal(fb_checksum(data + at, len), fb_hash64(data + at, len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_the_plain_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
