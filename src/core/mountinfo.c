/*
 * A line: `36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options`, where space,
 * tab, newline and backslash in names are written as octal \040.
 */
#include "core/mountinfo.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "core/mem.h"

#define LINES_MAX 1000000

enum field {
    FIELD_DEV = 2, /* counted from 0 */
    FIELD_POINT = 4,
};

/* Pointers into a line. */
struct parts {
    char *point;
    char *type;
    char *source;
    dev_t dev;
    int64_t user;
};

static bool is_octal(const char *p)
{
    return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7';
}

static void unescape(char *text)
{
    char *out = text;

    for (const char *p = text; *p; p++) {
        if (p[0] == '\\' && is_octal(p + 1)) {
            *out++ = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
            p += 3;
        } else {
            *out++ = *p;
        }
    }
    *out = 0;
}

/* Cuts the next word off *rest; NULL at the end of the line. */
static char *next_word(char **rest)
{
    char *word = *rest + strspn(*rest, " ");
    size_t len = strcspn(word, " \n");

    if (len == 0)
        return NULL;
    *rest = word + len + (word[len] ? 1 : 0);
    word[len] = 0;
    return word;
}

static int64_t user_in(const char *options)
{
    const char *at = options ? strstr(options, "user_id=") : NULL;

    return at ? (int64_t)strtoul(at + strlen("user_id="), NULL, 10) : -1;
}

/* False: no such line as described above. */
static bool split_line(char *line, struct parts *ret_parts)
{
    unsigned major_no, minor_no;
    char *rest = line;
    char *word = NULL;

    for (int i = 0; i <= FIELD_POINT; i++) {
        word = next_word(&rest);
        if (!word || (i == FIELD_DEV && sscanf(word, "%u:%u", &major_no, &minor_no) != 2))
            return false;
    }
    ret_parts->point = word;
    do {
        word = next_word(&rest);
    } while (word && strcmp(word, "-") != 0);
    ret_parts->type = word ? next_word(&rest) : NULL;
    ret_parts->source = ret_parts->type ? next_word(&rest) : NULL;
    if (!ret_parts->source)
        return false;
    ret_parts->dev = makedev(major_no, minor_no);
    ret_parts->user = user_in(next_word(&rest));
    unescape(ret_parts->point);
    unescape(ret_parts->type);
    unescape(ret_parts->source);
    return true;
}

static bool lies_below(const char *point, const char *path)
{
    size_t len = strlen(point);

    return strcmp(point, "/") == 0 ||
           (strncmp(point, path, len) == 0 && (path[len] == 0 || path[len] == '/'));
}

void fb_mountinfo_free(struct fb_mountinfo *info)
{
    free(info->mountpoint);
    free(info->type);
    free(info->source);
    memset(info, 0, sizeof *info);
}

static int keep(struct fb_mountinfo *info, const struct parts *parts)
{
    fb_mountinfo_free(info);
    info->mountpoint = fb_strdup(parts->point);
    info->type = fb_strdup(parts->type);
    info->source = fb_strdup(parts->source);
    info->dev = parts->dev;
    info->user = parts->user;
    return info->mountpoint && info->type && info->source ? 0 : -ENOMEM;
}

int fb_mountinfo_parse(FILE *file, const char *path, struct fb_mountinfo *ret_info)
{
    FB_AUTO_FREE char *line = NULL;
    size_t size = 0;
    size_t best = 0;
    int rc = -ENOENT;

    memset(ret_info, 0, sizeof *ret_info);
    for (unsigned i = 0; i < LINES_MAX && getline(&line, &size, file) > 0; i++) {
        struct parts parts;

        if (!split_line(line, &parts) || !lies_below(parts.point, path) ||
            strlen(parts.point) < best)
            continue;
        best = strlen(parts.point);
        rc = keep(ret_info, &parts);
        if (rc)
            break;
    }
    if (rc)
        fb_mountinfo_free(ret_info);
    return rc;
}

/* Never 0, which would pass for success, nor that of a mount which is not there: without /proc
 * nobody knows. */
static int open_error(void)
{
    int code = 0 - errno;

    return code < 0 && code != -ENOENT ? code : -EIO;
}

int fb_mountinfo_find(const char *path, struct fb_mountinfo *ret_info)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    int rc;

    if (!file)
        return open_error();
    rc = fb_mountinfo_parse(file, path, ret_info);
    fclose(file);
    return rc;
}

int fb_mountinfo_at(const char *mountpoint, struct fb_mountinfo *ret_info)
{
    int rc = fb_mountinfo_find(mountpoint, ret_info);

    if (rc == 0 && strcmp(ret_info->mountpoint, mountpoint) != 0) {
        fb_mountinfo_free(ret_info);
        rc = -ENOENT;
    }
    return rc;
}

static bool is_forebay(int rc, struct fb_mountinfo *info)
{
    bool is = rc == 0 && strcmp(info->type, FB_MOUNT_TYPE) == 0;

    if (rc == 0)
        fb_mountinfo_free(info);
    return is;
}

bool fb_mountinfo_is_forebay(const char *path)
{
    struct fb_mountinfo info;

    return is_forebay(fb_mountinfo_at(path, &info), &info);
}

bool fb_mountinfo_is_below_forebay(const char *path)
{
    struct fb_mountinfo info;

    return is_forebay(fb_mountinfo_find(path, &info), &info);
}

/* ---- all of one type ---- */

static bool is_in(char *const *points, const char *point)
{
    for (; *points; points++) {
        if (strcmp(*points, point) == 0)
            return true;
    }
    return false;
}

int fb_mountinfo_points_parse(FILE *file, const char *type, char ***ret_points)
{
    FB_AUTO_FREE char *line = NULL;
    char **points = fb_alloc_array(FB_MOUNTINFO_POINTS_MAX + 1, sizeof *points);
    size_t size = 0;
    unsigned used = 0;

    if (!points)
        return -ENOMEM;
    for (unsigned i = 0; i < LINES_MAX && used < FB_MOUNTINFO_POINTS_MAX; i++) {
        struct parts parts;

        if (getline(&line, &size, file) <= 0)
            break;
        if (!split_line(line, &parts) || strcmp(parts.type, type) != 0 ||
            is_in(points, parts.point))
            continue;
        points[used] = fb_strdup(parts.point);
        if (!points[used]) {
            fb_mountinfo_points_free(points);
            return -ENOMEM;
        }
        used++;
    }
    *ret_points = points;
    return 0;
}

int fb_mountinfo_points(const char *type, char ***ret_points)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    int rc;

    if (!file)
        return open_error();
    rc = fb_mountinfo_points_parse(file, type, ret_points);
    fclose(file);
    return rc;
}

void fb_mountinfo_points_free(char **points)
{
    for (char **p = points; p && *p; p++)
        free(*p);
    free(points);
}
