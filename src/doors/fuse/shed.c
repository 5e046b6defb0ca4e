/*
 * Keeping the kernel's knowledge within the file table.
 *
 * A record the kernel knows cannot be reclaimed, and the kernel forgets inodes only when memory
 * runs short on the machine, not in our table. So what it may know is bounded: beyond half of the
 * table's room it is asked to drop what nobody uses, part after part of the node table, until a
 * quarter of that is free again. What is dropped and used again costs a LOOKUP. (The bound is for
 * one mount; where several fill the table together, the look-up that finds no room asks for more.)
 *
 * Linux from 6.18 on has a notification for this that takes many nodes and leaves alone what is in
 * use; libfuse of our age does not know it, so we write it ourselves. Elsewhere names of files are
 * invalidated one by one.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

#define PRUNE_MAX     512u /* nodes in one notification */
#define NOTIFY_PRUNE  9    /* FUSE_NOTIFY_PRUNE of protocol 7.45 */
#define PAUSE_NS      FB_NS_PER_MS
#define IN_USE_NS     FB_NS_PER_S /* between rounds while too much is in use */
#define FORGET_PAUSES 20u         /* for the kernel's FORGETs to come in */

/* struct fuse_out_header and struct fuse_notify_prune_out */
struct prune {
    uint32_t length;
    int32_t code;
    uint64_t unique; /* 0: a notification */
    uint32_t count;
    uint32_t padding;
    uint64_t spare;
};

static_assert(sizeof(struct prune) == 32, "as the kernel has it");

static uint64_t record_bytes(const struct fb_mount *mount, uint32_t id)
{
    size_t len;

    fb_files_path(mount->files, id, &len);
    return fb_align_up(sizeof(struct fb_layout_file) + len + 1, 64);
}

void fb_shed_pin(struct fb_mount *mount, uint32_t id)
{
    uint64_t bytes = record_bytes(mount, id);
    /* Relaxed: a sum that is compared with a limit. */
    uint64_t pinned = atomic_fetch_add_explicit(&mount->pinned_bytes, bytes, memory_order_relaxed);

    if (pinned + bytes > mount->pinned_max)
        fb_notifier_shed(mount->notifier, false);
}

void fb_shed_unpin(struct fb_mount *mount, uint32_t id)
{
    atomic_fetch_sub_explicit(&mount->pinned_bytes, record_bytes(mount, id), memory_order_relaxed);
}

static uint64_t pinned_bytes(const struct fb_mount *mount)
{
    return atomic_load_explicit(&mount->pinned_bytes, memory_order_relaxed);
}

bool fb_shed_is_full(const struct fb_mount *mount)
{
    return pinned_bytes(mount) > mount->pinned_max + mount->pinned_max / 4;
}

void fb_shed_init(struct fb_mount *mount)
{
    struct fb_files_stats stats;

    fb_files_stats(mount->files, &stats);
    mount->pinned_max = stats.bytes_total / 2;
}

/* ---- by the notifier's thread ---- */

struct nodes {
    struct fb_mount *mount;
    uint32_t *ids;
    size_t count;
    size_t max;
};

/* With a reference each. */
static void collect(void *arg, uint32_t id)
{
    struct nodes *n = arg;

    if (n->count == n->max)
        return;
    fb_files_ref(n->mount->files, id, 1);
    n->ids[n->count++] = id;
}

/* -EINVAL: not in this kernel. */
static int prune(struct fb_mount *mount, const uint32_t *ids, size_t count)
{
    uint64_t nodes[PRUNE_MAX];
    struct prune head = {.code = NOTIFY_PRUNE};
    struct iovec iov[2] = {{.iov_base = &head, .iov_len = sizeof head}, {.iov_base = nodes}};

    for (size_t done = 0; done < count; done += head.count) {
        head.count = (uint32_t)fb_min_u64(count - done, PRUNE_MAX);
        for (uint32_t i = 0; i < head.count; i++)
            nodes[i] = fb_ino_of(ids[done + i]);
        iov[1].iov_len = head.count * sizeof *nodes;
        head.length = (uint32_t)(sizeof head + iov[1].iov_len);
        if (writev(fuse_session_fd(mount->session), iov, 2) < 0)
            return -errno;
    }
    return 0;
}

/* Directories stay: whoever stands in one would find it deleted. */
static void drop_names(struct fb_mount *mount, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct fb_attr attr;
        uint32_t parent;

        fb_files_attr(mount->files, ids[i], &attr);
        if (!S_ISDIR(attr.mode) && fb_node_known(mount->nodes, ids[i], &parent))
            fb_notify_entry(mount, ids[i], parent);
    }
}

static void shed_part(struct fb_mount *mount, unsigned part)
{
    struct nodes n = {.mount = mount, .max = fb_nodes_part_count(mount->nodes, part)};
    int rc = -EINVAL;

    n.ids = fb_alloc_array(n.max + 1, sizeof *n.ids);
    if (!n.ids)
        return;
    fb_nodes_visit_part(mount->nodes, part, collect, &n);
    if (!mount->no_prune)
        rc = prune(mount, n.ids, n.count);
    if (rc == -EINVAL) {
        mount->no_prune = true;
        drop_names(mount, n.ids, n.count);
    }
    for (size_t i = 0; i < n.count; i++)
        fb_files_unref(mount->files, n.ids[i], 1);
    free(n.ids);
}

void fb_shed(struct fb_mount *mount, bool hard)
{
    uint64_t before = pinned_bytes(mount);
    uint64_t target = hard ? before / 2 : mount->pinned_max - mount->pinned_max / 4;

    if (fb_now_ns() < mount->shed_after_ns && !hard)
        return;
    for (unsigned i = 0; i < FB_NODE_PARTS && pinned_bytes(mount) > target; i++) {
        shed_part(mount, mount->shed_part++ % FB_NODE_PARTS);
        for (unsigned p = 0; p < FORGET_PAUSES && pinned_bytes(mount) > target; p++) {
            uint64_t now = pinned_bytes(mount);

            fb_sleep_ns(PAUSE_NS);
            if (pinned_bytes(mount) == now)
                break;
        }
    }
    if (pinned_bytes(mount) > mount->pinned_max)
        mount->shed_after_ns = fb_now_ns() + IN_USE_NS;
    fb_log_debug("%s: the kernel knew %llu bytes of records, now %llu", mount->config.mountpoint,
                 (unsigned long long)before, (unsigned long long)pinned_bytes(mount));
}
