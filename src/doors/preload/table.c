/*
 * The table of descriptors. A slot says what stands behind a number: nothing of ours, a file (its
 * place in the pool + 1), or a directory below a root. Files are counted by their descriptors and by
 * the calls that use them, as in the kernel: a file outlives a close() that overtakes a read().
 *
 * Stale numbers. A descriptor that is closed past us (inside libc, by a raw system call) leaves its
 * slot behind; so every opener clears the slot of the number it got, and every closer that of the
 * number it closes.
 */
#include <dlfcn.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <string.h>

#include "doors/preload/preload_priv.h"

#define COPY_STEP (1u << 20)

struct fb_client fb_pl_client;
_Atomic uint32_t fb_pl_slots[FB_PL_FDS];
_Atomic uint32_t fb_pl_windows;
_Atomic bool fb_pl_active;
_Thread_local bool fb_pl_vforked;

static _Atomic(struct fb_pl_file *) pool;
static _Atomic uint32_t pool_used;
static _Atomic uint64_t pool_free; /* low half: place + 1 of the first; high half: a tag */
static _Atomic int placeholder = -1;
static _Atomic int highest; /* no slot above is taken */

void *fb_pl_real(_Atomic(void *) *cached, const char *name)
{
    /* Relaxed: the function it leads to was there before we were. */
    void *f = atomic_load_explicit(cached, memory_order_relaxed);

    if (fb_unlikely(!f)) {
        int saved = errno;

        f = dlsym(RTLD_NEXT, name);
        errno = saved;
        atomic_store_explicit(cached, f, memory_order_relaxed);
    }
    return f;
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
        uint64_t next = ((head >> 32) + 1) << 32 | f->next_free;

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

static uint32_t place_of(const struct fb_pl_file *f)
{
    return (uint32_t)(f - atomic_load_explicit(&pool, memory_order_relaxed)) + 1;
}

static void pool_give(struct fb_pl_file *f)
{
    uint64_t head = atomic_load(&pool_free), mine;

    do {
        f->next_free = (uint32_t)head;
        mine = ((head >> 32) + 1) << 32 | place_of(f);
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
    atomic_store_explicit(&f->refs, 1, memory_order_release);
    return f;
}

void fb_pl_put(struct fb_pl_file *f)
{
    int shadow;

    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (f->kind == FB_PL_WRITER)
        fb_client_forget(&fb_pl_client, f->file.full);
    if (f->window) {
        fb_sys_munmap(f->window, FB_PL_WINDOW);
        atomic_fetch_sub(&fb_pl_windows, 1);
    }
    shadow = atomic_load(&f->shadow);
    if (shadow >= 0)
        fb_sys_close(shadow);
    pool_give(f);
}

struct fb_pl_file *fb_pl_get(int fd)
{
    uint32_t slot = fb_pl_slot(fd), refs;
    struct fb_pl_file *f;

    if (slot == 0 || slot == FB_PL_DIRECTORY || fb_pl_vforked)
        return NULL;
    f = &atomic_load_explicit(&pool, memory_order_acquire)[slot - 1];
    refs = atomic_load_explicit(&f->refs, memory_order_relaxed);
    do {
        if (refs == 0)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&f->refs, &refs, refs + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    /* It may have been closed and its place given to another file meanwhile. */
    if (fb_likely(fb_pl_slot(fd) == slot))
        return f;
    fb_pl_put(f);
    return NULL;
}

/* ---- slots ---- */

void fb_pl_mark(int fd, uint32_t slot)
{
    int high = atomic_load_explicit(&highest, memory_order_relaxed);
    uint32_t old;

    if ((unsigned)fd >= FB_PL_FDS)
        return;
    atomic_store_explicit(&fb_pl_active, true, memory_order_relaxed);
    while (fd > high && !atomic_compare_exchange_weak(&highest, &high, fd))
        continue;
    old = atomic_exchange_explicit(&fb_pl_slots[fd], slot, memory_order_acq_rel);
    if (old != 0 && old != FB_PL_DIRECTORY)
        fb_pl_put(&atomic_load_explicit(&pool, memory_order_acquire)[old - 1]);
}

void fb_pl_fresh(int fd)
{
    if (fb_unlikely(fb_pl_slot(fd) != 0) && !fb_pl_vforked)
        fb_pl_mark(fd, 0);
}

bool fb_pl_closing(int fd)
{
    if (fb_unlikely(fb_pl_slot(fd) != 0) && !fb_pl_vforked)
        fb_pl_mark(fd, 0);
    return fb_unlikely(
               fb_client_owns(&fb_pl_client, fd) ||
               (fd >= 0 && fd == atomic_load_explicit(&placeholder, memory_order_relaxed))) &&
           !fb_pl_vforked;
}

void fb_pl_overwriting(int fd)
{
    int own = fd;

    if (fb_pl_vforked)
        return;
    /* Our sockets are looked at before each use; the placeholder is not. */
    if (fd >= 0)
        (void)atomic_compare_exchange_strong(&placeholder, &own, -1);
}

/* ---- placeholders ---- */

static int get_placeholder(void)
{
    int fd = atomic_load_explicit(&placeholder, memory_order_relaxed);
    int expected = -1, high;

    if (fb_likely(fd >= 0))
        return fd;
    fd = fb_sys_open(fb_pl_client.socket, O_PATH | O_CLOEXEC, 0);
    if (fd < 0)
        return fd;
    high = fb_sys_fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (high >= 0) {
        fb_sys_close(fd);
        fd = high;
    }
    if (atomic_compare_exchange_strong(&placeholder, &expected, fd)) {
        (void)!pthread_atfork(NULL, NULL, fb_pl_in_child);
        return fd;
    }
    fb_sys_close(fd);
    return expected;
}

int fb_pl_install(struct fb_pl_file *f, int lowest, bool cloexec)
{
    int from = get_placeholder();
    int fd = from < 0 ? from : fb_sys_fcntl(from, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest);

    if (fd >= FB_PL_FDS) {
        fb_sys_close(fd);
        fd = -EMFILE;
    }
    if (fd == -EBADF) /* closed past us: a new one next time */
        atomic_compare_exchange_strong(&placeholder, &from, -1);
    if (fd < 0)
        fb_pl_put(f);
    else
        fb_pl_mark(fd, place_of(f));
    return fd;
}

void fb_pl_watch(int fd, struct fb_pl_file *f)
{
    if ((unsigned)fd >= FB_PL_FDS)
        fb_pl_put(f);
    else
        fb_pl_mark(fd, place_of(f));
}

int fb_pl_dup(int fd, int lowest, int to, bool cloexec)
{
    struct fb_pl_file *f = fb_pl_get(fd);
    int got;

    if (!f)
        return -EBADF;
    if (lowest >= 0)
        got = fb_sys_fcntl(fd, cloexec ? F_DUPFD_CLOEXEC : F_DUPFD, lowest);
    else
        got = fb_sys_dup3(fd, to, cloexec ? O_CLOEXEC : 0);
    /* The reference is the new slot's. */
    if (got >= 0 && got < FB_PL_FDS) {
        fb_pl_mark(got, place_of(f));
        return got;
    }
    fb_pl_put(f);
    if (got < 0)
        return got;
    fb_sys_close(got);
    return -EMFILE;
}

/* ---- becoming real ---- */

static bool same_version(const struct fb_pl_file *f, int fd)
{
    const struct fb_version *v = &f->file.attr.version;
    struct stat st;

    return fb_sys_fstat(fd, &st) == 0 && (uint64_t)st.st_size == v->size &&
           st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec == v->mtime_ns &&
           st.st_ctim.tv_sec * 1000000000LL + st.st_ctim.tv_nsec == v->ctime_ns &&
           st.st_ino == v->tag[0];
}

/* The version that was opened, from the cache, if it has all of it. */
static int copy_of(struct fb_pl_file *f)
{
    uint64_t size = f->file.attr.version.size, at = 0;
    uint8_t *buffer;
    int fd;

    if (size > FB_PL_COPY_MAX)
        return -ESTALE;
    fd = (int)fb_sys(SYS_memfd_create, "forebay-copy", MFD_CLOEXEC, 0, 0);
    buffer = fb_sys_memory(COPY_STEP);
    while (fd >= 0 && buffer && at < size) {
        int64_t n = fb_client_pread(&fb_pl_client, &f->file, buffer, COPY_STEP, at);

        if (n <= 0 || fb_sys(SYS_pwrite64, fd, buffer, n, at) != n)
            break;
        at += (uint64_t)n;
    }
    if (buffer)
        fb_sys_munmap(buffer, COPY_STEP);
    if (fd >= 0 && buffer && at == size)
        return fd;
    if (fd >= 0)
        fb_sys_close(fd);
    return -ESTALE;
}

int fb_pl_real_fd(struct fb_pl_file *f)
{
    int fd =
        fb_sys_open(f->file.full, (f->flags & (O_NONBLOCK | O_NOATIME)) | O_RDONLY | O_CLOEXEC, 0);

    /* Of a file nobody has read from yet, any version will do. */
    if (fd >= 0 && (atomic_load(&f->used) == 0 || same_version(f, fd)))
        return fd;
    if (fd >= 0)
        fb_sys_close(fd);
    return copy_of(f);
}

/* Every number that stands for the file. */
static void replace_all(struct fb_pl_file *f, int real)
{
    uint32_t place = place_of(f);
    int high = atomic_load(&highest);

    for (int fd = 0; fd <= high; fd++) {
        int flags;

        if (fb_pl_slot(fd) != place)
            continue;
        flags = fb_sys_fcntl(fd, F_GETFD, 0);
        if (flags < 0)
            continue;
        /* In this order a read at the same time finds the cached file or the real one, never a
         * placeholder. */
        (void)fb_sys_dup3(real, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
        fb_pl_mark(fd, 0);
    }
}

int fb_pl_make_real(int fd)
{
    struct fb_pl_file *f = fb_pl_get(fd);
    int real;

    if (!f)
        return 0;
    if (f->kind != FB_PL_CACHED) {
        fb_pl_put(f);
        return 0;
    }
    real = fb_pl_real_fd(f);
    if (real >= 0) {
        (void)fb_sys_lseek(real, atomic_load(&f->offset), SEEK_SET);
        replace_all(f, real);
        fb_sys_close(real);
    }
    fb_pl_put(f);
    return real < 0 ? real : 0;
}

void fb_pl_make_real_if(bool (*wanted)(int fd, const struct fb_pl_file *f))
{
    int high = atomic_load(&highest);

    if (fb_pl_vforked || !atomic_load(&pool))
        return;
    for (int fd = 0; fd <= high; fd++) {
        struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
        bool want;

        if (!f)
            continue;
        want = f->kind == FB_PL_CACHED && wanted(fd, f);
        fb_pl_put(f);
        /* One that cannot be had stays a placeholder, on which the program fails loudly. */
        if (want)
            (void)fb_pl_make_real(fd);
    }
}

bool fb_pl_any(int fd, const struct fb_pl_file *f)
{
    (void)fd;
    (void)f;
    return true;
}

bool fb_pl_inherited(int fd, const struct fb_pl_file *f)
{
    int flags = fb_sys_fcntl(fd, F_GETFD, 0);

    (void)f;
    return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

void fb_pl_in_child(void)
{
    fb_client_forked(&fb_pl_client);
}
