/*
 * core/units.h - sizes as 10G, durations as 60s, ratios as 0.8 or 80%: reading and writing them.
 */
#ifndef FB_CORE_UNITS_H
#define FB_CORE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

/* A whole or decimal number and an optional K, M, G, T, P (or k, m, ...) with optional iB or B; all
 * are powers of 1024. A fraction of a byte is dropped. -EINVAL for anything else (signs, spaces,
 * trailing text), -ERANGE beyond 2^63 - 1. */
FB_MUST_CHECK int fb_parse_size(const char *text, uint64_t *ret_bytes);

/* A number and ns, us, ms, s, m, h or d; a bare number is seconds. Errors as above. */
FB_MUST_CHECK int fb_parse_duration(const char *text, int64_t *ret_ns);

/* 0 to 1, or 0% to 100%. -EINVAL when it is no such number, -ERANGE when it is a larger one. */
FB_MUST_CHECK int fb_parse_ratio(const char *text, double *ret_ratio);

#define FB_UNITS_TEXT_MAX 32

/* `1.5G`, `100K`, `17`; `1.5m`, `250us`: at most three digits, for people. Return buf. */
const char *fb_format_size(char buf[FB_UNITS_TEXT_MAX], uint64_t bytes);
const char *fb_format_duration(char buf[FB_UNITS_TEXT_MAX], int64_t ns);

#endif
