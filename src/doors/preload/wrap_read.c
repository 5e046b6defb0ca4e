/*
 * Reading: read, pread, readv and kin, lseek, and what moves bytes from a descriptor elsewhere.
 */
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "doors/preload/preload_priv.h"

#define PUMP_BYTES (128u << 10)

/* ---- windows ---- */

/* Small reads of what is not in shared memory would each be a question: a window of the file is
 * asked for, and serves those that follow. False: read directly. */
static bool from_window(struct fb_pl_file *f, void *to, size_t bytes, uint64_t offset,
                        int64_t *ret_got)
{
    bool served = false;

    if (bytes >= FB_PL_WINDOW_BELOW || offset >= f->file.attr.version.size ||
        atomic_exchange_explicit(&f->window_busy, true, memory_order_acquire))
        return false;
    if (!f->window && atomic_load(&fb_pl_windows) < FB_PL_WINDOWS) {
        f->window = fb_sys_memory(FB_PL_WINDOW);
        if (f->window)
            atomic_fetch_add(&fb_pl_windows, 1);
        f->window_bytes = 0;
    }
    if (f->window) {
        if (offset < f->window_at || offset >= f->window_at + f->window_bytes) {
            uint64_t at = offset / FB_PL_WINDOW * FB_PL_WINDOW;
            int64_t n = fb_client_pread(&fb_pl_client, &f->file, f->window, FB_PL_WINDOW, at);

            f->window_at = at;
            f->window_bytes = n > 0 ? (uint32_t)n : 0;
        }
        if (offset >= f->window_at && offset < f->window_at + f->window_bytes) {
            *ret_got = (int64_t)fb_min_u64(bytes, f->window_at + f->window_bytes - offset);
            memcpy(to, f->window + (offset - f->window_at), (size_t)*ret_got);
            served = true;
        }
    }
    atomic_store_explicit(&f->window_busy, false, memory_order_release);
    return served;
}

/* ---- one stretch ---- */

/* The daemon cannot serve it any more: from the file itself, if that is still what was opened. */
static ssize_t read_real(struct fb_pl_file *f, void *to, size_t bytes, int64_t offset)
{
    int real = fb_pl_go_real(f);
    int64_t n = real < 0 ? real : fb_sys_pread(real, to, bytes, offset);

    return n < 0 ? fb_fail((int)-n) : n;
}

/* Not there any more, or in another version; or the daemon is not. */
static bool is_gone(int64_t error)
{
    return error == -FB_CLIENT_GONE || error == -ESTALE || error == -ENODEV || error == -ENOENT ||
           error == -ENOTDIR || error == -ELOOP;
}

ssize_t fb_pl_read_at(struct fb_pl_file *f, void *to, size_t bytes, int64_t offset)
{
    uint64_t size = f->file.attr.version.size;
    uint64_t left;
    int64_t n;

    if (offset < 0)
        return fb_fail(EINVAL);
    if (bytes > SSIZE_MAX)
        bytes = SSIZE_MAX;
    if ((uint64_t)offset >= size || bytes == 0)
        return 0;
    left = size - (uint64_t)offset;
    n = (int64_t)fb_client_copy(&fb_pl_client, &f->file, to, bytes, (uint64_t)offset);
    if (fb_likely((uint64_t)n == fb_min_u64(bytes, left)))
        return n;
    /* Something is not in memory. Short answers are only for the end of the file: programs that do
     * not expect them elsewhere are many. */
    while ((uint64_t)n < fb_min_u64(bytes, left)) {
        uint8_t *at = (uint8_t *)to + n;
        size_t want = (size_t)(fb_min_u64(bytes, left) - (uint64_t)n);
        int64_t got;

        if (!from_window(f, at, want, (uint64_t)(offset + n), &got))
            got = fb_client_pread(&fb_pl_client, &f->file, at, want, (uint64_t)(offset + n));
        if (is_gone(got)) {
            ssize_t rest = read_real(f, at, want, offset + n);

            return rest < 0 ? (n > 0 ? n : rest) : n + rest;
        }
        if (got <= 0)
            return n > 0 ? n : fb_fail(got < 0 ? (int)-got : EIO);
        n += got;
    }
    return n;
}

/* After a fork the offset is another process's, too. */
static bool share_offset(struct fb_pl_file *f)
{
    int rc = 0;

    if (fb_unlikely(atomic_load_explicit(&f->forked, memory_order_relaxed)))
        rc = fb_pl_go_real(f);
    if (rc < 0)
        errno = -rc;
    return rc >= 0;
}

/* Less came than was claimed. If nobody has moved the offset since, it is as if no more had been
 * claimed. */
static void give_back(struct fb_pl_file *f, int64_t claimed, int64_t to)
{
    int64_t at = claimed;

    if (!atomic_compare_exchange_strong(&f->offset, &at, to) && at < 0 &&
        fb_sys_lseek(fb_pl_moved(at), 0, SEEK_CUR) == claimed)
        (void)fb_sys_lseek(fb_pl_moved(at), to, SEEK_SET);
}

/* Takes [offset, next) before it is read, so that two threads get different bytes. Negative: the
 * offset is that of a descriptor by now (fb_pl_moved()). */
static int64_t claim(struct fb_pl_file *f, size_t bytes, int64_t *ret_next)
{
    int64_t size = (int64_t)f->file.attr.version.size, at = atomic_load(&f->offset);

    do {
        if (fb_unlikely(at < 0))
            return at;
        *ret_next = at >= size ? at : size - at < (int64_t)bytes ? size : at + (int64_t)bytes;
    } while (!atomic_compare_exchange_weak(&f->offset, &at, *ret_next));
    return at;
}

ssize_t fb_pl_read(struct fb_pl_file *f, void *to, size_t bytes)
{
    int64_t at, next;
    ssize_t n;

    if (!share_offset(f))
        return -1;
    if (bytes > SSIZE_MAX)
        bytes = SSIZE_MAX;
    at = claim(f, bytes, &next);
    if (fb_unlikely(at < 0)) {
        n = fb_sys(SYS_read, fb_pl_moved(at), to, bytes, 0);
        return n < 0 ? fb_fail((int)-n) : n;
    }
    n = fb_pl_read_at(f, to, bytes, at);
    if (fb_unlikely(n != next - at))
        give_back(f, next, at + (n > 0 ? n : 0));
    return n;
}

void fb_pl_note_use(struct fb_pl_file *f, uint32_t how)
{
    if ((atomic_load_explicit(&f->used, memory_order_relaxed) & how) == 0)
        atomic_fetch_or_explicit(&f->used, how, memory_order_relaxed);
}

/* ---- read, pread ---- */

/* The file if it is cached. */
static struct fb_pl_file *cached(int fd, uint32_t how)
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;

    if (f && f->kind != FB_PL_CACHED) {
        fb_pl_put(f);
        return NULL;
    }
    if (f)
        fb_pl_note_use(f, how);
    return f;
}

FB_EXPORT ssize_t read(int fd, void *to, size_t bytes)
{
    struct fb_pl_file *f = cached(fd, FB_PL_USED_OFFSET);
    ssize_t n;

    if (!f)
        return FB_REAL(read)(fd, to, bytes);
    n = fb_pl_read(f, to, bytes);
    fb_pl_put(f);
    return n;
}

#define WRAP_PREAD(name)                                          \
 FB_EXPORT ssize_t name(int fd, void *to, size_t bytes, off_t at) \
 {                                                                \
  struct fb_pl_file *f = cached(fd, FB_PL_USED_AT);               \
  ssize_t n;                                                      \
                                                                  \
  if (!f)                                                         \
   return FB_REAL(name)(fd, to, bytes, at);                       \
  n = fb_pl_read_at(f, to, bytes, at);                            \
  fb_pl_put(f);                                                   \
  return n;                                                       \
 }

WRAP_PREAD(pread)
WRAP_PREAD(pread64)

/* With _FORTIFY_SOURCE; libc's own check says what it always says. */
ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room);

FB_EXPORT ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room)
{
    return bytes > room || !fb_pl_is_ours(fd) ? FB_REAL(__read_chk)(fd, to, bytes, room)
                                              : read(fd, to, bytes);
}

#define WRAP_PREAD_CHK(name)                                                         \
 ssize_t name(int fd, void *to, size_t bytes, off_t at, size_t room);                \
 FB_EXPORT ssize_t name(int fd, void *to, size_t bytes, off_t at, size_t room)       \
 {                                                                                   \
  return bytes > room || !fb_pl_is_ours(fd) ? FB_REAL(name)(fd, to, bytes, at, room) \
                                            : pread(fd, to, bytes, at);              \
 }

WRAP_PREAD_CHK(__pread_chk)
WRAP_PREAD_CHK(__pread64_chk)

/* ---- vectors ---- */

static bool is_sane(const struct iovec *iov, int count)
{
    if (count < 0 || count > IOV_MAX)
        return false;
    for (int i = 0; i < count; i++)
        if (iov[i].iov_len > SSIZE_MAX)
            return false;
    return true;
}

static ssize_t read_pieces(struct fb_pl_file *f, const struct iovec *iov, int count, int64_t at)
{
    ssize_t done = 0;

    for (int i = 0; i < count; i++) {
        ssize_t n = fb_pl_read_at(f, iov[i].iov_base, iov[i].iov_len, at + done);

        if (n < 0)
            return done > 0 ? done : n;
        done += n;
        if ((size_t)n < iov[i].iov_len)
            break;
    }
    return done;
}

/* At the file's offset: one read, whoever else reads there. */
static ssize_t read_on(struct fb_pl_file *f, const struct iovec *iov, int count)
{
    int64_t at, next;
    size_t bytes = 0;
    ssize_t n;

    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len < SSIZE_MAX - bytes ? iov[i].iov_len : SSIZE_MAX - bytes;
    if (!share_offset(f))
        return -1;
    at = claim(f, bytes, &next);
    if (fb_unlikely(at < 0)) {
        n = fb_sys(SYS_readv, fb_pl_moved(at), iov, count, 0);
        return n < 0 ? fb_fail((int)-n) : n;
    }
    n = read_pieces(f, iov, count, at);
    if (fb_unlikely(n != next - at))
        give_back(f, next, at + (n > 0 ? n : 0));
    return n;
}

/* at < 0: at the file's offset. */
static ssize_t read_vector(struct fb_pl_file *f, const struct iovec *iov, int count, int64_t at)
{
    if (!is_sane(iov, count))
        return fb_fail(EINVAL);
    return at < 0 ? read_on(f, iov, count) : read_pieces(f, iov, count, at);
}

FB_EXPORT ssize_t readv(int fd, const struct iovec *iov, int count)
{
    struct fb_pl_file *f = cached(fd, FB_PL_USED_OFFSET);
    ssize_t n;

    if (!f)
        return FB_REAL(readv)(fd, iov, count);
    n = read_vector(f, iov, count, -1);
    fb_pl_put(f);
    return n;
}

#define WRAP_PREADV(name)                                                     \
 FB_EXPORT ssize_t name(int fd, const struct iovec *iov, int count, off_t at) \
 {                                                                            \
  struct fb_pl_file *f = cached(fd, FB_PL_USED_AT);                           \
  ssize_t n;                                                                  \
                                                                              \
  if (!f)                                                                     \
   return FB_REAL(name)(fd, iov, count, at);                                  \
  n = at < 0 ? fb_fail(EINVAL) : read_vector(f, iov, count, at);              \
  fb_pl_put(f);                                                               \
  return n;                                                                   \
 }

WRAP_PREADV(preadv)
WRAP_PREADV(preadv64)

/* Flags (RWF_NOWAIT ...) are hints to the kernel: all that is here is at hand. */
#define WRAP_PREADV2(name)                                                               \
 FB_EXPORT ssize_t name(int fd, const struct iovec *iov, int count, off_t at, int flags) \
 {                                                                                       \
  struct fb_pl_file *f = cached(fd, at == -1 ? FB_PL_USED_OFFSET : FB_PL_USED_AT);       \
  ssize_t n;                                                                             \
                                                                                         \
  if (!f)                                                                                \
   return FB_REAL(name)(fd, iov, count, at, flags);                                      \
  n = at < -1 ? fb_fail(EINVAL) : read_vector(f, iov, count, at);                        \
  fb_pl_put(f);                                                                          \
  return n;                                                                              \
 }

WRAP_PREADV2(preadv2)
WRAP_PREADV2(preadv64v2)

/* ---- lseek ---- */

/* The end of the file is a hole, and so may be more of it: the source knows. Without it: all is
 * data, which is always a true answer. */
static int64_t seek_hole(struct fb_pl_file *f, int64_t offset, int whence)
{
    int64_t size = (int64_t)f->file.attr.version.size, to;
    int real;

    if (offset < 0 || offset >= size)
        return -ENXIO;
    if (f->file.attr.blocks * 512 < (uint64_t)size && (real = fb_pl_real_fd(f)) >= 0) {
        to = fb_sys_lseek(real, offset, whence);
        fb_sys_close(real);
        return to;
    }
    return whence == SEEK_DATA ? offset : size;
}

/* Where it leads from `now`, or a negative errno. */
static int64_t seek_to(struct fb_pl_file *f, int64_t now, int64_t offset, int whence)
{
    int64_t to = offset;

    if (whence == SEEK_DATA || whence == SEEK_HOLE)
        return seek_hole(f, offset, whence);
    if (whence != SEEK_SET && whence != SEEK_CUR && whence != SEEK_END)
        return -EINVAL;
    if (whence != SEEK_SET &&
        __builtin_add_overflow(whence == SEEK_CUR ? now : (int64_t)f->file.attr.version.size,
                               offset, &to))
        return -EINVAL;
    return to < 0 ? -EINVAL : to;
}

int64_t fb_pl_seek(struct fb_pl_file *f, int64_t offset, int whence)
{
    int64_t now, to;

    if (!share_offset(f))
        return -1;
    now = atomic_load(&f->offset);
    do {
        to = fb_unlikely(now < 0) ? fb_sys_lseek(fb_pl_moved(now), offset, whence)
                                  : seek_to(f, now, offset, whence);
        if (to < 0)
            return fb_fail((int)-to);
    } while (now >= 0 && !atomic_compare_exchange_weak(&f->offset, &now, to));
    return to;
}

#define WRAP_LSEEK(name)                                \
 FB_EXPORT off_t name(int fd, off_t offset, int whence) \
 {                                                      \
  struct fb_pl_file *f = cached(fd, FB_PL_USED_OFFSET); \
  int64_t at;                                           \
                                                        \
  if (!f)                                               \
   return FB_REAL(name)(fd, offset, whence);            \
  at = fb_pl_seek(f, offset, whence);                   \
  fb_pl_put(f);                                         \
  return at;                                            \
 }

WRAP_LSEEK(lseek)
WRAP_LSEEK(lseek64)

/* ---- to another descriptor ---- */

/* Moves up to `bytes` from the cached file to `out`; *at is where in it, *out_at where in `out`;
 * NULL: at the offset. */
static ssize_t pump(struct fb_pl_file *f, int out, off_t *at, off_t *out_at, size_t bytes)
{
    uint8_t *buffer = fb_sys_memory(PUMP_BYTES);
    int64_t from = at ? *at : fb_pl_seek(f, 0, SEEK_CUR);
    ssize_t done = 0, n = 0;

    if (!buffer || from < 0) {
        if (buffer)
            fb_sys_munmap(buffer, PUMP_BYTES);
        return fb_fail(!buffer ? ENOMEM : at ? EINVAL : errno);
    }
    while ((size_t)done < bytes) {
        ssize_t wrote;

        n = fb_pl_read_at(f, buffer, fb_min_u64(bytes - (size_t)done, PUMP_BYTES), from + done);
        if (n <= 0)
            break;
        wrote = out_at ? FB_REAL(pwrite)(out, buffer, (size_t)n, *out_at + done)
                       : FB_REAL(write)(out, buffer, (size_t)n);
        if (wrote > 0)
            done += wrote;
        if (wrote != n) {
            n = wrote;
            break;
        }
    }
    fb_sys_munmap(buffer, PUMP_BYTES);
    if (done == 0 && n < 0)
        return -1;
    if (out_at)
        *out_at += done;
    if (at)
        *at = from + done;
    else
        (void)fb_pl_seek(f, from + done, SEEK_SET);
    return done;
}

#define WRAP_SENDFILE(name)                                                  \
 FB_EXPORT ssize_t name(int out, int in, off_t *at, size_t bytes)            \
 {                                                                           \
  struct fb_pl_file *f = cached(in, at ? FB_PL_USED_AT : FB_PL_USED_OFFSET); \
  ssize_t n;                                                                 \
                                                                             \
  if (!f)                                                                    \
   return FB_REAL(name)(out, in, at, bytes);                                 \
  n = pump(f, out, at, NULL, bytes);                                         \
  fb_pl_put(f);                                                              \
  return n;                                                                  \
 }

WRAP_SENDFILE(sendfile)
WRAP_SENDFILE(sendfile64)

FB_EXPORT ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes,
                                  unsigned flags)
{
    struct fb_pl_file *f = cached(in, in_at ? FB_PL_USED_AT : FB_PL_USED_OFFSET);
    ssize_t n;

    if (!f)
        return FB_REAL(copy_file_range)(in, in_at, out, out_at, bytes, flags);
    n = flags ? fb_fail(EINVAL) : pump(f, out, in_at, out_at, bytes);
    fb_pl_put(f);
    return n;
}

/* A pipe takes what it has room for, without a wait, and only the kernel knows how much that is:
 * the file itself, then. */
FB_EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t bytes,
                         unsigned flags)
{
    int rc = fb_unlikely(fb_pl_is_ours(in)) ? fb_pl_make_real(in) : 0;

    return rc < 0 ? fb_fail(-rc) : FB_REAL(splice)(in, in_at, out, out_at, bytes, flags);
}

/* ---- mmap ---- */

/* The file itself is mapped: its pages come and go as the kernel likes. The descriptor stays
 * cached. Not libc's mmap: allocators call this before libc can be asked for its own. */
static void *map(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    struct fb_pl_file *f = flags & MAP_ANONYMOUS ? NULL : cached(fd, FB_PL_USED_AT);
    int real = fd;
    long p;

    if (f) {
        real = fb_pl_real_fd(f);
        fb_pl_put(f);
    }
    p = f && real < 0 ? real
                      : fb_sys6(SYS_mmap, (long)at, (long)bytes, protection, flags, real, from);
    if (f && real >= 0)
        fb_sys_close(real);
    if (p > -4096 && p < 0) {
        errno = (int)-p;
        return MAP_FAILED;
    }
    return (void *)p;
}

#define WRAP_MMAP(name)                                                                      \
 FB_EXPORT void *name(void *at, size_t bytes, int protection, int flags, int fd, off_t from) \
 {                                                                                           \
  return map(at, bytes, protection, flags, fd, from);                                        \
 }

WRAP_MMAP(mmap)
WRAP_MMAP(mmap64)
