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

uint32_t fb_name_order(const char *name, size_t len)
{
    const char *dot = memrchr(name, '.', len);
    uint64_t number = 0;
    uint32_t hex = 0;
    size_t digits = 0, hexes = 0;

    if (dot && dot != name)
        len = (size_t)(dot - name);
    for (size_t i = 0; i < len; i++) {
        int value = hex_value(name[i]);

        if (is_digit(name[i])) {
            number = number * 10 + (uint64_t)value;
            digits++;
        }
        if (value >= 0 && hexes == i) {
            hexes++;
            if (i < HEX_DIGITS)
                hex = hex << 4 | (uint32_t)value;
        }
    }
    if (hexes == len && len >= HEX_LEN_MIN && digits < len)
        return hex;
    if (digits)
        return (uint32_t)(number & ((1U << FB_NAME_ORDER_BITS) - 1));
    return order_of_letters(name, len);
}
