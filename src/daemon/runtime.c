#include "daemon/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/hash.h"
#include "core/mem.h"
#include "daemon/last_error.h"
#include "daemon/paths.h"
#include "store/cachedir.h"

#define LOCK_NAME     "daemon.lock"
#define SOCKET_SUFFIX ".sock"
#define CLIENT_SUFFIX ".client"
#define MOUNTS_SUFFIX ".mounts"

static char *runtime_path(void)
{
    const char *set = secure_getenv("FOREBAY_RUNTIME_DIR");
    const char *xdg = secure_getenv("XDG_RUNTIME_DIR");

    if (set && *set == '/')
        return fb_strdup(set);
    if (geteuid() == 0)
        return fb_strdup("/run/forebay");
    if (xdg && *xdg == '/')
        return fb_asprintf("%s/forebay", xdg);
    return fb_asprintf("/tmp/forebay-%u", (unsigned)geteuid());
}

/* Root may look into the directories of others, but a daemon of root makes its socket in its own.
 */
static int check_dir(const char *path, bool own, struct fb_error *err)
{
    struct stat st;

    if (lstat(path, &st) != 0) {
        int rc = fb_last_error();

        (void)fb_error_set(err, rc, "%s: %s", path, fb_strerror(rc));
        return rc;
    }
    if (!S_ISDIR(st.st_mode))
        return fb_error_set(err, -ENOTDIR,
                            "%s should be the directory of sockets but is something else; set "
                            "FOREBAY_RUNTIME_DIR to another",
                            path);
    if (st.st_uid != geteuid() && (own || geteuid() != 0))
        return fb_error_set(err, -EPERM,
                            "%s belongs to another user; set FOREBAY_RUNTIME_DIR to a directory of "
                            "your own",
                            path);
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return fb_error_set(err, -EPERM,
                            "%s can be written to by others; make it private: "
                            "chmod 700 %s",
                            path, path);
    return 0;
}

int fb_runtime_dir(bool make, char **ret_dir, struct fb_error *err)
{
    FB_AUTO_FREE char *path = runtime_path();
    struct stat st;
    int rc;

    if (!path)
        return fb_error_set(err, -ENOMEM, "out of memory");
    if (make) {
        rc = fb_path_mkdirs(path, 0700);
        if (rc)
            return fb_error_set(err, rc, "cannot make the directory of sockets %s: %s", path,
                                fb_strerror(rc));
    } else if (lstat(path, &st) != 0 && errno == ENOENT) {
        return -ENOENT;
    }
    rc = check_dir(path, make, err);
    if (rc)
        return rc;
    *ret_dir = fb_steal(path);
    return 0;
}

static int socket_path(const char *home, bool make, const char *suffix, char **ret_path,
                       struct fb_error *err)
{
    FB_AUTO_FREE char *dir = NULL;
    FB_AUTO_FREE char *path = NULL;
    int rc = fb_runtime_dir(make, &dir, err);

    if (rc)
        return rc;
    path = fb_asprintf("%s/%016" PRIx64 "%s", dir, fb_hash64(home, strlen(home)), suffix);
    if (!path)
        return fb_error_set(err, -ENOMEM, "out of memory");
    if (strlen(path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return fb_error_set(err, -ENAMETOOLONG,
                            "%s is too long a name for a socket; set FOREBAY_RUNTIME_DIR to a "
                            "shorter one",
                            path);
    *ret_path = fb_steal(path);
    return 0;
}

int fb_runtime_socket(const char *home, bool make, char **ret_path, struct fb_error *err)
{
    return socket_path(home, make, SOCKET_SUFFIX, ret_path, err);
}

int fb_runtime_client_socket(const char *home, bool make, char **ret_path, struct fb_error *err)
{
    return socket_path(home, make, CLIENT_SUFFIX, ret_path, err);
}

int fb_runtime_mounts(const char *home, char **ret_path, struct fb_error *err)
{
    return socket_path(home, true, MOUNTS_SUFFIX, ret_path, err);
}

static int is_socket_name(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    size_t suffix = sizeof SOCKET_SUFFIX - 1;

    return len > suffix && strcmp(entry->d_name + len - suffix, SOCKET_SUFFIX) == 0;
}

int fb_runtime_sockets(char ***ret_paths, struct fb_error *err)
{
    FB_AUTO_FREE char *dir = NULL;
    struct dirent **entries = NULL;
    char **paths = fb_alloc_array(FB_RUNTIME_SOCKETS_MAX + 1, sizeof *paths);
    int count = 0;
    int used = 0;
    int rc = paths ? fb_runtime_dir(false, &dir, err) : -ENOMEM;

    if (rc == 0 && dir)
        count = scandir(dir, &entries, is_socket_name, alphasort);
    for (int i = 0; i < count; i++) {
        if (used < FB_RUNTIME_SOCKETS_MAX &&
            (paths[used] = fb_asprintf("%s/%s", dir, entries[i]->d_name)))
            used++;
        free(entries[i]);
    }
    free(entries);
    if (rc && rc != -ENOENT) {
        fb_runtime_sockets_free(paths);
        return rc;
    }
    *ret_paths = paths;
    return 0;
}

void fb_runtime_sockets_free(char **paths)
{
    for (char **p = paths; p && *p; p++)
        free(*p);
    free(paths);
}

static int make_home(const char *home, struct fb_error *err)
{
    FB_AUTO_CLOSE int fd = -1;
    struct stat st;
    int rc = fb_path_mkdirs(home, 0700);

    if (rc)
        return fb_error_set(err, rc,
                            "cannot make the cache directory %s: %s; another is "
                            "chosen with --cache-dir",
                            home, fb_strerror(rc));
    fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return fb_error_set(err, -errno, "%s: %s", home, fb_strerror(errno));
    if (st.st_uid != geteuid())
        return fb_error_set(err, -EPERM,
                            "the cache directory %s belongs to another user; write --cache-dir DIR",
                            home);
    return fb_cachedir_make_private(fd, home, st.st_mode, err);
}

static int refuse_locked(int fd, const char *home, struct fb_error *err)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;

    if (pid > 0)
        return fb_error_set(err, -EBUSY,
                            "the cache directory %s is in use by process %ld; write another "
                            "--cache-dir, or end that process",
                            home, pid);
    return fb_error_set(err, -EBUSY,
                        "the cache directory %s is in use by another process; write another "
                        "--cache-dir",
                        home);
}

int fb_runtime_lock(const char *home, int *ret_fd, struct fb_error *err)
{
    FB_AUTO_FREE char *path = NULL;
    FB_AUTO_CLOSE int fd = -1;
    int rc = make_home(home, err);

    if (rc)
        return rc;
    path = fb_asprintf("%s/" LOCK_NAME, home);
    if (!path)
        return fb_error_set(err, -ENOMEM, "out of memory");
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fb_error_set(err, -errno, "cannot write to the cache directory %s: %s", home,
                            fb_strerror(errno));
    rc = flock(fd, LOCK_EX | LOCK_NB) != 0 ? -errno : 0;
    if (rc == -EWOULDBLOCK)
        return refuse_locked(fd, home, err);
    if (rc < 0) /* Lustre without -o flock, NFS without its lock daemon */
        return fb_error_set(err, rc,
                            "cannot lock the cache directory %s: %s; write --cache-dir with a "
                            "directory on a local disk",
                            home, fb_strerror(rc));
    /* For the sentence above only; the lock is what counts. A full disk is no reason to end. */
    if ((ftruncate(fd, 0) != 0 || dprintf(fd, "%ld\n", (long)getpid()) < 0) && errno != ENOSPC &&
        errno != EDQUOT)
        return fb_error_set(err, -errno, "cannot write to the cache directory %s: %s", home,
                            fb_strerror(errno));
    *ret_fd = fb_steal_fd(&fd);
    return 0;
}
