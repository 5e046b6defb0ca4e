/*
 * Paths as programs write them, made absolute and clean: as roots are compared.
 *
 * `.`, `//` and leading `..` are worked out here. A `..` after a name means something else when
 * that name is a symbolic link: then, and for links, the kernel is asked (fb_client_path_of).
 */
#include <string.h>

#include "client/client_priv.h"

#define PROC_SIZE 32

static bool is_up(const char *name, size_t len)
{
    return len == 2 && name[0] == '.' && name[1] == '.';
}

/* Appends `path` to the clean directory in `to`. False: too long, a directory's name, or a `..`
 * that only the kernel can follow. */
static bool append(char to[FB_CLIENT_FILE_PATH], const char *path)
{
    size_t len = strcmp(to, "/") == 0 ? 0 : strlen(to);
    bool named = false;

    while (*path) {
        size_t n = strcspn(path, "/");

        if (is_up(path, n)) {
            if (named)
                return false;
            while (len > 0 && to[--len] != '/')
                continue;
        } else if (n > 0 && !(n == 1 && path[0] == '.')) {
            if (len + 1 + n >= FB_CLIENT_FILE_PATH)
                return false;
            to[len++] = '/';
            memcpy(to + len, path, n);
            len += n;
            named = true;
        }
        path += n;
        if (*path == '/' && path[strspn(path, "/")] == '\0')
            return false;
        path += strspn(path, "/");
    }
    to[len] = '\0';
    return named;
}

bool fb_client_clean(const char *path, char ret_path[FB_CLIENT_FILE_PATH])
{
    ret_path[0] = '\0';
    /* What lies outside this process's root directory is told as "(unreachable)". */
    if (path[0] != '/' &&
        (fb_sys(SYS_getcwd, ret_path, FB_CLIENT_FILE_PATH, 0, 0) <= 0 || ret_path[0] != '/'))
        return false;
    return append(ret_path, path);
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
