/*
 * Locks of fcntl() and lockf(). They are the process's, and the kernel drops them when the process
 * closes any descriptor of the file: also one of ours, of which the program knows nothing. So what
 * a program locks is the file itself from then on, in this process, by whatever number and name it
 * has it open or opens it; and the library has no descriptor of it left when the lock is taken.
 *
 * Files are told by their inodes, which are never taken off the list: who locks a file will lock it
 * again. One of the same number elsewhere is not cached either, which does no harm.
 */
#include "doors/preload/preload_priv.h"

#define LOCKED_MAX 64 /* more cannot be told apart: then nothing is cached any more */

static _Atomic uint64_t locked[LOCKED_MAX];
static _Thread_local uint64_t about_to; /* the inode that is just being locked; 0: all */

bool fb_pl_has_locked(uint64_t ino)
{
    uint32_t count = atomic_load(&fb_pl_locked_count);

    for (unsigned i = 0; i < count && i < LOCKED_MAX; i++)
        if (atomic_load_explicit(&locked[i], memory_order_relaxed) == ino)
            return true;
    return count > LOCKED_MAX;
}

static bool is_about_to(int fd, const struct fb_pl_file *f)
{
    (void)fd;
    return about_to == 0 || f->file.attr.ino == about_to;
}

/* Our descriptors of the file are closed before it is on the list: after that they stay
 * (fb_pl_put). */
static void take_note(uint64_t ino)
{
    bool full = atomic_load(&fb_pl_locked_count) >= LOCKED_MAX;
    uint32_t at;

    about_to = full ? 0 : ino;
    fb_pl_make_real_if(is_about_to);
    at = atomic_fetch_add(&fb_pl_locked_count, 1);
    if (at < LOCKED_MAX)
        atomic_store(&locked[at], ino);
}

int fb_pl_before_lock(int fd)
{
    char path[FB_CLIENT_FILE_PATH];
    struct stat st;
    int rc;

    /* Without anything of ours there is nothing to be closed. A vfork's child locks for itself. */
    if (fb_likely(!atomic_load_explicit(&fb_pl_active, memory_order_relaxed)) || fb_pl_vforked)
        return 0;
    rc = fb_pl_make_real(fd);
    if (rc == 0 && fb_sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        !fb_pl_has_locked(st.st_ino) && fb_pl_path_of(fd, path))
        take_note(st.st_ino);
    return rc;
}
