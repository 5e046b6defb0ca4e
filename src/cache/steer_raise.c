/*
 * What is raised from a disk into DRAM (raise.h), and whether it pays.
 *
 * When RAISE_AFTER reads were answered by a disk while DRAM has free room, the tree is asked what
 * the last of them belongs to (fb_streams_shuffled()): the highest directory that is read in random
 * order, or again and again. That is wider than what owns items (fb_streams_owner()): to copy up
 * what is read once in vain costs free memory and time of a disk, not a source's time or somebody's
 * room. What a stream below it owns that keeps nothing is left out.
 *
 * This is looked at with every look at the accesses, not only when shares are: a set that fits into
 * memory is read to its end in a second.
 *
 * Who reads at random finds in DRAM at least the share of what he reads that was raised, half of
 * that on average so far. Whose readers find less than a part of that (PAYS) is left alone for
 * VAIN_NS.
 */
#include <string.h>

#include "cache/steer_priv.h"
#include "core/clock.h"
#include "core/log.h"

#define RAISE_AFTER 16u
#define NEXT_NS     FB_NS_PER_S        /* between two, */
#define AGAIN_NS    (10 * FB_NS_PER_S) /* of the same */
#define VAIN_NS     (600 * FB_NS_PER_S)
#define JUDGE_FROM  128 /* reads that should have found theirs */
#define PAYS        4

static bool is_below(const char *path, size_t len, const char *dir, size_t dir_len)
{
    return dir_len == 0 || (len >= dir_len && memcmp(path, dir, dir_len) == 0 &&
                            (len == dir_len || path[dir_len] == '/'));
}

void fb_steer_raise_watch(struct fb_steer *steer, const struct fb_access *access, const char *path,
                          size_t len)
{
    struct fb_steer_raise *r = &steer->raise;

    if (!steer->cache->raise)
        return;
    if (access->outcome == FB_ACCESS_MEDIUM && access->loc != FB_LOC_NONE) {
        r->below++;
        r->below_access = *access;
    }
    if (!r->under_way || access->source != r->source || !is_below(path, len, r->path, r->path_len))
        return;
    /* Relaxed: counts, for an estimate. */
    atomic_fetch_add_explicit(&r->reads, 1, memory_order_relaxed);
    if (access->outcome == FB_ACCESS_MEMORY)
        atomic_fetch_add_explicit(&r->found, 1, memory_order_relaxed);
    atomic_store_explicit(&r->read_ns, steer->now_ns, memory_order_relaxed);
}

int64_t fb_steer_raise_read_ns(const struct fb_steer *steer)
{
    return atomic_load_explicit(&steer->raise.read_ns, memory_order_relaxed);
}

bool fb_steer_raise_pays(const struct fb_steer *steer, double share)
{
    double reads = atomic_load_explicit(&steer->raise.reads, memory_order_relaxed);
    double found = atomic_load_explicit(&steer->raise.found, memory_order_relaxed);
    double expected = reads * share / 2;

    return expected < JUDGE_FROM || found * PAYS >= expected;
}

bool fb_steer_raises(struct fb_steer *steer, uint16_t source, const char *dir, uint32_t file)
{
    struct fb_files *files = steer->cache->files;
    size_t len;
    const char *path = fb_files_path(files, file, &len);
    const struct fb_steer_stream *s;
    struct fb_order order;

    if (fb_files_source(files, file) != source || !is_below(path, len, dir, strlen(dir)) ||
        !fb_files_current(files, file))
        return false;
    if (fb_steer_order_of(steer, file, &order))
        return order.pinned || fb_keep_holds(order.keep);
    s = fb_steer_stream_of(steer, file);
    return !s || (s != &steer->planned &&
                  fb_keep_holds(atomic_load_explicit(&s->keep, memory_order_relaxed)));
}

/* What the last read from a disk was one of, and would be read again. */
static bool find_set(struct fb_steer *steer, const struct fb_access *access,
                     char ret_path[FB_PATH_MAX])
{
    struct fb_streams *streams = fb_brain_streams(steer->brain);
    char path[FB_PATH_MAX];
    struct fb_version version;
    uint64_t node = 0;
    size_t len;

    if (!fb_files_peek(steer->cache->files, (uint32_t)(access->key >> 32), access->source, path,
                       &len, &version) ||
        fb_epochs_own(steer->cache->epochs, access->source, path, len))
        return false;
    fb_mutex_lock(&steer->lock);
    node = fb_streams_shuffled(streams, access->source, path, len);
    if (node != 0 && fb_streams_path(streams, node, ret_path, FB_PATH_MAX) >= FB_PATH_MAX)
        node = 0;
    fb_mutex_unlock(&steer->lock);
    return node != 0;
}

/* The last one has ended. */
static void end(struct fb_steer *steer, int64_t now_ns, bool paid)
{
    struct fb_steer_raise *r = &steer->raise;

    r->under_way = false;
    r->next_ns = now_ns + NEXT_NS;
    r->again_ns = now_ns + (paid ? AGAIN_NS : VAIN_NS);
    if (!paid)
        fb_log_info("/%s: what was raised into DRAM is not read; no more is for a while", r->path);
}

void fb_steer_raise(struct fb_steer *steer, int64_t now_ns)
{
    struct fb_raise *raise = steer->cache->raise;
    struct fb_steer_raise *r = &steer->raise;
    char path[FB_PATH_MAX];
    bool paid;

    if (!raise)
        return;
    if (r->under_way && !fb_raise_is_busy(raise, &paid))
        end(steer, now_ns, paid);
    if (r->under_way || r->below < RAISE_AFTER || now_ns < r->next_ns)
        return;
    r->below = 0;
    if (!fb_raise_has_room(raise) ||
        fb_epochs_foretell(steer->cache->epochs, r->below_access.source) ||
        !find_set(steer, &r->below_access, path) ||
        (now_ns < r->again_ns && r->source == r->below_access.source && !strcmp(path, r->path)))
        return;
    r->source = r->below_access.source;
    r->path_len = strlen(path);
    memcpy(r->path, path, r->path_len + 1);
    atomic_store_explicit(&r->reads, 0, memory_order_relaxed);
    atomic_store_explicit(&r->found, 0, memory_order_relaxed);
    atomic_store_explicit(&r->read_ns, now_ns, memory_order_relaxed);
    r->under_way = true;
    fb_raise_start(raise, r->source, path, fb_loc_segment(r->below_access.loc));
}
