/*
 * Which paths are ours. Programs open many files that are not: the answer "no" must cost nothing
 * next to the system call that follows.
 *
 * Roots come with the environment (FOREBAY_ROOTS, set by `forebay run`) or, without it, from the
 * daemon. A path is compared as it is written; `.`, `//` and leading `..` are worked out here. A
 * `..` after a name means something else when that name is a symbolic link: there the kernel is
 * asked (fb_pl_exact).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doors/preload/alone.h"
#include "doors/preload/preload_priv.h"

#define ROOTS_BYTES    4096
#define STARTING_TRIES 1000

enum {
    UNKNOWN,
    OFF,
    ON
};

static _Atomic int state;
static _Atomic bool starting;
static _Atomic bool looked_at; /* the data set, or what may be of it */
struct fb_pl_alone fb_pl_alone;
static unsigned root_count; /* 0: the daemon knows */
static char root_bytes[ROOTS_BYTES];

/* ---- beginning ---- */

static void take_roots(const char *list)
{
    size_t len = strlen(list);
    char *at = root_bytes;

    if (len == 0 || len >= sizeof root_bytes)
        return;
    memcpy(root_bytes, list, len + 1);
    while (at && root_count < FB_CLIENT_ROOTS_MAX) {
        char *colon = strchr(at, ':');

        if (colon)
            *colon++ = '\0';
        len = strlen(at);
        while (len > 0 && at[len - 1] == '/')
            at[--len] = '\0';
        fb_pl_alone.roots[root_count++] = at;
        at = colon;
    }
}

static int begin(void)
{
    const char *socket = getenv("FOREBAY_SOCKET");
    const char *list = getenv("FOREBAY_ROOTS");

    if (!socket || !fb_client_init(&fb_pl_client, socket))
        return OFF;
    if (list)
        take_roots(list);
    list = getenv("FOREBAY_VIRTUAL");
    if (list)
        fb_pl_take_virtual(list);
    return ON;
}

/* The first to ask; false as long as it is not known. */
__attribute__((noinline, cold)) static bool find_out(void)
{
    int now;

    /* Whoever comes second waits a moment; not for ever, as it may be a signal handler of the
     * first: it is too early for anything of ours to be open. */
    if (atomic_exchange(&starting, true)) {
        for (int i = 0; i < STARTING_TRIES && atomic_load(&state) == UNKNOWN; i++)
            (void)fb_sys(SYS_sched_yield, 0, 0, 0, 0);
        return atomic_load_explicit(&state, memory_order_acquire) == ON;
    }
    now = begin();
    atomic_store_explicit(&state, now, memory_order_release);
    return now == ON;
}

/* Inline, here and below: after a system call each return costs more than all of this. */
static inline bool is_on(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);

    return fb_likely(now != UNKNOWN) ? now == ON : find_out();
}

bool fb_pl_on(void)
{
    return is_on();
}

/* Not at the first look at a path, which may be a signal handler's. */
__attribute__((constructor)) static void begin_alone(void)
{
    bool known = is_on() ? root_count > 0 && !fb_pl_virtual : atomic_load(&state) == OFF;
    uint8_t state_was = FB_PL_ALONE_NOT_YET;

    if (!known)
        return;
    fb_pl_alone.close = FB_REAL(close);
    fb_pl_alone.open = FB_REAL(open);
    fb_pl_alone.open64 = FB_REAL(open64);
    fb_pl_alone.openat = FB_REAL(openat);
    fb_pl_alone.openat64 = FB_REAL(openat64);
    fb_pl_alone.stat = FB_REAL(stat);
    fb_pl_alone.stat64 = FB_REAL(stat64);
    fb_pl_alone.lstat = FB_REAL(lstat);
    fb_pl_alone.lstat64 = FB_REAL(lstat64);
    fb_pl_alone.fstatat = FB_REAL(fstatat);
    fb_pl_alone.fstatat64 = FB_REAL(fstatat64);
    (void)atomic_compare_exchange_strong(&fb_pl_alone.state, &state_was, FB_PL_ALONE);
}

/* ---- roots ---- */

/* At or below. Most paths differ in their second or third byte: no call is worth it. */
static bool below(const char *path, const char *root)
{
    while (*root) {
        if (*root++ != *path++)
            return false;
    }
    return *path == '/' || *path == '\0';
}

/* From the first look at the data set on, though nothing of it was opened: descriptors may be ours,
 * and what a forked child reads is its own, and not its parent's. */
static void look_at(void)
{
    /* Acquire: who is not the first is not alone either. */
    if (fb_likely(atomic_load_explicit(&looked_at, memory_order_acquire)))
        return;
    atomic_store_explicit(&fb_pl_alone.state, FB_PL_ALONE_NO_MORE, memory_order_relaxed);
    if (!atomic_exchange(&looked_at, true))
        (void)!pthread_atfork(NULL, NULL, fb_pl_in_child);
}

/* Without roots the daemon knows them. */
__attribute__((noinline)) static bool is_of_session(const char *path)
{
    const struct fb_session *s = fb_client_session(&fb_pl_client);

    return s && fb_client_place(s, path) != NULL;
}

static inline __attribute__((always_inline)) bool may_be_ours(const char *path)
{
    bool ours = false;

    for (unsigned i = 0; i < root_count && !ours; i++)
        ours = below(path, fb_pl_alone.roots[i]);
    if (root_count == 0)
        ours = is_of_session(path);
    if (fb_unlikely(ours))
        look_at();
    return ours;
}

bool fb_pl_apart(const char *dir)
{
    for (unsigned i = 0; i < root_count; i++) {
        const char *root = fb_pl_alone.roots[i];

        if (below(dir, root) || below(root, strcmp(dir, "/") == 0 ? "" : dir))
            return false;
    }
    return root_count > 0;
}

/* ---- paths ---- */

/* `//`, and `..` behind a name, may lead below a root from any name. Not inlined, and asked last:
 * who opens a path to read it pays nothing for it. */
__attribute__((noinline)) static bool is_plain(const char *path)
{
    return !strstr(path, "//") && !strstr(path, "/../");
}

bool fb_pl_elsewhere(const char *path)
{
    return path && path[0] == '/' && (!is_on() || (!may_be_ours(path) && is_plain(path)));
}

/* An odd name may lead below a root all the same: then the kernel goes there, which is right, and
 * not worth a look at every path that is read. */
static inline bool is_outside(int dir, const char *path)
{
    if (!path || path[0] == '.' || path[0] == '\0')
        return false;
    if (path[0] == '/')
        return !is_on() || !may_be_ours(path);
    return !is_on() || (dir == AT_FDCWD ? fb_pl_far() : fb_pl_slot(dir) != FB_PL_DIRECTORY);
}

bool fb_pl_outside(int dir, const char *path)
{
    return is_outside(dir, path);
}

bool fb_pl_stranger(int dir, const char *path, int flags)
{
    if (atomic_load_explicit(&fb_pl_active, memory_order_relaxed) || !path)
        return false;
    if (fb_likely(path[0] == '/')) {
        if (!is_on())
            return true;
        if (may_be_ours(path))
            return false;
        return fb_likely((flags & ~FB_PL_SERVABLE) == 0) || is_plain(path);
    }
    return (flags & ~FB_PL_SERVABLE) == 0 && is_outside(dir, path);
}

bool fb_pl_path(int dir, const char *path, char ret_path[FB_CLIENT_FILE_PATH])
{
    if (path[0] == '\0' || !fb_pl_on() || fb_pl_vforked)
        return false;
    if (path[0] == '/') {
        if (!may_be_ours(path))
            return false;
        ret_path[0] = '\0';
    } else if ((dir != AT_FDCWD && fb_pl_slot(dir) != FB_PL_DIRECTORY) ||
               !fb_pl_dir_path(dir, ret_path)) {
        return false;
    }
    return fb_client_append(ret_path, path) && may_be_ours(ret_path);
}

bool fb_pl_path_of(int fd, char ret_path[FB_CLIENT_FILE_PATH])
{
    return fb_pl_on() && fb_client_path_of(fd, ret_path) && may_be_ours(ret_path);
}

bool fb_pl_exact_name(int dir, const char *path, char ret_path[FB_CLIENT_FILE_PATH])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t len = slash ? (size_t)(slash - path) : 0;
    char parent[FB_CLIENT_FILE_PATH] = ".";
    int fd;

    if (len + 2 > sizeof parent)
        return false;
    if (slash) {
        memcpy(parent, path, len + 1);
        parent[len + 1] = '\0';
    }
    fd = (int)fb_sys(SYS_openat, dir, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (!fb_client_path_of(fd, ret_path))
        ret_path[0] = '\0';
    fb_sys_close(fd);
    return ret_path[0] != '\0' && fb_client_append(ret_path, name) && may_be_ours(ret_path);
}

bool fb_pl_exact(int dir, const char *path, char ret_path[FB_CLIENT_FILE_PATH])
{
    int fd = (int)fb_sys(SYS_openat, dir, path, O_PATH | O_CLOEXEC, 0);
    bool found;

    if (fd < 0)
        return false;
    found = fb_client_path_of(fd, ret_path) && may_be_ours(ret_path);
    fb_sys_close(fd);
    return found;
}
