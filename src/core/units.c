/*
 * Numbers are read as an exact decimal fraction and scaled in 128 bits, so 1.1G is the same on
 * every machine and in every locale, and nothing is lost before the one division.
 */
#include "core/units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"

#define FRACTION_DIGITS 15 /* more are read and dropped */

struct decimal {
    uint64_t whole;
    uint64_t fraction; /* over `scale`, which is 10 ^ digits */
    uint64_t scale;
};

struct unit {
    const char *name;
    uint64_t size;
};

static const struct unit size_units[] = {
    {"", 1},           {"K", 1ULL << 10}, {"M", 1ULL << 20},
    {"G", 1ULL << 30}, {"T", 1ULL << 40}, {"P", 1ULL << 50},
};

static const struct unit duration_units[] = {
    {"ns", 1},
    {"us", FB_NS_PER_US},
    {"ms", FB_NS_PER_MS},
    {"s", FB_NS_PER_S},
    {"m", 60 * FB_NS_PER_S},
    {"h", 3600 * FB_NS_PER_S},
    {"d", 86400 * FB_NS_PER_S},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, and where a point follows, more digits. *ret_end is what comes after. */
static int parse_decimal(const char *text, struct decimal *ret, const char **ret_end)
{
    struct decimal d = {.scale = 1};
    bool too_large = false;

    if (!is_digit(*text))
        return -EINVAL;
    for (; is_digit(*text); text++) {
        if (__builtin_mul_overflow(d.whole, 10ULL, &d.whole) ||
            __builtin_add_overflow(d.whole, (uint64_t)(*text - '0'), &d.whole))
            too_large = true;
    }
    if (*text == '.') {
        if (!is_digit(*++text))
            return -EINVAL;
        for (unsigned digits = 0; is_digit(*text); text++) {
            if (digits++ >= FRACTION_DIGITS)
                continue;
            d.fraction = d.fraction * 10 + (uint64_t)(*text - '0');
            d.scale *= 10;
        }
    }
    *ret = d;
    *ret_end = text;
    return too_large ? -ERANGE : 0;
}

static int scale_decimal(const struct decimal *d, uint64_t unit, uint64_t *ret)
{
    unsigned __int128 value =
        (unsigned __int128)d->whole * unit + (unsigned __int128)d->fraction * unit / d->scale;

    if (value > INT64_MAX)
        return -ERANGE;
    *ret = (uint64_t)value;
    return 0;
}

/* 0 when `text` is no unit of size. */
static uint64_t size_unit(const char *text)
{
    static const char letters[] = "kmgtp";
    const char *found;

    if (!*text)
        return 1;
    found = strchr(letters, *text | 0x20);
    if (!found || !((*text >= 'A' && *text <= 'Z') || (*text >= 'a' && *text <= 'z')))
        return 0;
    text++;
    if (*text && strcmp(text, "B") != 0 && strcmp(text, "iB") != 0)
        return 0;
    return 1ULL << (10 * (found - letters + 1));
}

/* A malformed text is -EINVAL even where its number alone is already too large. */
int fb_parse_size(const char *text, uint64_t *ret_bytes)
{
    struct decimal d;
    const char *end;
    uint64_t unit;
    int rc = parse_decimal(text, &d, &end);

    if (rc == -EINVAL)
        return rc;
    unit = size_unit(end);
    if (unit == 0)
        return -EINVAL;
    return rc ? rc : scale_decimal(&d, unit, ret_bytes);
}

static uint64_t duration_unit(const char *text)
{
    if (!*text)
        return FB_NS_PER_S;
    for (size_t i = 0; i < FB_ARRAY_SIZE(duration_units); i++) {
        if (strcmp(text, duration_units[i].name) == 0)
            return duration_units[i].size;
    }
    return 0;
}

int fb_parse_duration(const char *text, int64_t *ret_ns)
{
    struct decimal d;
    const char *end;
    uint64_t unit;
    uint64_t ns = 0;
    int rc = parse_decimal(text, &d, &end);

    if (rc == -EINVAL)
        return rc;
    unit = duration_unit(end);
    if (unit == 0)
        return -EINVAL;
    if (rc == 0)
        rc = scale_decimal(&d, unit, &ns);
    if (rc == 0)
        *ret_ns = (int64_t)ns;
    return rc;
}

int fb_parse_ratio(const char *text, double *ret_ratio)
{
    struct decimal d;
    const char *end;
    uint64_t most = 1;
    int rc = parse_decimal(text, &d, &end);

    if (rc == -EINVAL)
        return rc;
    if (*end == '%') {
        most = 100;
        end++;
    }
    if (*end)
        return -EINVAL;
    if (rc || d.whole > most || (d.whole == most && d.fraction))
        return -ERANGE;
    *ret_ratio = ((double)d.whole + (double)d.fraction / (double)d.scale) / (double)most;
    return 0;
}

static void strip_zeros(char *text)
{
    char *end = text + strlen(text);

    if (!strchr(text, '.'))
        return;
    while (end[-1] == '0')
        *--end = 0;
    if (end[-1] == '.')
        *--end = 0;
}

/* The largest unit of which there is at least one, or the next one where three digits would not
 * do. Halves are rounded as printf does. */
static const char *format_units(char *buf, const char *sign, uint64_t value,
                                const struct unit *units, size_t count)
{
    char number[FB_UNITS_TEXT_MAX - 8];
    double scaled = (double)value;
    size_t i = 0;

    while (i + 1 < count && (value >= units[i + 1].size || scaled >= 999.5)) {
        i++;
        scaled = (double)value / (double)units[i].size;
    }
    snprintf(number, sizeof number, "%.*f", scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0, scaled);
    strip_zeros(number);
    snprintf(buf, FB_UNITS_TEXT_MAX, "%s%s%s", sign, number, units[i].name);
    return buf;
}

const char *fb_format_size(char buf[FB_UNITS_TEXT_MAX], uint64_t bytes)
{
    return format_units(buf, "", bytes, size_units, FB_ARRAY_SIZE(size_units));
}

const char *fb_format_duration(char buf[FB_UNITS_TEXT_MAX], int64_t ns)
{
    uint64_t size = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;

    return format_units(buf, ns < 0 ? "-" : "", size, duration_units,
                        FB_ARRAY_SIZE(duration_units));
}
