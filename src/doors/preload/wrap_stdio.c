/*
 * stdio. libc's streams read inside libc, where we cannot see it; so a stream on a cached file is
 * one with functions of ours (fopencookie) that read from the descriptor. fileno() of such a stream
 * must still say the descriptor: C++ streams and many programs ask for it.
 */
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>

#include "doors/preload/preload_priv.h"

#define STREAMS 1024 /* open at a time; more are made of the files themselves */

/* A stream of ours and its descriptor. Claimed with a compare-and-swap, freed by its close. */
static struct stream {
    _Atomic(FILE *) file;
    int fd;
} streams[STREAMS];

#define CLAIMED ((FILE *)1)

static struct stream *claim(void)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        FILE *none = NULL;

        if (atomic_compare_exchange_strong(&streams[i].file, &none, CLAIMED))
            return &streams[i];
    }
    return NULL;
}

static struct stream *find(FILE *file)
{
    for (unsigned i = 0; i < STREAMS; i++)
        if (atomic_load_explicit(&streams[i].file, memory_order_relaxed) == file)
            return &streams[i];
    return NULL;
}

/* ---- the functions of a stream ---- */

static ssize_t stream_read(void *cookie, char *to, size_t bytes)
{
    return read(((struct stream *)cookie)->fd, to, bytes);
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
    int fd = s->fd;

    atomic_store(&s->file, NULL);
    return close(fd);
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
        .read = stream_read, .seek = stream_seek, .close = stream_close};
    struct stream *s = claim();
    FILE *file;

    if (!s)
        return NULL;
    s->fd = fd;
    file = fopencookie(s, "r", functions);
    atomic_store(&s->file, file);
    return file;
}

/* What libc opens for writing, or did not serve, is noted as any other. */
static FILE *passed(FILE *file, const char *path, const char *mode)
{
    if (file)
        (void)fb_pl_opened_real(FB_REAL(fileno)(file), AT_FDCWD, path,
                                mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY
                                                                     : O_WRONLY | O_CREAT);
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

/* A stream of ours cannot become one of libc's, nor one to write to. It can read another file. */
static FILE *reopen_ours(struct stream *s, FILE *file, const char *path, const char *mode)
{
    int flags = path ? flags_of(mode) : -1;
    int fd = flags < 0 ? fb_fail(EOPNOTSUPP) : open(path, flags | O_RDONLY);
    int error = errno;

    if (fd < 0) {
        (void)FB_REAL(fclose)(file);
        errno = error;
        return NULL;
    }
    close(s->fd);
    __fpurge(file);
    clearerr(file);
    s->fd = fd;
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
