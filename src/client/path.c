/*
 * Paths as programs write them, made absolute and clean: as roots are compared.
 *
 * `.`, `//` and leading `..` are worked out here. A `..` after a name means something else when
 * that name is a symbolic link: then, and for links, the kernel is asked (fb_client_path_of).
 */
#include <string.h>

#include "client/client_priv.h"

#define PROC_SIZE 32

#define ONES  0x0101010101010101ULL
#define HIGHS 0x8080808080808080ULL

/* The highest bit of every byte that is `c`, and perhaps of others above one. */
static uint64_t bytes_of(uint64_t word, char c)
{
    word ^= ONES * (uint8_t)c;
    return (word - ONES) & ~word & HIGHS;
}

/* Not 0: in these eight bytes there is a slash, and a slash or a dot behind it; or almost. */
static uint64_t odd_pairs(const char *at)
{
    uint64_t here, next;

    memcpy(&here, at, sizeof here);
    memcpy(&next, at + 1, sizeof next);
    return bytes_of(here, '/') & (bytes_of(next, '/') | bytes_of(next, '.'));
}

/* Nothing to work out: names only, none of which begins with a dot. Most paths are like that, and
 * looking at eight bytes at a time takes a fifth of the time. False: perhaps it is all the same. */
static bool is_plain(const char *path, size_t len)
{
    uint64_t odd = 0;

    if (len <= sizeof odd || path[0] == '.' || path[len - 1] == '/')
        return false;
    for (size_t i = 0; i + sizeof odd < len; i += sizeof odd)
        odd |= odd_pairs(path + i);
    return (odd | odd_pairs(path + len - 1 - sizeof odd)) == 0;
}

static bool append_plain(char to[FB_CLIENT_FILE_PATH], size_t to_len, const char *path, size_t len)
{
    bool slash = path[0] != '/';

    if (to_len + slash + len >= FB_CLIENT_FILE_PATH - 1)
        return false;
    if (slash)
        to[to_len++] = '/';
    memcpy(to + to_len, path, len + 1);
    return true;
}

bool fb_client_append(char to[FB_CLIENT_FILE_PATH], const char *path)
{
    size_t len = strlen(to), path_len = strlen(path);
    bool named = false;

    if (len == 1 && to[0] == '/')
        len = 0;
    if (is_plain(path, path_len))
        return append_plain(to, len, path, path_len);
    while (*path) {
        size_t at = len;

        if (*path == '/') {
            if (*++path == '\0')
                return false; /* a trailing slash asks for a directory */
            continue;
        }
        to[at++] = '/';
        while (*path && *path != '/' && at < FB_CLIENT_FILE_PATH - 1)
            to[at++] = *path++;
        if (at >= FB_CLIENT_FILE_PATH - 1)
            return false;
        if (at - len == 3 && to[len + 1] == '.' && to[len + 2] == '.') {
            if (named)
                return false;
            while (len > 0 && to[--len] != '/')
                continue;
        } else if (at - len > 2 || to[len + 1] != '.') {
            len = at;
            named = true;
        } else if (named && *path == '\0') {
            return false; /* and so does a dot */
        }
    }
    to[len] = '\0';
    return len > 0;
}

const char *fb_client_clean(const char *path, char room[FB_CLIENT_FILE_PATH])
{
    if (path[0] == '/' && is_plain(path, strlen(path)))
        return path;
    room[0] = '\0';
    /* What lies outside this process's root directory is told as "(unreachable)". */
    if (path[0] != '/' &&
        (fb_sys(SYS_getcwd, room, FB_CLIENT_FILE_PATH, 0, 0) <= 0 || room[0] != '/'))
        return NULL;
    return fb_client_append(room, path) ? room : NULL;
}

bool fb_client_path_of(int fd, char ret_path[FB_CLIENT_FILE_PATH])
{
    static const char folder[] = "/proc/self/fd/";
    char proc[PROC_SIZE];
    char digits[12];
    size_t at = sizeof folder - 1;
    int count = 0;
    int64_t n;

    memcpy(proc, folder, sizeof folder);
    do
        digits[count++] = (char)('0' + fd % 10);
    while ((fd /= 10) > 0);
    while (count > 0)
        proc[at++] = digits[--count];
    proc[at] = '\0';
    n = fb_sys_readlink(proc, ret_path, FB_CLIENT_FILE_PATH);
    if (n <= 0 || n >= FB_CLIENT_FILE_PATH || ret_path[0] != '/')
        return false;
    ret_path[n] = '\0';
    return true;
}
