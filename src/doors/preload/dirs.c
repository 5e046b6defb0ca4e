/*
 * Where directories are: the current one, and those that the program has descriptors of. A name
 * relative to one of them costs no system call of its own that way.
 *
 * What the kernel said is remembered for a second, since another process may move a directory, or
 * one above it; when this program moves or removes one, nothing is believed any more, and when a
 * number becomes another directory's, nothing of that number.
 *
 *     unknown ── asked ──► known ── moved, reused, a second later ──► unknown
 *
 * A place is read without a lock: its version is the same before and after, and even. One writes at
 * a time; who finds it being written asks the kernel himself, also a signal handler of the writer.
 */
#include <string.h>

#include "doors/preload/preload_priv.h"

#define PLACES     64 /* of descriptors, by their number */
#define BELIEVE_NS 1000000000LL

struct fb_pl_place fb_pl_here;
static struct fb_pl_place places[PLACES];

static struct fb_pl_place *place_of(int dir)
{
    return dir == AT_FDCWD ? &fb_pl_here : &places[(unsigned)dir % PLACES];
}

static int owner(int dir)
{
    return dir == AT_FDCWD ? dir : dir + 1;
}

/* Relaxed, here and below: the version says whether they belong together. */
static bool recall(const struct fb_pl_place *p, int dir, uint32_t version, int64_t now_ns,
                   char *ret)
{
    uint32_t bytes = atomic_load_explicit(&p->bytes, memory_order_relaxed);
    int64_t asked_ns = atomic_load_explicit(&p->asked_ns, memory_order_relaxed);

    if ((version & 1) || atomic_load_explicit(&p->whose, memory_order_relaxed) != owner(dir) ||
        bytes > FB_CLIENT_FILE_PATH || now_ns - asked_ns >= BELIEVE_NS)
        return false;
    for (unsigned i = 0; i * sizeof(uint64_t) < bytes; i++) {
        uint64_t word = atomic_load_explicit(&p->path[i], memory_order_relaxed);

        memcpy(ret + i * sizeof word, &word, sizeof word);
    }
    /* Pairs with the compare-and-swaps of whoever writes or forgets. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&p->version, memory_order_relaxed) == version;
}

/* `version` is from before the kernel was asked: whatever was forgotten since is not brought back.
 */
static void remember(struct fb_pl_place *p, int dir, uint32_t version, int64_t now_ns,
                     const char *path)
{
    uint32_t bytes = (uint32_t)strlen(path) + 1, writing = version + 1;

    if ((version & 1) || !atomic_compare_exchange_strong(&p->version, &version, writing))
        return;
    /* Nothing of what follows is seen with the version of before. */
    atomic_thread_fence(memory_order_release);
    for (unsigned i = 0; i * sizeof(uint64_t) < bytes; i++) {
        uint64_t word = 0;

        memcpy(&word, path + i * sizeof word, fb_min_u64(sizeof word, bytes - i * sizeof word));
        atomic_store_explicit(&p->path[i], word, memory_order_relaxed);
    }
    atomic_store_explicit(&p->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&p->asked_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&p->whose, owner(dir), memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&p->version, &writing, writing + 1)) {
        atomic_store_explicit(&p->whose, 0, memory_order_relaxed); /* forgotten meanwhile */
        atomic_fetch_add(&p->version, 1);
    }
}

static void forget(struct fb_pl_place *p)
{
    atomic_fetch_add(&p->version, 2);
    atomic_store_explicit(&p->whose, 0, memory_order_relaxed);
}

static bool ask(int dir, char ret[FB_CLIENT_FILE_PATH])
{
    if (dir != AT_FDCWD)
        return fb_client_path_of(dir, ret);
    /* What lies outside this process's root directory is told as "(unreachable)". */
    return fb_sys(SYS_getcwd, ret, FB_CLIENT_FILE_PATH, 0, 0) > 0 && ret[0] == '/';
}

bool fb_pl_dir_path(int dir, char ret_path[FB_CLIENT_FILE_PATH])
{
    struct fb_pl_place *p = place_of(dir);
    uint32_t version = atomic_load_explicit(&p->version, memory_order_acquire);
    int64_t now_ns = fb_client_coarse_ns();

    if (fb_likely(recall(p, dir, version, now_ns, ret_path)))
        return true;
    if (!ask(dir, ret_path))
        return false;
    remember(p, dir, version, now_ns, ret_path);
    return true;
}

static bool find_far(void)
{
    char path[FB_CLIENT_FILE_PATH];
    uint32_t version;
    bool far;

    /* The child of a vfork may be elsewhere: its parent is not. */
    if (fb_pl_vforked || !fb_pl_dir_path(AT_FDCWD, path))
        return false;
    version = atomic_load_explicit(&fb_pl_here.version, memory_order_acquire);
    if (!recall(&fb_pl_here, AT_FDCWD, version, fb_client_coarse_ns(), path))
        return false;
    far = fb_pl_apart(path);
    atomic_store_explicit(&fb_pl_here.verdict, (version + 2) | far, memory_order_relaxed);
    return far;
}

/* However old that is: who passes a path on is always right. */
bool fb_pl_far(void)
{
    uint32_t version = atomic_load_explicit(&fb_pl_here.version, memory_order_relaxed);
    uint32_t said = atomic_load_explicit(&fb_pl_here.verdict, memory_order_relaxed);

    return fb_likely((said & ~1u) == version + 2) ? (said & 1) != 0 : find_far();
}

void fb_pl_dir_forget(int dir)
{
    /* Also while it is nobody's: somebody may just be asking. */
    forget(place_of(dir));
}

void fb_pl_dirs_moved(void)
{
    forget(&fb_pl_here);
    for (unsigned i = 0; i < PLACES; i++)
        forget(&places[i]);
}

void fb_pl_dirs_in_child(void)
{
    for (unsigned i = 0; i <= PLACES; i++) {
        struct fb_pl_place *p = i < PLACES ? &places[i] : &fb_pl_here;

        /* The thread that was writing is not here to finish it. */
        if (atomic_load(&p->version) & 1) {
            atomic_store(&p->whose, 0);
            atomic_fetch_add(&p->version, 1);
        }
    }
}
