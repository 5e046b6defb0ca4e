#include "stream/name.h"

#include <stdbool.h>
#include <string.h>

#include "base/attr.h"

#define HEX_LEN_MIN 8
#define HEX_DIGITS  (FB_NAME_ORDER_BITS / 4)
#define LETTERS     (FB_NAME_ORDER_BITS / 5)

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 0 to 15; -1 for anything else. */
static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static uint32_t order_of_letters(const char *name, size_t len)
{
    uint32_t order = 0;

    for (size_t i = 0; i < LETTERS; i++) {
        char c = (char)(i < len ? name[i] | 0x20 : 0);

        order = order << 5 | (c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a' + 1) : 0);
    }
    return order;
}

/* Whether it is all of hexadecimal digits, with letters among them; and its first digits. */
static bool is_hex(const char *name, size_t len, uint32_t *ret_order)
{
    uint32_t order = 0;
    size_t digits = 0;

    for (size_t i = 0; i < len; i++) {
        int value = hex_value(name[i]);

        if (value < 0)
            return false;
        digits += value < 10;
        if (i < HEX_DIGITS)
            order = order << 4 | (uint32_t)value;
    }
    *ret_order = order;
    return digits < len;
}

uint32_t fb_name_order(const char *name, size_t len)
{
    const char *dot = memrchr(name, '.', len);
    uint64_t number = 0;
    uint32_t order;
    bool has_digits = false;

    if (dot && dot != name)
        len = (size_t)(dot - name);
    if (len >= HEX_LEN_MIN && is_hex(name, len, &order))
        return order;
    for (size_t i = 0; i < len; i++) {
        unsigned digit = (unsigned)(unsigned char)name[i] - '0';

        if (digit < 10) {
            number = number * 10 + digit;
            has_digits = true;
        }
    }
    if (has_digits)
        return (uint32_t)(number & ((1U << FB_NAME_ORDER_BITS) - 1));
    return order_of_letters(name, len);
}
