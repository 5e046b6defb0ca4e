/*
 * Paths as programs write them, made absolute and clean: as roots are compared.
 *
 * `.`, `//` and leading `..` are worked out here. A `..` after a name means something else when
 * that name is a symbolic link: then, and for links, the kernel is asked (fb_client_path_of).
 */
#include <string.h>

#include "client/client_priv.h"

#define PROC_SIZE 32

bool fb_client_append(char to[FB_CLIENT_FILE_PATH], const char *path)
{
    size_t len = strlen(to);
    bool named = false;

    if (len == 1 && to[0] == '/')
        len = 0;
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
        }
    }
    to[len] = '\0';
    return len > 0;
}

bool fb_client_clean(const char *path, char ret_path[FB_CLIENT_FILE_PATH])
{
    ret_path[0] = '\0';
    /* What lies outside this process's root directory is told as "(unreachable)". */
    if (path[0] != '/' &&
        (fb_sys(SYS_getcwd, ret_path, FB_CLIENT_FILE_PATH, 0, 0) <= 0 || ret_path[0] != '/'))
        return false;
    return fb_client_append(ret_path, path);
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
