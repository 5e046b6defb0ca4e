#include "daemon/private_mount.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/paths.h"
#include "daemon/source_dir.h"
#include "doors/fuse/mount.h"

struct fb_private_mount {
    struct fb_mount *mount;
    char *point;
};

/* ---- names ---- */

static const char *variable(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

static const char *first_of(const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (texts[i] && *texts[i])
            return texts[i];
    return "";
}

/* A profile may name an endpoint, too, when nothing else does. */
char *fb_private_mount_key(const char *source, const struct fb_mount_settings *settings)
{
    const char *endpoints[] = {settings->endpoint_url,
                               variable(settings->env, "AWS_ENDPOINT_URL_S3"),
                               variable(settings->env, "AWS_ENDPOINT_URL")};
    const char *profiles[] = {settings->profile, variable(settings->env, "AWS_PROFILE")};
    const char *endpoint = first_of(endpoints, FB_ARRAY_SIZE(endpoints));

    return fb_asprintf("%s\n%s\n%s", source, endpoint,
                       *endpoint ? "" : first_of(profiles, FB_ARRAY_SIZE(profiles)));
}

/* ---- life ---- */

static void mount_free(struct fb_private_mount *m)
{
    if (m)
        free(m->point);
    free(m);
}

static int check_fuse(const char *source, struct fb_error *err)
{
    int rc = access("/dev/fuse", R_OK | W_OK) == 0 ? 0 : -errno;

    return rc ? fb_error_set(err, rc, "programs can see %s only with FUSE, and /dev/fuse: %s",
                             source, fb_strerror(rc))
              : 0;
}

static int make_point(const char *dir, const char *key, char **ret_point, struct fb_error *err)
{
    FB_AUTO_FREE char *point = fb_asprintf("%s/%016" PRIx64, dir, fb_hash64(key, strlen(key)));
    int rc = point ? fb_path_mkdirs(point, 0700) : -ENOMEM;

    if (rc)
        return fb_error_set(err, rc, "cannot make a directory in %s: %s", dir, fb_strerror(rc));
    *ret_point = fb_steal(point);
    return 0;
}

int fb_private_mount_start(struct fb_cache *cache, const char *dir, const char *source,
                           const char *key, const struct fb_mount_settings *settings,
                           const struct fb_own_dirs *own, struct fb_private_mount **ret_mount,
                           struct fb_error *err)
{
    struct fb_private_mount *m = fb_alloc(sizeof *m);
    struct fb_mount_settings private = *settings;
    int rc = m ? check_fuse(source, err) : -ENOMEM;

    if (rc == 0)
        rc = make_point(dir, key, &m->point, err);
    if (rc) {
        mount_free(m);
        return fb_error_set(err, rc, "out of memory");
    }
    private.allow_other = false;
    rc = fb_source_dir_mount(cache, source, m->point, &private, own, NULL, NULL, &m->mount, err);
    if (rc == 0) {
        *ret_mount = m;
        return 0;
    }
    rmdir(m->point);
    mount_free(m);
    return fb_error_set(err, rc, "cannot mount %s for programs: %s", source, fb_strerror(rc));
}

int fb_private_mount_stop(struct fb_private_mount *mount)
{
    int rc = fb_mount_stop(mount->mount, true);

    if (rmdir(mount->point) != 0)
        fb_log_warn("cannot remove %s: %s", mount->point, fb_strerror(errno));
    mount_free(mount);
    return rc;
}

struct fb_volume *fb_private_mount_volume(const struct fb_private_mount *mount)
{
    return fb_mount_volume(mount->mount);
}

const char *fb_private_mount_point(const struct fb_private_mount *mount)
{
    return mount->point;
}

/* ---- what others left ---- */

static int is_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

void fb_private_mounts_clear(const char *dir)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, is_name, alphasort);

    if (count < 0)
        return;
    for (int i = 0; i < count; i++) {
        FB_AUTO_FREE char *path = fb_asprintf("%s/%s", dir, entries[i]->d_name);
        struct fb_error error = {""};

        if (path && (fb_mount_clear(path, &error) != 0 || rmdir(path) != 0))
            fb_log_warn("cannot remove %s: %s", path,
                        error.text[0] ? error.text : fb_strerror(errno));
        free(entries[i]);
    }
    free(entries);
    if (rmdir(dir) != 0)
        fb_log_warn("cannot remove %s: %s", dir, fb_strerror(errno));
}
