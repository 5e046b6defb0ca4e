/*
 * Who writes an object has an inode of its own.
 *
 * The kernel has one size and one set of pages an inode, whoever uses it: a program that opens a
 * file with O_TRUNC, writes to it, or cuts it, takes it away from those that read it. Where what is
 * written takes its place as a whole, at the end (`direct`, source/source.h), readers are to keep
 * what they have until then, and after. So the first OPEN for writing is refused:
 *
 *     OPEN for writing of node 5 ─► ESTALE, and a claim: this task, this path, node 9
 *     LOOKUP of the path, by that task ─► node 9 (by anybody else: 5, as ever)
 *     OPEN for writing of node 9 ─► the claim is taken, and the source's file is opened
 *
 * ESTALE makes the kernel look the name up anew, within the same system call, once: open() and
 * truncate() do so. It looks twice, as it finds that its name led to another node, and drops that.
 * Names of such nodes hold for no time, so the next who comes by finds the way to the reader's. Who
 * opens a file for writing without its name (/proc/self/fd/N) gets the ESTALE.
 *
 * A claim that is not taken, as the program was killed, is dropped after FB_FUSE_CLAIM_NS, or when
 * there are too many. A node that is left from it harms nobody: it can be looked at, not opened.
 *
 * Lock: lives_lock.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct claim {
    struct fb_list link;
    uint32_t task;
    uint32_t id; /* with a reference */
    int64_t until_ns;
    char path[];
};

/* ---- under the lock ---- */

static void drop(struct fb_mount *mount, struct claim *claim)
{
    fb_list_remove(&claim->link);
    atomic_fetch_sub_explicit(&mount->claim_count, 1, memory_order_relaxed);
    fb_files_unref(mount->files, claim->id, 1);
    free(claim);
}

/* By path, or by node. */
static struct claim *find(struct fb_mount *mount, uint32_t task, const char *path, uint32_t id)
{
    int64_t now_ns = fb_now_ns();
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &mount->claims) {
        struct claim *claim = FB_LIST_ENTRY(it, struct claim, link);

        if (claim->until_ns < now_ns)
            drop(mount, claim);
        else if (claim->task == task && (path ? strcmp(claim->path, path) == 0 : claim->id == id))
            return claim;
    }
    return NULL;
}

static bool is_any(const struct fb_mount *mount)
{
    /* Relaxed: who was refused has waited for the answer. */
    return atomic_load_explicit(&mount->claim_count, memory_order_relaxed) > 0;
}

/* ---- */

static int make(struct fb_mount *mount, uint32_t task, uint32_t refused, const char *path)
{
    size_t size = strlen(path) + 1;
    struct claim *claim = fb_alloc(sizeof *claim + size);
    struct claim *old;
    struct fb_attr attr;
    int rc;

    if (!claim)
        return -ENOMEM;
    fb_files_attr(mount->files, refused, &attr);
    rc = fb_cache_aside(mount->volume, path, &attr, &claim->id);
    if (rc < 0) {
        free(claim);
        return rc;
    }
    fb_list_init(&claim->link);
    claim->task = task;
    claim->until_ns = fb_now_ns() + FB_FUSE_CLAIM_NS;
    memcpy(claim->path, path, size);
    fb_mutex_lock(&mount->lives_lock);
    old = find(mount, task, path, 0);
    if (!old &&
        atomic_load_explicit(&mount->claim_count, memory_order_relaxed) >= FB_FUSE_CLAIMS_MAX)
        old = FB_LIST_ENTRY(mount->claims.next, struct claim, link);
    if (old)
        drop(mount, old);
    fb_list_push_back(&mount->claims, &claim->link);
    atomic_fetch_add_explicit(&mount->claim_count, 1, memory_order_relaxed);
    fb_mutex_unlock(&mount->lives_lock);
    return 0;
}

void fb_claim(fuse_req_t req, uint32_t id)
{
    struct fb_mount *mount = fb_mount_of(req);
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(mount, id, buf, NULL);
    int rc = path ? make(mount, fb_caller_of(req).pid, id, path) : 0;

    fuse_reply_err(req, rc < 0 ? -rc : ESTALE);
}

bool fb_claim_lookup(fuse_req_t req, uint32_t parent, const char *path)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fuse_entry_param entry;
    struct claim *claim;
    struct fb_attr attr;
    uint32_t id = FB_FILE_NONE;
    int rc;

    if (!is_any(mount))
        return false;
    fb_mutex_lock(&mount->lives_lock);
    claim = find(mount, fb_caller_of(req).pid, path, 0);
    if (claim) {
        id = claim->id;
        fb_files_ref(mount->files, id, 1);
    }
    fb_mutex_unlock(&mount->lives_lock);
    if (id == FB_FILE_NONE)
        return false;
    fb_files_attr(mount->files, id, &attr);
    rc = fb_entry_make(mount, id, parent, &attr, 0, &entry);
    if (rc < 0) {
        fuse_reply_err(req, -rc);
        return true;
    }
    fb_live_touch(mount, id, path, &attr);
    fb_entry_live(mount, id, &attr, &entry);
    if (fuse_reply_entry(req, &entry) != 0)
        fb_entry_forget(mount, id, 1); /* interrupted: the kernel never heard of it */
    return true;
}

bool fb_claim_take(fuse_req_t req, uint32_t id)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct claim *claim = NULL;

    if (!is_any(mount))
        return false;
    fb_mutex_lock(&mount->lives_lock);
    claim = find(mount, fb_caller_of(req).pid, NULL, id);
    if (claim)
        drop(mount, claim);
    fb_mutex_unlock(&mount->lives_lock);
    return claim != NULL;
}

void fb_claims_end(struct fb_mount *mount)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&mount->lives_lock);
    FB_LIST_FOREACH (it, tmp, &mount->claims)
        drop(mount, FB_LIST_ENTRY(it, struct claim, link));
    fb_mutex_unlock(&mount->lives_lock);
}
