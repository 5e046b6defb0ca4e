#include "daemon/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "daemon/last_error.h"

static void drop_trailing_slashes(char *path)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        path[--len] = 0;
}

int fb_path_absolute(const char *path, char **ret_path)
{
    FB_AUTO_FREE char *cwd = NULL;
    char *absolute;

    if (!*path)
        return -ENOENT;
    if (path[0] == '/') {
        absolute = fb_strdup(path);
    } else {
        cwd = getcwd(NULL, 0);
        if (!cwd)
            return fb_last_error();
        absolute = fb_asprintf("%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, path);
    }
    if (!absolute)
        return -ENOMEM;
    drop_trailing_slashes(absolute);
    if (strlen(absolute) >= PATH_MAX) {
        free(absolute);
        return -ENAMETOOLONG;
    }
    *ret_path = absolute;
    return 0;
}

/* Appends the components of `tail` to the canonical path in buf; `..` goes up by name. */
static int append_names(char *buf, size_t size, const char *tail)
{
    while (*(tail += strspn(tail, "/"))) {
        size_t len = strcspn(tail, "/");
        size_t used = strlen(buf);

        if (len == 2 && strncmp(tail, "..", 2) == 0) {
            char *slash = strrchr(buf, '/');

            slash[slash == buf ? 1 : 0] = 0;
        } else if (!(len == 1 && *tail == '.')) {
            if (used + 1 + len + 1 > size)
                return -ENAMETOOLONG;
            if (used > 1)
                buf[used++] = '/';
            memcpy(buf + used, tail, len);
            buf[used + len] = 0;
        }
        tail += len;
    }
    return 0;
}

/* The longest prefix that resolves, then the rest by name. `head` is absolute and is cut up. */
static int resolve(char *head, char **ret_path)
{
    char buf[PATH_MAX];
    FB_AUTO_FREE char *whole = fb_strdup(head);
    int rc;

    if (!whole)
        return -ENOMEM;
    while (!realpath(head, buf)) {
        char *slash = strrchr(head, '/');

        if (errno == ENOMEM || (slash == head && !head[1]))
            return fb_last_error();
        slash[slash == head ? 1 : 0] = 0;
    }
    rc = append_names(buf, sizeof buf, whole + strlen(head));
    if (rc)
        return rc;
    *ret_path = fb_strdup(buf);
    return *ret_path ? 0 : -ENOMEM;
}

int fb_path_canonical(const char *path, char **ret_path)
{
    FB_AUTO_FREE char *absolute = NULL;
    int rc = fb_path_absolute(path, &absolute);

    return rc ? rc : resolve(absolute, ret_path);
}

int fb_path_canonical_parent(const char *path, char **ret_path)
{
    FB_AUTO_FREE char *absolute = NULL;
    FB_AUTO_FREE char *parent = NULL;
    char *slash;
    int rc = fb_path_absolute(path, &absolute);

    if (rc)
        return rc;
    slash = strrchr(absolute, '/');
    if (!slash[1] || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0)
        return resolve(absolute, ret_path);
    *slash = 0;
    rc = fb_path_canonical(*absolute ? absolute : "/", &parent);
    if (rc)
        return rc;
    *ret_path = fb_asprintf("%s/%s", strcmp(parent, "/") == 0 ? "" : parent, slash + 1);
    return *ret_path ? 0 : -ENOMEM;
}

bool fb_path_below(const char *outer, const char *inner)
{
    size_t len = strlen(outer);

    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(outer, inner, len) == 0 && (inner[len] == 0 || inner[len] == '/');
}

void fb_path_tidy(char *path)
{
    bool absolute = path[0] == '/';
    const char *p = path;
    char *out = path;

    while (*(p += strspn(p, "/"))) {
        size_t len = strcspn(p, "/");

        if (!(len == 1 && *p == '.')) {
            if (absolute || out > path)
                *out++ = '/';
            memmove(out, p, len);
            out += len;
        }
        p += len;
    }
    if (out == path)
        *out++ = absolute ? '/' : '.';
    *out = 0;
}

bool fb_path_is_plain(const char *path)
{
    const char *p = path;

    if (*p != '/')
        return false;
    while (*p) {
        size_t len = strcspn(++p, "/");

        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += len;
    }
    return true;
}

bool fb_path_within(const char *outer, const char *inner)
{
    char path[PATH_MAX];
    struct stat top;
    struct stat st;

    if (fb_path_below(outer, inner))
        return true;
    if (strlen(inner) >= sizeof path || stat(outer, &top) != 0)
        return false;
    memcpy(path, inner, strlen(inner) + 1);
    for (char *slash = path + strlen(path); slash > path; slash = strrchr(path, '/')) {
        *slash = 0;
        if (stat(path, &st) == 0 && st.st_dev == top.st_dev && st.st_ino == top.st_ino)
            return true;
    }
    return false;
}

int fb_path_mkdirs(const char *path, mode_t mode)
{
    FB_AUTO_FREE char *copy = fb_strdup(path);
    struct stat st;

    if (!copy)
        return -ENOMEM;
    for (char *p = copy + 1;; p++) {
        char c = *p;

        if (c != '/' && c != 0)
            continue;
        *p = 0;
        if (mkdir(copy, mode) != 0 && errno != EEXIST) {
            int rc = -errno;

            /* Above us may lie what we cannot write to, as long as it is there. */
            if (stat(copy, &st) != 0 || !S_ISDIR(st.st_mode))
                return rc;
        }
        *p = c;
        if (c == 0)
            break;
    }
    if (stat(path, &st) != 0)
        return -errno;
    return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}
