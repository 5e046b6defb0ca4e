/*
 * open(), close() and stat() by processes that have nothing to do with the data set, or not yet
 * (alone.h): side by side, so that they are few lines of the processor's cache, and without a
 * stack. What is not told here, fb_pl_open_any() and its kin find out.
 */
#include <unistd.h>

#include "doors/preload/alone.h"
#include "doors/preload/preload_priv.h"

#define INLINE static inline __attribute__((always_inline))

INLINE bool is_alone(void)
{
    return fb_likely(atomic_load_explicit(&fb_pl_alone.state, memory_order_acquire) == FB_PL_ALONE);
}

/* An absolute path. Most differ from roots in their second or third byte. */
INLINE bool begins_otherwise(const char *path)
{
    for (const char *const *root = fb_pl_alone.roots; *root; root++) {
        const char *a = *root, *b = path;

        do {
            if (*a == '\0')
                return false;
        } while (*a++ == *b++);
    }
    return true;
}

/* A relative name, below a directory that is not ours: none is that has a descriptor here. */
INLINE bool leads_away(int dir, const char *path)
{
    return path[0] != '.' && path[0] != '\0' && (dir != AT_FDCWD || fb_pl_known_far());
}

/* Of writers and directories that are opened more has to be known (fb_pl_stranger). */
INLINE bool may_pass(const char *path, int flags)
{
    return is_alone() && path && fb_likely((flags & ~FB_PL_SERVABLE) == 0);
}

INLINE bool passes(int dir, const char *path, int flags)
{
    return may_pass(path, flags) &&
           (path[0] == '/' ? begins_otherwise(path) : leads_away(dir, path));
}

FB_EXPORT FB_ALIGNED(FB_CACHELINE)

int close(int fd)
{
    return is_alone() ? fb_pl_alone.close(fd) : fb_pl_close_any(fd);
}

/* They are defined with all their arguments, although the last may be missing: it is handed on
 * unseen, in its register. */
#define WRAP_OPEN(name)                                                                     \
 static __attribute__((noinline)) int name##_here(const char *path, int flags, mode_t mode) \
 {                                                                                          \
  return leads_away(AT_FDCWD, path) ? fb_pl_alone.name(path, flags, mode)                   \
                                    : fb_pl_##name##_any(path, flags, mode);                \
 }                                                                                          \
 FB_EXPORT int wrap_##name(const char *path, int flags, mode_t mode) __asm__(#name);        \
 int wrap_##name(const char *path, int flags, mode_t mode)                                  \
 {                                                                                          \
  if (!may_pass(path, flags))                                                               \
   return fb_pl_##name##_any(path, flags, mode);                                            \
  if (fb_unlikely(path[0] != '/'))                                                          \
   return name##_here(path, flags, mode);                                                   \
  return fb_likely(begins_otherwise(path)) ? fb_pl_alone.name(path, flags, mode)            \
                                           : fb_pl_##name##_any(path, flags, mode);         \
 }

#define WRAP_OPENAT(name)                                                                     \
 FB_EXPORT int wrap_##name(int dir, const char *path, int flags, mode_t mode) __asm__(#name); \
 int wrap_##name(int dir, const char *path, int flags, mode_t mode)                           \
 {                                                                                            \
  if (passes(dir, path, flags))                                                               \
   return fb_pl_alone.name(dir, path, flags, mode);                                           \
  return fb_pl_##name##_any(dir, path, flags, mode);                                          \
 }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

/* ---- stat ---- */

/* By another name, since libc declares that the path is never NULL. */
#define WRAP_STAT(name, type)                                                                   \
 FB_EXPORT int wrap_##name(const char *path, type *st) __asm__(#name);                          \
 int wrap_##name(const char *path, type *st)                                                    \
 {                                                                                              \
  return passes(AT_FDCWD, path, 0) ? fb_pl_alone.name(path, st) : fb_pl_##name##_any(path, st); \
 }

#define WRAP_STATAT(name, type)                                                            \
 FB_EXPORT int wrap_##name(int dir, const char *path, type *st, int flags) __asm__(#name); \
 int wrap_##name(int dir, const char *path, type *st, int flags)                           \
 {                                                                                         \
  return passes(dir, path, 0) ? fb_pl_alone.name(dir, path, st, flags)                     \
                              : fb_pl_##name##_any(dir, path, st, flags);                  \
 }

WRAP_STAT(stat, struct stat)
WRAP_STAT(stat64, struct stat64)
WRAP_STAT(lstat, struct stat)
WRAP_STAT(lstat64, struct stat64)
WRAP_STATAT(fstatat, struct stat)
WRAP_STATAT(fstatat64, struct stat64)
