/*
 * Virtual roots: paths at which a program sees a bucket, where on this machine there is nothing.
 *
 *     /data/a/b   ──►   /run/forebay/HASH.mounts/HASH/a/b   the daemon's private mount
 *     getcwd()    ◄──
 *
 * FOREBAY_VIRTUAL says SEEN=THERE, with colons between several. Whatever takes a path is led there
 * first (fb_pl_go); from then on it is a path below a root like any other: files are served from
 * shared memory, all else is the kernel's and the mount's. Names that come back (getcwd, realpath,
 * readlink) are led back (fb_pl_back). So paths relative to a directory need nothing, but for `..`,
 * which may lead out: that is worked out by the letters, as there are no links in a bucket.
 *
 * Behind such a path there is no source to fall back to. When the daemon is gone, or hangs, the
 * answer is EIO: not ENOENT, and no empty directory where the mount was (fb_pl_blame,
 * fb_pl_is_there).
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "doors/preload/preload_priv.h"

#define LIST_BYTES 16384
#define NOWHERE    "/dev/null/gone" /* below what is no directory: every call fails */

struct fb_pl_root {
    const char *seen;
    size_t seen_len;
    const char *there;
    size_t there_len;
    unsigned around[2]; /* device of the directory in which the mount stands */
};

bool fb_pl_virtual;
static struct fb_pl_root roots[FB_CLIENT_ROOTS_MAX];
static unsigned root_count;
static char list_bytes[LIST_BYTES];

/* ---- beginning ---- */

static bool device_of(int fd, const char *path, int flags, unsigned ret_dev[2])
{
    struct statx sx;

    /* What the kernel knows will do: the daemon may be gone. */
    if (fb_sys6(SYS_statx, fd, (long)path, flags | AT_STATX_DONT_SYNC, STATX_TYPE, (long)&sx, 0) <
        0)
        return false;
    ret_dev[0] = sx.stx_dev_major;
    ret_dev[1] = sx.stx_dev_minor;
    return true;
}

/* One pair, in place. */
static void take_root(char *pair)
{
    struct fb_pl_root *r = &roots[root_count];
    char *there = strrchr(pair, '=');
    char *last;

    if (!there || pair[0] != '/' || there[1] != '/')
        return;
    *there++ = '\0';
    *r = (struct fb_pl_root){
        .seen = pair, .seen_len = strlen(pair), .there = there, .there_len = strlen(there)};
    last = strrchr(there, '/');
    *last = '\0';
    (void)device_of(AT_FDCWD, there, 0, r->around);
    *last = '/';
    root_count++;
}

void fb_pl_take_virtual(const char *list)
{
    size_t len = strlen(list);
    char *at = list_bytes;

    if (len == 0 || len >= sizeof list_bytes)
        return;
    memcpy(list_bytes, list, len + 1);
    while (at && root_count < FB_CLIENT_ROOTS_MAX) {
        char *colon = strchr(at, ':');

        if (colon)
            *colon++ = '\0';
        take_root(at);
        at = colon;
    }
    fb_pl_virtual = root_count > 0;
}

/* The daemon keeps a bucket for as long as anybody is connected: also those that have read nothing
 * yet. Children have the connection, too; a new program makes its own. */
__attribute__((constructor)) static void begin(void)
{
    int fd = fb_pl_on() && fb_pl_virtual ? fb_client_connect(&fb_pl_client) : -1;

    if (fd >= 0)
        (void)fb_pl_own(fd);
}

/* ---- names ---- */

static bool is_below(const char *path, const char *top, size_t len)
{
    return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static const struct fb_pl_root *seen_at(const char *path)
{
    for (unsigned i = 0; i < root_count; i++)
        if (is_below(path, roots[i].seen, roots[i].seen_len))
            return &roots[i];
    return NULL;
}

static const struct fb_pl_root *there_at(const char *path)
{
    for (unsigned i = 0; i < root_count; i++)
        if (is_below(path, roots[i].there, roots[i].there_len))
            return &roots[i];
    return NULL;
}

/* Puts `to` in the place of the first `from` bytes. */
static bool replace(char text[PATH_MAX], size_t from, const char *to, size_t to_len)
{
    size_t rest = strlen(text + from) + 1;

    if (to_len + rest > PATH_MAX)
        return false;
    memmove(text + to_len, text + from, rest);
    memcpy(text, to, to_len);
    return true;
}

bool fb_pl_back(char text[PATH_MAX])
{
    const struct fb_pl_root *r = fb_pl_virtual ? there_at(text) : NULL;

    return r && replace(text, r->there_len, r->seen, r->seen_len);
}

/* Appends to a clean directory ("" is the root directory) by the letters. A slash at the end stays:
 * it asks for a directory. */
static bool append(char text[PATH_MAX], const char *path)
{
    size_t len = strlen(text);
    bool slash = false;

    while (*path) {
        size_t n = strcspn(path, "/");

        slash = path[n] == '/' || (n == 1 && path[0] == '.');
        if (n == 2 && path[0] == '.' && path[1] == '.') {
            while (len > 0 && text[--len] != '/')
                continue;
            slash = true;
        } else if (n > 0 && !(n == 1 && path[0] == '.')) {
            if (len + 1 + n + 2 > PATH_MAX)
                return false;
            text[len++] = '/';
            memcpy(text + len, path, n);
            len += n;
        }
        path += n + (path[n] == '/');
    }
    if (slash || len == 0)
        text[len++] = '/';
    text[len] = '\0';
    return true;
}

/* A component `..` leads up. */
static bool goes_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* ---- going there ---- */

static bool hangs(void)
{
    return !fb_pl_vforked && fb_client_hangs(&fb_pl_client);
}

/* The directory that a path is relative to, as it is seen; false: it is none of ours. */
static bool base_of(int dir, char text[PATH_MAX])
{
    static_assert(FB_CLIENT_FILE_PATH <= PATH_MAX, "the longest name fits");
    if (dir == AT_FDCWD ? fb_sys(SYS_getcwd, text, PATH_MAX, 0, 0) <= 0
                        : !fb_client_path_of(dir, text))
        return false;
    return fb_pl_back(text);
}

/* The path as it is seen, clean; NULL: it is not below a virtual root, nor relative to one. */
static const char *seen_path(int dir, const char *path, char text[PATH_MAX])
{
    if (path[0] != '/')
        return goes_up(path) && base_of(dir, text) && append(text, path) ? text : NULL;
    if (!strstr(path, "//") && !strstr(path, "/."))
        return path;
    text[0] = '\0';
    return append(text, path) ? text : NULL;
}

static const char *no_way(struct fb_pl_way *way, int error)
{
    way->error = error;
    return NOWHERE;
}

/* The kernel's, unless it would wait for a daemon that hangs. */
static const char *go_relative(struct fb_pl_way *way, int dir, const char *path)
{
    return fb_unlikely(hangs()) && base_of(dir, way->text) ? no_way(way, EIO) : path;
}

const char *fb_pl_go_there(struct fb_pl_way *way, int dir, const char *path)
{
    const char *seen = path && *path ? seen_path(dir, path, way->text) : NULL;
    const struct fb_pl_root *r = seen ? seen_at(seen) : NULL;

    if (!seen)
        return path && *path && path[0] != '/' ? go_relative(way, dir, path) : path;
    if (!r)
        return path[0] == '/' ? path : seen;
    way->root = r;
    if (fb_unlikely(hangs()))
        return no_way(way, EIO);
    if (seen == path) {
        size_t len = strlen(path);

        if (len >= PATH_MAX)
            return no_way(way, ENAMETOOLONG);
        memcpy(way->text, path, len + 1);
    }
    return replace(way->text, r->seen_len, r->there, r->there_len) ? way->text
                                                                   : no_way(way, ENAMETOOLONG);
}

/* ---- when the daemon is gone ---- */

static bool stands(const struct fb_pl_root *r)
{
    unsigned dev[2];

    return device_of(AT_FDCWD, r->there, 0, dev) &&
           (dev[0] != r->around[0] || dev[1] != r->around[1]);
}

int fb_pl_blame(const struct fb_pl_way *way, int error)
{
    if (way->error)
        return way->error;
    if (error == ENOTCONN || error == ECONNABORTED)
        return EIO;
    return way->root && !stands(way->root) ? EIO : error;
}

bool fb_pl_is_there(int fd, const char *path)
{
    const struct fb_pl_root *r = fb_pl_virtual ? there_at(path) : NULL;
    unsigned dev[2];

    return !r || (device_of(fd, "", AT_EMPTY_PATH, dev) &&
                  (dev[0] != r->around[0] || dev[1] != r->around[1]));
}

int fb_pl_open_there(const char *path, int flags)
{
    const struct fb_pl_root *r = fb_unlikely(fb_pl_virtual) ? there_at(path) : NULL;
    struct fb_pl_way way = {.root = r};
    int fd = r && hangs() ? -EIO : fb_sys_open(path, flags, 0);

    return r && fd < 0 ? -fb_pl_blame(&way, -fd) : fd;
}
