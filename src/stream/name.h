/*
 * stream/name.h - where a name stands among its siblings, from the name alone.
 *
 * A reader that sorts names, or counts through them, is sequential in the order of names; but a
 * directory's listing is often not known when its files are read. So an order of 20 bits is read
 * off the name itself: the digits of its stem as one number (modulo 2^20: neighbours remain
 * neighbours); or the first five digits of a hexadecimal name; or its first four letters. Numbers
 * rather than bytes, since "2" and "10" are read in either order: counting, steps are 1; sorted by
 * bytes, nine in ten are.
 */
#ifndef FB_STREAM_NAME_H
#define FB_STREAM_NAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define FB_NAME_ORDER_BITS 20

uint32_t fb_name_order(const char *name, size_t len);

/* What `below` knows a child of a child by. */
static inline uint32_t fb_name_hash(const char *name, size_t len)
{
    return (uint32_t)(fb_hash64(name, len) >> 32);
}

#endif
