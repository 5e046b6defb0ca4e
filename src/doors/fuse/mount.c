/*
 * The life of a mount.
 *
 *     start: mount point fit ► source attached, root known ► mounted ► threads ► the kernel's first
 *            question answered: live
 *     stop:  unmounted (lazily: the kernel may still send) ► notifier ended, while requests are
 *            still served, for it may wait for one ► threads ended ► requests under way finish, by
 *            their deadlines at the latest ► connection closed ► references given back ► volume
 *            detached
 *
 * A mount whose requests do not finish is left in memory, as they will come back to it: then the
 * end is FB_MOUNT_STUCK.
 */
#include "doors/fuse/mount.h"

#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

#define POLL_NS       (1 * FB_NS_PER_MS)
#define BUSY_TRIES    20
#define BUSY_PAUSE_NS (50 * FB_NS_PER_MS)

static void retired(void *arg, uint32_t file)
{
    struct fb_mount *mount = arg;

    fb_notifier_retired(mount->notifier, file);
}

static void drop(void *arg, uint32_t id)
{
    struct fb_mount *mount = arg;

    fb_files_unref(mount->files, id, 1);
}

/* Takes half-built mounts; nothing is served any more. */
static void release(struct fb_mount *mount)
{
    fb_session_close(mount);
    /* Until then other mounts of the source may still tell us of records that are retired. */
    if (mount->volume)
        fb_volume_detach(mount->volume);
    fb_notifier_destroy(mount->notifier);
    fb_claims_end(mount);
    if (mount->nodes)
        fb_nodes_visit(mount->nodes, FB_NODE_ANY_PARENT, drop, mount);
    if (mount->root != FB_FILE_NONE)
        fb_files_unref(mount->files, mount->root, 1);
    fb_nodes_destroy(mount->nodes);
    fb_lives_destroy(mount->lives);
    fb_crowd_destroy(mount);
    fb_mutex_destroy(&mount->lives_lock);
    fb_mutex_destroy(&mount->dirs_lock);
    free((char *)(uintptr_t)mount->config.mountpoint);
    free((char *)(uintptr_t)mount->config.fs_name);
    free(mount);
}

static int build(struct fb_cache *cache, const struct fb_mount_config *config,
                 struct fb_mount **ret_mount, struct fb_error *err)
{
    struct fb_mount *mount = fb_alloc(sizeof *mount);
    char *mountpoint = NULL;
    int rc;

    if (!mount) {
        fb_error_set(err, -ENOMEM, "no memory to mount %s", config->mountpoint);
        return -ENOMEM;
    }
    mount->config = *config;
    mount->config.mountpoint = NULL;
    mount->config.fs_name = fb_strdup(config->fs_name);
    if (mount->config.max_background == 0)
        mount->config.max_background = FB_FUSE_BACKGROUND;
    mount->cache = cache;
    mount->files = fb_cache_files(cache);
    fb_shed_init(mount);
    fb_crowd_init(mount);
    fb_mutex_init(&mount->dirs_lock, FB_RANK_DOOR);
    fb_list_init(&mount->dirs);
    fb_mutex_init(&mount->lives_lock, FB_RANK_LIVE);
    fb_list_init(&mount->handles);
    fb_list_init(&mount->claims);
    if (fb_mount_is_static(mount))
        mount->config.read_only = true;
    if (!mount->config.fs_name || fb_nodes_create(&mount->nodes) < 0 ||
        fb_lives_create(&mount->lives) < 0 || fb_notifier_create(mount, &mount->notifier) < 0)
        rc = fb_error_set(err, -ENOMEM, "no memory to mount %s", config->mountpoint);
    else
        rc = fb_mountpoint_prepare(config, &mountpoint, err);
    if (rc < 0) {
        release(mount);
        return rc;
    }
    mount->config.mountpoint = mountpoint;
    *ret_mount = mount;
    return 0;
}

static int attach(struct fb_mount *mount, struct fb_source *source, struct fb_error *err)
{
    struct fb_volume_config config = {
        .metadata_ttl_ns = mount->config.metadata_ttl_ns,
        .timeout_ns = mount->config.timeout_ns,
        .bypass = mount->config.bypass,
        .retired = retired,
        .arg = mount,
    };
    struct fb_attr attr;
    int rc;

    /* What the kernel dropped for want of memory is found here, as long as it would have kept
     * it. */
    if (fb_mount_is_static(mount) && config.metadata_ttl_ns < FB_FUSE_FOREVER_NS)
        config.metadata_ttl_ns = FB_FUSE_FOREVER_NS;
    rc = fb_volume_attach(mount->cache, source, &config, &mount->volume, err);
    if (rc < 0)
        return rc;
    mount->direct = fb_source_is_direct(source);
    rc = fb_cache_stat(mount->volume, "", &mount->root, &attr);
    if (rc < 0)
        return fb_error_set(err, rc, "cannot read %s: %s", mount->config.fs_name, fb_strerror(rc));
    if (!S_ISDIR(attr.mode))
        return fb_error_set(err, -ENOTDIR, "%s is not a directory", mount->config.fs_name);
    return 0;
}

/* The kernel's first question waits until it was told who we are; so its answer says that all is
 * well, and what the mount's device number is. */
static int go_live(struct fb_mount *mount, struct fb_error *err)
{
    struct stat st;
    int rc = fb_session_start(mount, err);

    if (rc < 0)
        return rc;
    rc = fb_notifier_start(mount->notifier);
    if (rc < 0)
        return fb_error_set(err, rc, "cannot start a thread for %s: %s", mount->config.mountpoint,
                            fb_strerror(rc));
    if (stat(mount->config.mountpoint, &st) < 0) {
        rc = -errno;
        return fb_error_set(err, rc, "%s is mounted but does not answer: %s",
                            mount->config.mountpoint, fb_strerror(rc));
    }
    mount->dev = st.st_dev;
    fb_mountpoint_set_read_ahead(st.st_dev);
    return 0;
}

static bool wait_for_requests(struct fb_mount *mount)
{
    int64_t until_ns = fb_now_ns() + mount->config.timeout_ns + FB_FUSE_STOP_WAIT_NS;

    /* Acquire: partner of fb_request_end(). */
    while (atomic_load_explicit(&mount->requests, memory_order_acquire) > 0) {
        if (fb_now_ns() > until_ns)
            return false;
        fb_sleep_ns(POLL_NS);
    }
    return true;
}

/* Unmounted, or about to be cut off. 0 or FB_MOUNT_STUCK. */
static int wind_down(struct fb_mount *mount)
{
    bool idle;

    /* Release: partner of the threads' look at it when they leave. */
    atomic_store_explicit(&mount->stopping, true, memory_order_release);
    fb_notifier_stop(mount->notifier);
    idle = fb_session_join(mount) && wait_for_requests(mount);
    if (idle) {
        fb_dirs_close(mount);
        fb_handles_close(mount);
        idle = wait_for_requests(mount);
    }
    if (!idle) {
        fb_log_error("%s: requests are still under way long after their deadline",
                     mount->config.mountpoint);
        return FB_MOUNT_STUCK;
    }
    release(mount);
    return 0;
}

int fb_mount_start(struct fb_cache *cache, struct fb_source *source,
                   const struct fb_mount_config *config, struct fb_mount **ret_mount,
                   struct fb_error *err)
{
    struct fb_mount *mount;
    int rc = build(cache, config, &mount, err);

    if (rc < 0) {
        fb_source_close(source);
        return rc;
    }
    rc = attach(mount, source, err);
    if (rc == 0)
        rc = fb_session_open(mount, err);
    if (rc < 0) {
        release(mount);
        return rc;
    }
    rc = go_live(mount, err);
    if (rc < 0) {
        /* The threads that run answer what the kernel asks on its way out. */
        if (fb_mount_remove(mount->config.mountpoint, true) < 0)
            fb_log_warn("%s: cannot unmount", mount->config.mountpoint);
        return wind_down(mount) == FB_MOUNT_STUCK ? FB_MOUNT_STUCK : rc;
    }
    *ret_mount = mount;
    return 0;
}

/* Whoever merely looks at the mount at this moment (`df`, the start of another daemon) makes it
 * busy, too; programs that use it do so for longer. */
static int remove_unused(const char *mountpoint)
{
    int rc = fb_mount_remove(mountpoint, false);

    for (unsigned tries = 0; rc == -EBUSY && tries < BUSY_TRIES; tries++) {
        fb_sleep_ns(BUSY_PAUSE_NS);
        rc = fb_mount_remove(mountpoint, false);
    }
    return rc;
}

int fb_mount_stop(struct fb_mount *mount, bool force)
{
    const char *mountpoint = mount->config.mountpoint;
    int rc = 0;

    /* By path, so only while it is ours that stands there. */
    if (fb_mountpoint_is_mounted(mountpoint, mount->dev)) {
        atomic_store_explicit(&mount->stopping, true, memory_order_release);
        rc = remove_unused(mountpoint);
        if (rc == -EBUSY && force)
            rc = fb_mount_remove(mountpoint, true);
        if (rc < 0 && !force) {
            atomic_store_explicit(&mount->stopping, false, memory_order_release);
            return rc;
        }
    }
    return wind_down(mount);
}

void fb_mount_flush(struct fb_mount *mount)
{
    if (!fb_notifier_flush(mount->notifier, fb_now_ns() + FB_FUSE_STOP_WAIT_NS))
        fb_log_warn("%s: the kernel takes long to forget", mount->config.mountpoint);
}

struct fb_volume *fb_mount_volume(struct fb_mount *mount)
{
    return mount->volume;
}

const char *fb_mount_point(const struct fb_mount *mount)
{
    return mount->config.mountpoint;
}
