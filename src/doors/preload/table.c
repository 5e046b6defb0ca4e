/*
 * The table of descriptors. A slot says what stands behind a number: nothing of ours, a file (its
 * place in the pool + 1), or a directory below a root. Files are counted by their descriptors and
 * by the calls that use them, as in the kernel: a file outlives a close() that overtakes a read().
 *
 * Stale numbers. A descriptor that is closed past us (inside libc, by a raw system call) leaves its
 * slot behind; so every opener clears the slot of the number it got, and every closer that of the
 * number it closes.
 */
#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "doors/preload/preload_priv.h"

#define BUSY_TRIES  100000 /* who makes a descriptor real may have been killed on the way */
#define BUSY_NAP_NS 50000
#define GET_TRIES   1000 /* of a number that becomes one file after the other */

struct fb_client fb_pl_client;
_Atomic uint32_t fb_pl_slots[FB_PL_FDS];
_Atomic uint32_t fb_pl_windows;
_Atomic bool fb_pl_active;
_Atomic int fb_pl_highest;
_Atomic uint32_t fb_pl_writers;
_Atomic uint32_t fb_pl_locked_count; /* beside it: who opens a file looks at both */
_Thread_local bool fb_pl_vforked;

static _Atomic(struct fb_pl_file *) pool;
static _Atomic uint32_t pool_used;
static _Atomic uint64_t pool_free; /* low half: place + 1 of the first; high half: a tag */
_Atomic int fb_pl_placeholder = -1;

void *fb_pl_look_for(struct fb_pl_symbol *symbol)
{
    int saved = errno;
    void *f = dlsym(RTLD_NEXT, symbol->name);

    errno = saved;
    atomic_store_explicit(&symbol->function, f, memory_order_relaxed);
    return f;
}

/* The section's ends, which the linker knows. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
extern struct fb_pl_symbol __start_fb_pl_symbols[] __attribute__((visibility("hidden")));
extern struct fb_pl_symbol __stop_fb_pl_symbols[] __attribute__((visibility("hidden")));

/* NOLINTEND(bugprone-reserved-identifier) */

void fb_pl_find_all(void)
{
    for (struct fb_pl_symbol *s = __start_fb_pl_symbols; s < __stop_fb_pl_symbols; s++)
        (void)fb_pl_real(s);
}

/* ---- the pool ---- */

static struct fb_pl_file *pool_memory(void)
{
    struct fb_pl_file *p = atomic_load_explicit(&pool, memory_order_acquire), *fresh;

    if (fb_likely(p != NULL))
        return p;
    fresh = fb_sys_memory(FB_PL_FILES * sizeof *fresh);
    if (!fresh)
        return NULL;
    if (!atomic_compare_exchange_strong(&pool, &p, fresh)) {
        fb_sys_munmap(fresh, FB_PL_FILES * sizeof *fresh);
        return p;
    }
    return fresh;
}

static struct fb_pl_file *pool_take(void)
{
    struct fb_pl_file *p = pool_memory();
    uint64_t head = atomic_load(&pool_free);
    uint32_t no;

    if (!p)
        return NULL;
    while ((uint32_t)head != 0) {
        struct fb_pl_file *f = &p[(uint32_t)head - 1];
        uint64_t next =
            ((head >> 32) + 1) << 32 | atomic_load_explicit(&f->next_free, memory_order_relaxed);

        if (atomic_compare_exchange_weak(&pool_free, &head, next))
            return f;
    }
    no = atomic_fetch_add(&pool_used, 1);
    if (no >= FB_PL_FILES) {
        atomic_fetch_sub(&pool_used, 1);
        return NULL;
    }
    return &p[no];
}

uint32_t fb_pl_place(const struct fb_pl_file *f)
{
    return (uint32_t)(f - atomic_load_explicit(&pool, memory_order_relaxed)) + 1;
}

static void pool_give(struct fb_pl_file *f)
{
    uint64_t head = atomic_load(&pool_free), mine;

    do {
        atomic_store_explicit(&f->next_free, (uint32_t)head, memory_order_relaxed);
        mine = ((head >> 32) + 1) << 32 | fb_pl_place(f);
    } while (!atomic_compare_exchange_weak(&pool_free, &head, mine));
}

struct fb_pl_file *fb_pl_new(enum fb_pl_kind kind)
{
    struct fb_pl_file *f = pool_take();

    if (!f)
        return NULL;
    f->kind = (uint8_t)kind;
    f->flags = 0;
    f->window = NULL;
    f->window_bytes = 0;
    atomic_store_explicit(&f->window_busy, false, memory_order_relaxed);
    atomic_store_explicit(&f->used, 0, memory_order_relaxed);
    atomic_store_explicit(&f->offset, 0, memory_order_relaxed);
    atomic_store_explicit(&f->shadow, -1, memory_order_relaxed);
    atomic_store_explicit(&f->forked, false, memory_order_relaxed);
    if (kind == FB_PL_WRITER)
        atomic_fetch_add(&fb_pl_writers, 1);
    atomic_store_explicit(&f->refs, 1, memory_order_release);
    return f;
}

/* One who was still reading when another thread locked the file leaves them open: closed, they
 * would take the lock with them. */
__attribute__((noinline)) static void close_own(struct fb_pl_file *f, int shadow, int moved)
{
    if (fb_pl_is_locked(f))
        return;
    if (shadow >= 0)
        fb_pl_disown(shadow);
    if (moved >= 0)
        fb_pl_disown(moved);
}

void fb_pl_put(struct fb_pl_file *f)
{
    int shadow, moved;

    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (f->kind == FB_PL_WRITER) {
        fb_client_forget(&fb_pl_client, f->path);
        atomic_fetch_sub(&fb_pl_writers, 1);
    }
    if (f->window) {
        fb_sys_munmap(f->window, FB_PL_WINDOW);
        atomic_fetch_sub(&fb_pl_windows, 1);
    }
    shadow = atomic_load(&f->shadow);
    moved = fb_pl_moved(atomic_load(&f->offset));
    if (fb_unlikely(shadow >= 0 || moved >= 0))
        close_own(f, shadow, moved);
    pool_give(f);
}

/* A reference to the file that a slot stands for; NULL: it is nobody's any more. */
static inline struct fb_pl_file *hold(uint32_t slot)
{
    uint32_t place = slot & ~FB_PL_BUSY, refs;
    struct fb_pl_file *f = &atomic_load_explicit(&pool, memory_order_acquire)[place - 1];

    refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
    do {
        if (refs == 0)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&f->refs, &refs, refs + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return f;
}

/* While it was taken the file was closed, and its place perhaps given to another one; or dup2() has
 * put another one at the number. */
__attribute__((noinline, cold)) static struct fb_pl_file *get_again(int fd, struct fb_pl_file *f)
{
    for (unsigned tries = 0; tries < GET_TRIES; tries++) {
        uint32_t slot = fb_pl_slot(fd);

        if (f)
            fb_pl_put(f);
        if (slot == 0 || slot >= FB_PL_OWN)
            return NULL;
        f = hold(slot);
        if (((fb_pl_slot(fd) ^ slot) & ~FB_PL_BUSY) == 0)
            return f;
    }
    if (f)
        fb_pl_put(f);
    return NULL;
}

struct fb_pl_file *fb_pl_get(int fd)
{
    uint32_t slot = fb_pl_slot(fd);
    struct fb_pl_file *f;

    if (slot == 0 || slot >= FB_PL_OWN || fb_pl_vforked)
        return NULL;
    f = hold(slot);
    return fb_likely(((fb_pl_slot(fd) ^ slot) & ~FB_PL_BUSY) == 0) ? f : get_again(fd, f);
}

/* ---- slots ---- */

/* The file that a slot stood for. */
static struct fb_pl_file *file_of(uint32_t slot)
{
    return slot == 0 || slot >= FB_PL_OWN
               ? NULL
               : &atomic_load_explicit(&pool, memory_order_acquire)[(slot & ~FB_PL_BUSY) - 1];
}

/* Says what the slot was. Whoever closes a number while another thread puts the real file there
 * waits for that: after the close the number may be another file's. */
static uint32_t swap(int fd, uint32_t slot)
{
    uint32_t old = atomic_load_explicit(&fb_pl_slots[fd], memory_order_acquire);
    unsigned tries = 0;

    for (;;) {
        if (fb_unlikely((old & FB_PL_BUSY) && old < FB_PL_OWN) && tries++ < BUSY_TRIES) {
            struct timespec nap = {.tv_nsec = BUSY_NAP_NS};

            (void)fb_sys(SYS_nanosleep, &nap, 0, 0, 0);
            old = atomic_load_explicit(&fb_pl_slots[fd], memory_order_acquire);
        } else if (atomic_compare_exchange_weak_explicit(
                       &fb_pl_slots[fd], &old, slot, memory_order_acq_rel, memory_order_acquire)) {
            if (fb_unlikely(old == FB_PL_DIRECTORY || slot == FB_PL_DIRECTORY))
                fb_pl_dir_forget(fd);
            return old;
        }
    }
}

void fb_pl_mark(int fd, uint32_t slot)
{
    int high = atomic_load_explicit(&fb_pl_highest, memory_order_relaxed);
    struct fb_pl_file *old;

    if ((unsigned)fd >= FB_PL_FDS)
        return;
    atomic_store_explicit(&fb_pl_active, true, memory_order_relaxed);
    while (fd > high && !atomic_compare_exchange_weak(&fb_pl_highest, &high, fd))
        continue;
    old = file_of(swap(fd, slot));
    if (old)
        fb_pl_put(old);
}

void fb_pl_mark_dir(int fd)
{
    char path[FB_CLIENT_FILE_PATH];

    fb_pl_mark(fd, FB_PL_DIRECTORY);
    (void)fb_pl_dir_path(fd, path);
}

/* The placeholder itself was closed past us when its number comes back. */
void fb_pl_fresh(int fd)
{
    int own = fd;

    if (fb_pl_vforked || fd < 0)
        return;
    if (fb_unlikely(fb_pl_slot(fd) != 0))
        fb_pl_mark(fd, 0);
    if (fb_unlikely(fd == atomic_load_explicit(&fb_pl_placeholder, memory_order_relaxed)))
        (void)atomic_compare_exchange_strong(&fb_pl_placeholder, &own, -1);
}

bool fb_pl_closing(int fd, struct fb_pl_file **ret_file)
{
    uint32_t slot = fb_pl_slot(fd);

    if (fb_unlikely(slot != 0) && !fb_pl_vforked) {
        if (slot == FB_PL_OWN)
            return true;
        *ret_file = file_of(swap(fd, 0));
    }
    return fb_unlikely(
               fb_client_owns(&fb_pl_client, fd) ||
               (fd >= 0 && fd == atomic_load_explicit(&fb_pl_placeholder, memory_order_relaxed))) &&
           !fb_pl_vforked;
}

bool fb_pl_writes_to(const char *path)
{
    int high = atomic_load(&fb_pl_highest);
    bool is = false;

    if (fb_likely(atomic_load_explicit(&fb_pl_writers, memory_order_relaxed) == 0))
        return false;
    for (int fd = 0; fd <= high && !is; fd++) {
        struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;

        is = f && f->kind == FB_PL_WRITER && strcmp(f->path, path) == 0;
        if (f)
            fb_pl_put(f);
    }
    return is;
}

/* What stands beside a cached file goes to another number, with its offset and locks. */
static void make_way(int fd)
{
    int high = atomic_load(&fb_pl_highest);
    int to = fb_sys_fcntl(fd, F_DUPFD_CLOEXEC, fd);

    if (to < 0)
        to = fb_sys_fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (to < 0)
        return;
    fb_pl_mark(to, FB_PL_OWN);
    for (int i = 0; i <= high; i++) {
        struct fb_pl_file *f = fb_pl_is_ours(i) ? fb_pl_get(i) : NULL;
        int64_t moved = FB_PL_MOVED + fd;
        int shadow = fd;

        if (!f)
            continue;
        (void)atomic_compare_exchange_strong(&f->shadow, &shadow, to);
        (void)atomic_compare_exchange_strong(&f->offset, &moved, FB_PL_MOVED + to);
        fb_pl_put(f);
    }
}

void fb_pl_overwriting(int fd)
{
    int own = fd;

    if (fb_pl_vforked || fd < 0)
        return;
    if (fb_unlikely(fb_pl_slot(fd) == FB_PL_OWN))
        make_way(fd);
    /* Our sockets are looked at before each use; the placeholder is not. */
    (void)atomic_compare_exchange_strong(&fb_pl_placeholder, &own, -1);
}

/* ---- descriptors of our own ---- */

int fb_pl_own(int fd)
{
    fd = fb_sys_lift(fd);
    fb_pl_mark(fd, FB_PL_OWN);
    return fd;
}

/* Closed past us, the number may be somebody else's by now. */
void fb_pl_disown(int fd)
{
    uint32_t own = FB_PL_OWN;

    if (fd >= FB_PL_FDS || atomic_compare_exchange_strong(&fb_pl_slots[fd], &own, 0))
        fb_sys_close(fd);
}

/* ---- placeholders ---- */

static int get_placeholder(void)
{
    int fd = atomic_load_explicit(&fb_pl_placeholder, memory_order_relaxed);
    int expected = -1;

    if (fb_likely(fd >= 0))
        return fd;
    fd = fb_sys_open(fb_pl_client.socket, O_PATH | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    fd = fb_sys_lift(fd);
    if (atomic_compare_exchange_strong(&fb_pl_placeholder, &expected, fd))
        return fd;
    fb_sys_close(fd);
    return expected;
}

int fb_pl_install(struct fb_pl_file *f, int lowest, bool cloexec)
{
    int fd = -EBADF;

    /* Closed past us it is opened anew. */
    for (int tries = 0; fd == -EBADF && tries < 2; tries++) {
        int from = get_placeholder();

        fd = from < 0 ? from : fb_sys_fcntl(from, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest);
        if (fb_unlikely(fd == -EBADF))
            (void)atomic_compare_exchange_strong(&fb_pl_placeholder, &from, -1);
    }
    if (fd >= FB_PL_FDS) {
        fb_sys_close(fd);
        fd = -EMFILE;
    }
    if (fd < 0)
        fb_pl_put(f);
    else
        fb_pl_mark(fd, fb_pl_place(f));
    return fd;
}

void fb_pl_watch(int fd, struct fb_pl_file *f)
{
    if ((unsigned)fd >= FB_PL_FDS)
        fb_pl_put(f);
    else
        fb_pl_mark(fd, fb_pl_place(f));
}

void fb_pl_watch_instead(int fd, struct fb_pl_file *was, struct fb_pl_file *f)
{
    uint32_t slot = fb_pl_place(was);

    fb_pl_put(atomic_compare_exchange_strong(&fb_pl_slots[fd], &slot, fb_pl_place(f)) ? was : f);
}

/* ---- duplicates ---- */

/* A number that stands for a file: whoever is making that real is waited for, and nobody begins to.
 * The slot as it was; 0: it stands for none, or not any more. Signals are blocked. */
static uint32_t claim(int fd)
{
    uint32_t slot = fb_pl_slot(fd);

    for (unsigned tries = 0; slot != 0 && slot < FB_PL_OWN && tries < BUSY_TRIES; tries++) {
        struct timespec nap = {.tv_nsec = BUSY_NAP_NS};

        if (!(slot & FB_PL_BUSY) &&
            atomic_compare_exchange_strong(&fb_pl_slots[fd], &slot, FB_PL_BUSY | slot))
            return slot;
        if (slot & FB_PL_BUSY)
            (void)fb_sys(SYS_nanosleep, &nap, 0, 0, 0);
        slot = fb_pl_slot(fd);
    }
    return 0;
}

/* Says whether the number has become what was wanted. */
static bool settle_claim(int fd, uint32_t was, uint32_t slot)
{
    uint32_t busy = FB_PL_BUSY | was;

    return was != 0 && atomic_compare_exchange_strong(&fb_pl_slots[fd], &busy, slot);
}

/* While another thread puts a file itself at the number `to` (real.c), nothing else may be put
 * there, or it would be overwritten. */
int fb_pl_dup_onto(int fd, int to, int flags, uint32_t slot)
{
    uint64_t before = 0;
    bool ours = fb_pl_is_ours(to) && !fb_pl_vforked, settled;
    uint32_t was = 0;
    int got;

    if (ours) {
        before = fb_pl_block_signals();
        was = claim(to);
    }
    got = fb_sys_dup3(fd, to, flags);
    settled = settle_claim(to, was, got < 0 ? was : slot);
    if (ours)
        fb_pl_allow_signals(before);
    if (got < 0)
        return got;
    if (settled)
        fb_pl_put(file_of(was));
    else if (slot != 0)
        fb_pl_mark(got, slot);
    else
        fb_pl_fresh(got);
    return got;
}

/* In the child of a vfork, or when the number was just made real, the kernel's is all there is. */
static int dup_real(int fd, int lowest, int to, bool cloexec)
{
    int got;

    if (lowest < 0)
        return fb_pl_dup_onto(fd, to, cloexec ? O_CLOEXEC : 0, 0);
    got = fb_sys_fcntl(fd, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest);
    fb_pl_fresh(got);
    return got;
}

int fb_pl_dup(int fd, int lowest, int to, bool cloexec)
{
    struct fb_pl_file *f = fb_pl_get(fd);
    int got;

    if (!f)
        return dup_real(fd, lowest, to, cloexec);
    if (lowest < 0)
        got = fb_pl_dup_onto(fd, to, cloexec ? O_CLOEXEC : 0, fb_pl_place(f));
    else
        got = fb_sys_fcntl(fd, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest);
    /* The reference is the new slot's. */
    if (got >= 0 && got < FB_PL_FDS) {
        if (lowest >= 0)
            fb_pl_mark(got, fb_pl_place(f));
        return got;
    }
    fb_pl_put(f);
    if (got < 0)
        return got;
    fb_sys_close(got);
    return -EMFILE;
}
