/*
 * stdio. libc's streams read inside libc, where we cannot see it; so a stream on a cached file is
 * one with functions of ours (fopencookie) that read from the descriptor. fileno() of such a stream
 * must still say the descriptor: C++ streams and many programs ask for it. Wide characters such a
 * stream cannot do: see wrap_wide.c.
 */
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "doors/preload/preload_priv.h"

#define STREAMS 1024 /* open at a time; more are made of the files themselves */

/* A stream of ours and its descriptor. Claimed with a compare-and-swap, freed by its close. */
static struct stream {
    _Atomic(FILE *) file;
    _Atomic(FILE *) real; /* libc's own on the same descriptor, since wide characters were read */
    int fd;
    bool bytes;   /* were read: it is no stream of wide characters any more */
    bool seeking; /* then what is read is nobody's */
} streams[STREAMS];

#define CLAIMED ((FILE *)1)

/* Flags of libc's streams: what it does not do with them. */
#define NO_READS  4
#define NO_WRITES 8

static struct stream *claim(void)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        FILE *none = NULL;

        if (atomic_compare_exchange_strong(&streams[i].file, &none, CLAIMED))
            return &streams[i];
    }
    return NULL;
}

/* Those of libc's that have a descriptor say so, and are most. */
static struct stream *find(FILE *file)
{
    if (fb_likely(file->_fileno >= 0))
        return NULL;
    for (unsigned i = 0; i < STREAMS; i++)
        if (atomic_load_explicit(&streams[i].file, memory_order_relaxed) == file)
            return &streams[i];
    return NULL;
}

/* ---- the functions of a stream ---- */

static ssize_t stream_read(void *cookie, char *to, size_t bytes)
{
    struct stream *s = cookie;

    s->bytes |= !s->seeking;
    return read(s->fd, to, bytes);
}

static ssize_t stream_write(void *cookie, const char *from, size_t bytes)
{
    struct stream *s = cookie;
    ssize_t n = write(s->fd, from, bytes);

    s->bytes = true;
    return n < 0 ? 0 : n; /* so libc wants an error to be said */
}

static int stream_seek(void *cookie, off64_t *offset, int whence)
{
    off64_t at = lseek(((struct stream *)cookie)->fd, *offset, whence);

    if (at < 0)
        return -1;
    *offset = at;
    return 0;
}

static int stream_close(void *cookie)
{
    struct stream *s = cookie;
    FILE *real = atomic_load(&s->real);
    int fd = s->fd;

    atomic_store(&s->file, NULL);
    return real ? fclose(real) : close(fd);
}

/* ---- opening ---- */

/* The flags of open() that a mode stands for; -1: not one to serve. */
static int flags_of(const char *mode)
{
    int flags = O_RDONLY;

    if (mode[0] != 'r')
        return -1;
    for (mode++; *mode && *mode != ','; mode++) {
        if (*mode == 'e')
            flags |= O_CLOEXEC;
        else if (*mode != 'b' && *mode != 'c' && *mode != 'm')
            return -1;
    }
    return *mode == ',' ? -1 : flags;
}

/* Takes over a cached descriptor on success. */
static FILE *make_stream(int fd)
{
    cookie_io_functions_t functions = {
        .read = stream_read, .write = stream_write, .seek = stream_seek, .close = stream_close};
    struct stream *s = claim();
    FILE *file;

    if (!s)
        return NULL;
    s->fd = fd;
    s->bytes = false;
    s->seeking = false;
    atomic_store(&s->real, NULL);
    file = fopencookie(s, "r", functions);
    atomic_store(&s->file, file);
    return file;
}

static bool is_write(const char *mode)
{
    return mode[0] != 'r' || strchr(mode, '+');
}

/* What libc opens for writing, or did not serve, is noted as any other. */
static FILE *passed(FILE *file, const char *path, const char *mode)
{
    if (file)
        (void)fb_pl_opened_real(FB_REAL(fileno)(file), AT_FDCWD, path,
                                is_write(mode) ? O_WRONLY | O_CREAT : O_RDONLY);
    return file;
}

#define WRAP_FOPEN(name)                                   \
 FB_EXPORT FILE *name(const char *path, const char *mode)  \
 {                                                         \
  struct fb_pl_way way;                                    \
  int flags = flags_of(mode), fd;                          \
  FILE *file;                                              \
                                                           \
  path = fb_pl_go(&way, AT_FDCWD, path);                   \
  fd = flags < 0 ? -1 : fb_pl_open(AT_FDCWD, path, flags); \
  file = fd < 0 ? NULL : make_stream(fd);                  \
  if (file)                                                \
   return file;                                            \
  if (fd >= 0)                                             \
   close(fd);                                              \
  if (is_write(mode))                                      \
   fb_pl_before_change(AT_FDCWD, path);                    \
  file = passed(FB_REAL(name)(path, mode), path, mode);    \
  if (!file)                                               \
   fb_pl_failed(&way);                                     \
  return file;                                             \
 }

WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)

/* The mode must fit the descriptor, which is read-only. */
static FILE *open_cached(int fd, const char *mode)
{
    FILE *file = flags_of(mode) >= 0 ? make_stream(fd) : NULL;
    int rc = file ? 0 : mode[0] != 'r' || strchr(mode, '+') ? -EINVAL : fb_pl_make_real(fd);

    if (rc < 0)
        errno = -rc;
    return file || rc < 0 ? file : FB_REAL(fdopen)(fd, mode);
}

FB_EXPORT FILE *fdopen(int fd, const char *mode)
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
    bool is_cached = f && f->kind == FB_PL_CACHED;

    if (f)
        fb_pl_put(f);
    return is_cached ? open_cached(fd, mode) : FB_REAL(fdopen)(fd, mode);
}

/* ---- closing ---- */

/* libc closes the descriptor of a stream of its own where we do not see it. What the stream still
 * holds is written before that, so a path that was written to is forgotten after it. */
FB_EXPORT int fclose(FILE *file)
{
    int fd = file && !find(file) ? FB_REAL(fileno)(file) : -1;
    struct fb_pl_file *f = NULL;
    int rc;

    if (fd >= 0)
        (void)fb_pl_closing(fd, &f);
    rc = FB_REAL(fclose)(file);
    if (f)
        fb_pl_put(f);
    return rc;
}

/* Any mode; -1: none, or one that we cannot do. */
static int flags_to_reopen(const char *mode)
{
    int flags = mode[0] == 'r'   ? O_RDONLY
                : mode[0] == 'w' ? O_WRONLY | O_CREAT | O_TRUNC
                : mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND
                                 : -1;

    for (mode++; flags >= 0 && *mode && *mode != ','; mode++) {
        if (*mode == '+')
            flags = (flags & ~O_ACCMODE) | O_RDWR;
        else if (*mode == 'e')
            flags |= O_CLOEXEC;
        else if (*mode == 'x')
            flags |= O_EXCL;
    }
    return flags >= 0 && *mode ? -1 : flags;
}

/* The same file anew: as libc does, by its descriptor. */
static int open_again(int fd, int flags)
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
    char path[32];
    int rc;

    if (!f) {
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return open(path, flags, 0666);
    }
    rc = open(f->path, flags & ~(O_CREAT | O_EXCL), 0666);
    fb_pl_put(f);
    return rc;
}

/* A stream of ours cannot become one of libc's; but it can have another descriptor, and turn from
 * reading to writing, for which libc has flags in it that no header names. */
static FILE *reopen_ours(struct stream *s, FILE *file, const char *path, const char *mode)
{
    int flags = flags_to_reopen(mode), error, fd;
    FILE *real = atomic_load(&s->real);

    (void)FB_REAL_LATE(fflush)(file);
    fd = flags < 0 ? fb_fail(EOPNOTSUPP)
         : path    ? open(path, flags, 0666)
                   : open_again(s->fd, flags);
    error = errno;
    atomic_store(&s->real, NULL);
    if (real)
        (void)fclose(real);
    else
        close(s->fd);
    __fpurge(file);
    clearerr(file);
    s->fd = fd;
    s->bytes = false;
    if (fd < 0) { /* closed, and there for fclose() all the same, as with libc */
        errno = error;
        return NULL;
    }
    file->_flags &= ~(NO_READS | NO_WRITES);
    if ((flags & O_ACCMODE) != O_RDWR)
        file->_flags |= (flags & O_ACCMODE) == O_RDONLY ? NO_WRITES : NO_READS;
    return file;
}

#define WRAP_FREOPEN(name)                                            \
 FB_EXPORT FILE *name(const char *path, const char *mode, FILE *file) \
 {                                                                    \
  struct stream *s = find(file);                                      \
  struct fb_pl_file *f = NULL;                                        \
  int fd = s ? -1 : FB_REAL(fileno)(file);                            \
  struct fb_pl_way way;                                               \
                                                                      \
  if (s)                                                              \
   return reopen_ours(s, file, path, mode);                           \
  path = fb_pl_go(&way, AT_FDCWD, path);                              \
  if (path && is_write(mode))                                         \
   fb_pl_before_change(AT_FDCWD, path);                               \
  if (fd >= 0) {                                                      \
   (void)fb_pl_make_real(fd);                                         \
   (void)fb_pl_closing(fd, &f);                                       \
  }                                                                   \
  file = FB_REAL(name)(path, mode, file);                             \
  if (f)                                                              \
   fb_pl_put(f);                                                      \
  if (!file)                                                          \
   fb_pl_failed(&way);                                                \
  return passed(file, path, mode);                                    \
 }

WRAP_FREOPEN(freopen)
WRAP_FREOPEN(freopen64)

/* ---- wide characters: wrap_wide.c ---- */

/* The stream is locked. */
static FILE *make_wide(struct stream *s, FILE *file)
{
    off64_t at = FB_REAL_LATE(ftello64)(file);
    int rc = fb_pl_make_real(s->fd), flags = fb_sys_fcntl(s->fd, F_GETFL, 0) & O_ACCMODE;
    FILE *real = rc < 0 ? NULL
                        : FB_REAL(fdopen)(s->fd, flags == O_RDONLY   ? "r"
                                                 : flags == O_WRONLY ? "w"
                                                                     : "r+");

    if (rc < 0)
        errno = -rc;
    if (!real) {
        file->_flags |= _IO_ERR_SEEN;
        return NULL;
    }
    __fpurge(file);
    if (at >= 0)
        (void)fb_sys_lseek(s->fd, at, SEEK_SET);
    (void)FB_REAL_LATE(fwide)(real, 1);
    atomic_store(&s->real, real);
    return real;
}

FILE *fb_pl_wide(FILE *file)
{
    struct stream *s = find(file);
    FILE *real;

    if (fb_likely(!s))
        return file;
    real = atomic_load(&s->real);
    if (real)
        return real;
    flockfile(file);
    real = atomic_load(&s->real);
    if (!real && !s->bytes)
        real = make_wide(s, file);
    funlockfile(file);
    return real;
}

FILE *fb_pl_stream(FILE *file)
{
    struct stream *s = find(file);
    FILE *real;

    if (fb_likely(!s))
        return file;
    real = atomic_load(&s->real);
    s->seeking = !real;
    return real ? real : file;
}

void fb_pl_show_state(FILE *file, const FILE *used)
{
    int flags = _IO_EOF_SEEN | _IO_ERR_SEEN;
    struct stream *s = find(file);

    if (fb_likely(!s))
        return;
    s->seeking = false;
    if (!used || used == file || ((file->_flags ^ used->_flags) & flags) == 0)
        return;
    flockfile(file);
    file->_flags = (file->_flags & ~flags) | (used->_flags & flags);
    funlockfile(file);
}

FB_EXPORT int fwide(FILE *file, int mode)
{
    struct stream *s = find(file);
    FILE *real;

    if (fb_likely(!s))
        return FB_REAL_LATE(fwide)(file, mode);
    real = mode > 0 ? fb_pl_wide(file) : atomic_load(&s->real);
    if (real)
        return 1;
    s->bytes |= mode != 0;
    return s->bytes ? -1 : 0;
}

/* ---- fileno ---- */

FB_EXPORT int fileno(FILE *file)
{
    const struct stream *s = find(file);

    return s ? s->fd : FB_REAL(fileno)(file);
}

FB_EXPORT int fileno_unlocked(FILE *file)
{
    const struct stream *s = find(file);

    return s ? s->fd : FB_REAL(fileno_unlocked)(file);
}
