/*
 * Cached files that become real ones, for whatever cannot do with a placeholder.
 *
 * The offset is what makes this delicate: other threads may be reading. It moves into the offset of
 * a real descriptor in one step, a compare-and-swap of f->offset to that descriptor's number. A
 * read that claimed its bytes before has moved the offset that moves; one that comes later finds
 * the number and reads there. Then the numbers that stand for the file are replaced one by one, and
 * it does not matter when.
 *
 *     cached ── offset moves ──► moved ── numbers replaced ──► gone, with the last call
 *
 * A number is replaced with dup3(), which cannot tell whether it is still the same file's: so the
 * slot is BUSY meanwhile, and a close() of it waits. Signals are blocked for that moment, since a
 * handler that closes the number would wait for itself.
 */
#include <linux/memfd.h>
#include <signal.h>
#include <string.h>

#include "doors/preload/preload_priv.h"

#define COPY_STEP    (1u << 20)
#define SIGSET_BYTES 8 /* of the kernel's */

uint64_t fb_pl_block_signals(void)
{
    uint64_t all = ~0ULL, before = 0;

    (void)fb_sys(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, SIGSET_BYTES);
    return before;
}

void fb_pl_allow_signals(uint64_t before)
{
    (void)fb_sys(SYS_rt_sigprocmask, SIG_SETMASK, &before, 0, SIGSET_BYTES);
}

/* ---- the file itself ---- */

static bool same_version(const struct fb_pl_file *f, int fd)
{
    struct stat st;

    return fb_sys_fstat(fd, &st) == 0 && fb_client_same_version(&f->file, &st);
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
    int shadow = atomic_load(&f->shadow), fd, copy;

    /* With it, what was locked stays locked. */
    if (shadow >= 0 && same_version(f, shadow)) {
        fd = fb_sys_fcntl(shadow, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            return fd;
    }
    fd = fb_pl_open_there(f->path, (f->flags & (O_NONBLOCK | O_NOATIME)) | O_RDONLY | O_CLOEXEC);
    /* Of a file nobody has looked at yet, any version will do. */
    if (fd >= 0 && (atomic_load(&f->used) == 0 || same_version(f, fd)))
        return fd;
    /* Without a number to spare the cache has nothing to offer either. */
    if (fd == -EMFILE || fd == -ENFILE)
        return fd;
    if (fd >= 0)
        fb_sys_close(fd);
    copy = copy_of(f);
    return copy < 0 && fd == -EIO ? fd : copy;
}

int fb_pl_shadow(struct fb_pl_file *f)
{
    int shadow = atomic_load(&f->shadow), none = -1;

    if (shadow >= 0)
        return shadow;
    shadow = fb_pl_open_there(f->path, O_RDONLY | O_CLOEXEC);
    if (shadow < 0)
        return shadow;
    shadow = fb_pl_own(shadow);
    if (atomic_compare_exchange_strong(&f->shadow, &none, shadow))
        return shadow;
    fb_pl_disown(shadow);
    return none;
}

/* ---- moving ---- */

/* The real descriptor that the offset has moved to. */
static int move(struct fb_pl_file *f)
{
    int64_t at = atomic_load(&f->offset);
    int real;

    if (at < 0)
        return fb_pl_moved(at);
    real = fb_pl_real_fd(f);
    if (real < 0)
        return real;
    real = fb_pl_own(real);
    do {
        if (at < 0) { /* another thread was faster */
            fb_pl_disown(real);
            return fb_pl_moved(at);
        }
        /* After a fork the offset is that of the shadow, which the other process may have moved;
         * but for a thread here that was just reading at the fork. */
        if (!atomic_load(&f->forked) || at != f->forked_at)
            (void)fb_sys_lseek(real, at, SEEK_SET);
    } while (!atomic_compare_exchange_strong(&f->offset, &at, FB_PL_MOVED + real));
    return real;
}

/* One number. Signals are blocked. */
static void replace(struct fb_pl_file *f, int fd, int real)
{
    uint32_t place = fb_pl_place(f), slot = place;
    int flags;

    if (!atomic_compare_exchange_strong(&fb_pl_slots[fd], &slot, FB_PL_BUSY | place))
        return;
    flags = fb_sys_fcntl(fd, F_GETFD, 0);
    /* Closed past us: whatever comes to that number is not ours. */
    if (flags >= 0)
        (void)fb_sys_dup3(real, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
    slot = FB_PL_BUSY | place;
    if (atomic_compare_exchange_strong(&fb_pl_slots[fd], &slot, 0))
        fb_pl_put(f);
}

/* Every number that stands for the file. */
static void replace_all(struct fb_pl_file *f, int real)
{
    int high = atomic_load(&fb_pl_highest);
    uint64_t before = fb_pl_block_signals();

    for (int fd = 0; fd <= high; fd++)
        if (fb_pl_slot(fd) == fb_pl_place(f))
            replace(f, fd, real);
    fb_pl_allow_signals(before);
}

int fb_pl_go_real(struct fb_pl_file *f)
{
    int real = move(f);

    if (real >= 0)
        replace_all(f, real);
    return real;
}

int fb_pl_make_real(int fd)
{
    struct fb_pl_file *f = fb_pl_get(fd);
    int rc;

    if (!f)
        return 0;
    rc = f->kind == FB_PL_CACHED ? fb_pl_go_real(f) : 0;
    fb_pl_put(f);
    return rc < 0 ? rc : 0;
}

void fb_pl_make_real_if(bool (*wanted)(int fd, const struct fb_pl_file *f))
{
    int high = atomic_load(&fb_pl_highest);

    if (fb_pl_vforked || !atomic_load_explicit(&fb_pl_active, memory_order_relaxed))
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

/* ---- fork ---- */

/* Parent and child share offsets. A file of which only pread() was used stays cached in both, with
 * the real file beside it: whoever uses the offset first moves to that, whose offset they share. */
static bool goes_real_at_fork(int fd, const struct fb_pl_file *f)
{
    (void)fd;
    return (atomic_load(&f->used) & ~FB_PL_USED_STAT) != FB_PL_USED_AT;
}

static void prepare_shadow(struct fb_pl_file *f)
{
    int64_t at = atomic_load(&f->offset);
    int shadow;

    if (at < 0 || atomic_load(&f->forked))
        return;
    shadow = fb_pl_shadow(f);
    if (shadow >= 0)
        (void)fb_sys_lseek(shadow, at, SEEK_SET);
    f->forked_at = at;
    atomic_store(&f->forked, true);
}

void fb_pl_before_fork(void)
{
    int high = atomic_load(&fb_pl_highest);

    if (fb_pl_vforked || !atomic_load_explicit(&fb_pl_active, memory_order_relaxed))
        return;
    fb_pl_make_real_if(goes_real_at_fork);
    for (int fd = 0; fd <= high; fd++) {
        struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;

        if (!f)
            continue;
        /* What another thread has opened meanwhile, the child does not know of. */
        if (f->kind == FB_PL_CACHED && !goes_real_at_fork(fd, f))
            prepare_shadow(f);
        fb_pl_put(f);
    }
}

/* Nobody else is here to finish what another thread had begun. */
void fb_pl_in_child(void)
{
    int high = atomic_load(&fb_pl_highest);

    fb_client_forked(&fb_pl_client);
    fb_pl_dirs_in_child();
    for (int fd = 0; fd <= high; fd++) {
        uint32_t slot = fb_pl_slot(fd);

        if ((slot & FB_PL_BUSY) && slot < FB_PL_OWN)
            atomic_store(&fb_pl_slots[fd], slot & ~FB_PL_BUSY);
    }
}
