/*
 * A line: `36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options`, where space,
 * tab, newline and backslash in names are written as octal \040.
 */
#include "daemon/mountinfo.h"

#include <errno.h>
#include <string.h>

#include "core/mem.h"
#include "daemon/last_error.h"
#include "daemon/paths.h"

#define LINES_MAX   1000000
#define POINT_FIELD 4 /* counted from 0 */

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

/* Fills in pointers into the line. False: no such line as described above. */
static bool split_line(char *line, char **ret_point, char **ret_type, char **ret_source)
{
    char *rest = line;
    char *word = NULL;

    for (int i = 0; i <= POINT_FIELD; i++) {
        word = next_word(&rest);
        if (!word)
            return false;
    }
    *ret_point = word;
    do {
        word = next_word(&rest);
    } while (word && strcmp(word, "-") != 0);
    *ret_type = word ? next_word(&rest) : NULL;
    *ret_source = *ret_type ? next_word(&rest) : NULL;
    if (!*ret_source)
        return false;
    unescape(*ret_point);
    unescape(*ret_type);
    unescape(*ret_source);
    return true;
}

void fb_mountinfo_free(struct fb_mountinfo *info)
{
    free(info->mountpoint);
    free(info->type);
    free(info->source);
    memset(info, 0, sizeof *info);
}

static int keep(struct fb_mountinfo *info, const char *point, const char *type, const char *source)
{
    fb_mountinfo_free(info);
    info->mountpoint = fb_strdup(point);
    info->type = fb_strdup(type);
    info->source = fb_strdup(source);
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
        char *point;
        char *type;
        char *source;

        if (!split_line(line, &point, &type, &source) || !fb_path_below(point, path) ||
            strlen(point) < best)
            continue;
        best = strlen(point);
        rc = keep(ret_info, point, type, source);
        if (rc)
            break;
    }
    if (rc)
        fb_mountinfo_free(ret_info);
    return rc;
}

int fb_mountinfo_find(const char *path, struct fb_mountinfo *ret_info)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    int rc;

    if (!file)
        return fb_last_error();
    rc = fb_mountinfo_parse(file, path, ret_info);
    fclose(file);
    return rc;
}

bool fb_mountinfo_is_forebay(const char *path)
{
    struct fb_mountinfo info;
    bool is;

    if (fb_mountinfo_find(path, &info) != 0)
        return false;
    is = strcmp(info.mountpoint, path) == 0 && strcmp(info.type, FB_MOUNT_TYPE) == 0;
    fb_mountinfo_free(&info);
    return is;
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
        char *point;
        char *is;
        char *source;

        if (getline(&line, &size, file) <= 0)
            break;
        if (!split_line(line, &point, &is, &source) || strcmp(is, type) != 0 ||
            is_in(points, point))
            continue;
        points[used] = fb_strdup(point);
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
        return fb_last_error();
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
