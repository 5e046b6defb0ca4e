#include "source/s3_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/clock.h"
#include "source/s3_text.h"

#define YEAR_MIN 1970
#define YEAR_MAX 2261 /* the last whole one of an int64 of nanoseconds */

int fb_s3_parse_size(const char *text, size_t len, uint64_t *ret_size)
{
    uint64_t size = 0;

    if (len == 0)
        return -EBADMSG;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || size > INT64_MAX / 10)
            return -EBADMSG;
        size = size * 10 + (uint64_t)(text[i] - '0');
        if (size > INT64_MAX)
            return -EBADMSG;
    }
    *ret_size = size;
    return 0;
}

/* ---- times ----------------------------------------------------------------------------------- */

struct moment {
    int year;
    int month; /* from 1 */
    int day;
    int hour;
    int minute;
    int second;
};

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int to_wall_ns(const struct moment *m, int64_t *ret_wall_ns)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t day = m->day - 1;

    if (m->year < YEAR_MIN || m->year > YEAR_MAX || m->month < 1 || m->month > 12 || m->day < 1 ||
        m->day > days[m->month - 1] + (m->month == 2 && is_leap(m->year)) || m->hour > 23 ||
        m->minute > 59 || m->second > 60)
        return -EBADMSG;
    for (int year = YEAR_MIN; year < m->year; year++)
        day += 365 + is_leap(year);
    for (int month = 1; month < m->month; month++)
        day += days[month - 1] + (month == 2 && is_leap(m->year));
    *ret_wall_ns =
        (((day * 24 + m->hour) * 60 + m->minute) * 60 + m->second) * (int64_t)FB_NS_PER_S;
    return 0;
}

/* Matches `form`, where each of y, o, d, h, m, s takes a digit of that number, b three letters of a
 * month's name, w three of a weekday's, and all else itself. */
static bool match(const char *form, const char *text, size_t len, struct moment *ret_moment)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    static const char weekdays[] = "MonTueWedThuFriSatSun";
    static const char fields[] = "yodhms";
    int numbers[6] = {0};

    if (strlen(form) != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        const char *field = strchr(fields, form[i]);

        if (form[i] == 'b' || form[i] == 'w') {
            const char *names = form[i] == 'b' ? months : weekdays;
            size_t k = 0;

            while (names[k] && memcmp(names + k, text + i, 3) != 0)
                k += 3;
            if (!names[k])
                return false;
            if (form[i] == 'b')
                numbers[1] = (int)k / 3 + 1;
            i += 2;
        } else if (field) {
            if (text[i] < '0' || text[i] > '9')
                return false;
            numbers[field - fields] = numbers[field - fields] * 10 + (text[i] - '0');
        } else if (form[i] != text[i]) {
            return false;
        }
    }
    *ret_moment =
        (struct moment){numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
    return true;
}

int fb_s3_parse_time(const char *text, size_t len, int64_t *ret_wall_ns)
{
    static const char form[] = "yyyy-oo-ddThh:mm:ss";
    struct moment moment;
    size_t at = sizeof form - 1;

    if (len < sizeof form || !match(form, text, sizeof form - 1, &moment))
        return -EBADMSG;
    if (text[at] == '.') {
        size_t first = ++at;

        while (at < len && text[at] >= '0' && text[at] <= '9')
            at++;
        if (at == first || at > first + 9)
            return -EBADMSG;
    }
    if (at + 1 != len || text[at] != 'Z')
        return -EBADMSG;
    return to_wall_ns(&moment, ret_wall_ns);
}

int fb_s3_parse_http_time(const char *text, size_t len, int64_t *ret_wall_ns)
{
    struct moment moment;

    if (!match("www, dd bbb yyyy hh:mm:ss GMT", text, len, &moment))
        return -EBADMSG;
    return to_wall_ns(&moment, ret_wall_ns);
}

/* ---- ETags and versions ---------------------------------------------------------------------- */

int fb_s3_parse_etag(const char *text, size_t len, char ret_etag[FB_S3_ETAG_MAX + 1])
{
    if (len >= 2 && text[0] == 'W' && text[1] == '/') {
        text += 2;
        len -= 2;
    }
    if (len >= 2 && text[0] == '"' && text[len - 1] == '"') {
        text++;
        len -= 2;
    }
    if (len > FB_S3_ETAG_MAX)
        return -EBADMSG;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] <= ' ' || text[i] == '"' || text[i] == 0x7f)
            return -EBADMSG;
    }
    memcpy(ret_etag, text, len);
    ret_etag[len] = '\0';
    return 0;
}

bool fb_s3_etag_md5(const char *etag, uint8_t ret_md5[16])
{
    if (strlen(etag) != 32)
        return false;
    for (int i = 0; i < 16; i++) {
        int high = fb_s3_hex_digit(etag[2 * i]), low = fb_s3_hex_digit(etag[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        ret_md5[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

/* "<32 hexadecimal digits in lower case>" or "<the same>-<number of parts>": the number, 0 without,
 * or -1 for any other ETag. */
static int etag_parts(const char *etag, uint8_t ret_md5[16])
{
    char digits[33];
    unsigned long parts;
    char *end;

    if (strlen(etag) < 32 || strspn(etag, "0123456789abcdef") != 32)
        return -1;
    memcpy(digits, etag, 32);
    digits[32] = '\0';
    if (!fb_s3_etag_md5(digits, ret_md5))
        return -1;
    if (etag[32] == '\0')
        return 0;
    if (etag[32] != '-' || etag[33] < '1' || etag[33] > '9' || strlen(etag + 33) > 5)
        return -1;
    parts = strtoul(etag + 33, &end, 10);
    return *end == '\0' ? (int)parts : -1;
}

/* The usual ETags are kept as they are, 16 bytes in the tag, and in the nanoseconds of ctime, which
 * S3 does not have, 1 and the number of parts. So they can be sent back. Of others there is a hash,
 * and ctime equals mtime. */
struct fb_version fb_s3_version(uint64_t size, int64_t mtime_ns, const char *etag)
{
    struct fb_version version = {.size = size, .mtime_ns = mtime_ns, .ctime_ns = mtime_ns};
    uint8_t md5[16];
    XXH128_hash_t hash;
    int parts;

    if (!*etag)
        return version;
    parts = etag_parts(etag, md5);
    if (parts >= 0) {
        memcpy(version.tag, md5, sizeof md5);
        version.ctime_ns += 1 + parts;
    }
    if (version.tag[1] == 0) {
        hash = XXH3_128bits(etag, strlen(etag));
        version.tag[0] = hash.low64;
        version.tag[1] = hash.high64 ? hash.high64 : 1;
        version.ctime_ns = mtime_ns;
    }
    return version;
}

bool fb_s3_version_etag(const struct fb_version *version, char ret_text[FB_S3_ETAG_TEXT])
{
    int64_t parts = version->ctime_ns - version->mtime_ns - 1;
    uint8_t md5[16];
    int at = 1;

    ret_text[0] = '\0';
    if (version->tag[1] == 0 || parts < 0)
        return false;
    memcpy(md5, version->tag, sizeof md5);
    ret_text[0] = '"';
    for (int i = 0; i < 16; i++)
        at += snprintf(ret_text + at, FB_S3_ETAG_TEXT - (size_t)at, "%02x", md5[i]);
    if (parts > 0)
        at += snprintf(ret_text + at, FB_S3_ETAG_TEXT - (size_t)at, "-%d", (int)parts);
    snprintf(ret_text + at, FB_S3_ETAG_TEXT - (size_t)at, "\"");
    return true;
}
