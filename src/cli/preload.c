#include "cli/preload.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"
#include "daemon/last_error.h"
#include "daemon/paths.h"
#include "daemon/wire.h"

#define LIBRARY_NAME   "libforebay_preload.so"
#define LIBRARY_ENV    "FOREBAY_PRELOAD_LIB"
#define PRELOAD_ENV    "LD_PRELOAD"
#define SOCKET_ENV     "FOREBAY_SOCKET"
#define ROOTS_ENV      "FOREBAY_ROOTS"
#define VIRTUAL_ENV    "FOREBAY_VIRTUAL"
#define PRELOAD_SPACES " :" /* what ld.so(8) takes for an end of a name */

/* FB_LIBDIR is the directory of libraries, absolute or as seen from that of programs. */
static const char *const places[] = {"../doors/preload", FB_LIBDIR};

/* ---- finding ---- */

/* The path of this program's file. NULL: not to be had. */
static char *own_path(void)
{
    char buf[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", buf, sizeof buf - 1);

    if (n <= 0)
        return NULL;
    buf[n] = 0;
    return fb_strdup(buf);
}

static int check_library(const char *path, struct fb_error *err)
{
    if (access(path, R_OK) != 0)
        return fb_error_set(err, -errno, "the library %s cannot be used: %s", path,
                            fb_strerror(errno));
    if (strpbrk(path, PRELOAD_SPACES))
        return fb_error_set(
            err, -EINVAL,
            "%s cannot be preloaded from a path with a space or a colon; set " LIBRARY_ENV
            " to a link to it",
            path);
    return 0;
}

static int find_given(const char *given, char **ret_path, struct fb_error *err)
{
    FB_AUTO_FREE char *path = NULL;
    int rc = fb_path_absolute(given, &path);

    if (rc == 0)
        rc = check_library(path, err);
    if (rc)
        return fb_error_set(err, rc, LIBRARY_ENV ": '%s': %s", given, fb_strerror(rc));
    *ret_path = fb_steal(path);
    return 0;
}

int cli_preload_find(char **ret_path, struct fb_error *err)
{
    const char *given = secure_getenv(LIBRARY_ENV);
    FB_AUTO_FREE char *dir = own_path();

    if (given && *given)
        return find_given(given, ret_path, err);
    if (dir)
        *strrchr(dir, '/') = 0;
    for (size_t i = 0; dir && i < FB_ARRAY_SIZE(places); i++) {
        FB_AUTO_FREE char *path = places[i][0] == '/'
                                      ? fb_asprintf("%s/" LIBRARY_NAME, places[i])
                                      : fb_asprintf("%s/%s/" LIBRARY_NAME, dir, places[i]);
        FB_AUTO_FREE char *real = NULL;
        int rc;

        if (!path)
            return fb_error_set(err, -ENOMEM, "out of memory");
        if (access(path, R_OK) != 0)
            continue;
        rc = fb_path_canonical(path, &real);
        if (rc == 0)
            rc = check_library(real, err);
        if (rc == 0)
            *ret_path = fb_steal(real);
        return rc;
    }
    return fb_error_set(err, -ENOENT,
                        "the library " LIBRARY_NAME " is neither beside this program nor "
                        "installed; set " LIBRARY_ENV " to its path");
}

/* ---- the environment of the program ---- */

/* All names, with colons between them. NULL: there is one that cannot be written so. */
static char *join_roots(const json_t *roots)
{
    FB_AUTO_FREE char *joined = NULL;
    size_t i;
    json_t *root;

    json_array_foreach(roots, i, root)
    {
        json_t *wrapped = json_pack("{s:O}", "name", root);
        FB_AUTO_FREE char *name = NULL;
        int rc = fb_wire_get_path(wrapped, "name", &name);
        char *longer;

        json_decref(wrapped);
        if (rc || strchr(name, ':'))
            return NULL;
        longer = joined ? fb_asprintf("%s:%s", joined, name) : fb_strdup(name);
        free(joined);
        joined = longer;
    }
    return fb_steal(joined);
}

/* NAME=POINT for each bucket, with colons between them; "": there is none. Neither has a colon, nor
 * the point an equals sign: the runtime directory that it is in might. */
static char *join_mounted(const json_t *mounted, struct fb_error *err)
{
    char *joined = fb_strdup("");
    size_t i;
    json_t *pair;

    json_array_foreach(mounted, i, pair)
    {
        FB_AUTO_FREE char *before = joined;
        FB_AUTO_FREE char *name = NULL;
        FB_AUTO_FREE char *point = NULL;

        joined = NULL;
        if (fb_wire_get_path(pair, "name", &name) != 0 ||
            fb_wire_get_path(pair, "point", &point) != 0)
            return NULL;
        if (strchr(name, ':') || strpbrk(point, ":=")) {
            (void)fb_error_set(err, -EINVAL,
                               "%s: programs cannot be told of a path with `:` or `=`; set "
                               "FOREBAY_RUNTIME_DIR to another",
                               point);
            return NULL;
        }
        joined = fb_asprintf("%s%s%s=%s", before, *before ? ":" : "", name, point);
    }
    return joined;
}

/* NULL: away with it. There is one thread only. */
static int set_variable(const char *name, const char *value)
{
    int rc = value ? setenv(name, value, 1) : unsetenv(name); /* NOLINT(concurrency-mt-unsafe) */

    return rc == 0 ? 0 : fb_last_error();
}

int cli_preload_set(const char *library, const json_t *reply, struct fb_error *err)
{
    const char *before = secure_getenv(PRELOAD_ENV);
    FB_AUTO_FREE char *preload =
        before && *before ? fb_asprintf("%s:%s", library, before) : fb_strdup(library);
    FB_AUTO_FREE char *roots = join_roots(json_object_get(reply, "roots"));
    FB_AUTO_FREE char *mounted = join_mounted(json_object_get(reply, "mounted"), err);
    FB_AUTO_FREE char *socket = NULL;
    int rc = mounted ? fb_wire_get_path(reply, "socket", &socket) : -EINVAL;

    if (rc == 0)
        rc = preload ? set_variable(PRELOAD_ENV, preload) : -ENOMEM;
    if (rc == 0)
        rc = set_variable(SOCKET_ENV, socket);
    if (rc == 0)
        rc = set_variable(ROOTS_ENV, roots);
    if (rc == 0)
        rc = set_variable(VIRTUAL_ENV, *mounted ? mounted : NULL);
    return rc ? fb_error_set(err, rc, "cannot set up the program: %s", fb_strerror(rc)) : 0;
}

/* ---- without it ---- */

static bool is_ours(const char *name)
{
    const char *given = secure_getenv(LIBRARY_ENV);
    const char *slash = strrchr(name, '/');

    return strcmp(slash ? slash + 1 : name, LIBRARY_NAME) == 0 ||
           (given && strcmp(name, given) == 0);
}

/* Takes our library out of the list, in place. False: it was not there. */
static bool drop_ours(char *list)
{
    char *rest = list;
    char *out = list;
    bool found = false;
    char *name;

    while ((name = strsep(&rest, PRELOAD_SPACES))) {
        size_t len = strlen(name);

        if (len == 0)
            continue;
        if (is_ours(name)) {
            found = true;
            continue;
        }
        if (out > list)
            *out++ = ':';
        memmove(out, name, len);
        out += len;
    }
    *out = 0;
    return found;
}

void cli_preload_shed(char **argv)
{
    const char *set = secure_getenv(PRELOAD_ENV);
    FB_AUTO_FREE char *list = set ? fb_strdup(set) : NULL;
    FB_AUTO_FREE char *path = NULL;

    if (!list || !drop_ours(list))
        return;
    path = own_path();
    if (path && set_variable(PRELOAD_ENV, *list ? list : NULL) == 0 &&
        set_variable(SOCKET_ENV, NULL) == 0 && set_variable(ROOTS_ENV, NULL) == 0)
        execv(path, argv);
}

/* ---- what a program sees elsewhere ---- */

char *cli_preload_point(const char *path)
{
    const char *set = secure_getenv(VIRTUAL_ENV);
    FB_AUTO_FREE char *list = set ? fb_strdup(set) : NULL;
    char *rest = list, *pair;

    while ((pair = strsep(&rest, ":"))) {
        char *equals = strrchr(pair, '=');

        if (!equals)
            continue;
        *equals = '\0';
        if (fb_path_within(pair, path))
            return fb_asprintf("%s%s", equals + 1, path + strlen(pair));
    }
    return NULL;
}
