/*
 * doors/preload/preload_priv.h - the preload library: an unmodified program reads files below the
 * daemon's sources from shared memory.
 *
 *     paths.c     which paths are ours
 *     dirs.c      where directories are that paths are relative to
 *     alone.h     processes that have nothing to do with any of it
 *     virtual.c   paths that stand for a bucket
 *     table.c     descriptors that stand for cached files
 *     real.c      cached files that become real ones
 *     locks.c     files that the program locks
 *     wrap_*.c    what programs call: open, read, stat, stdio, processes, changes
 *
 * A cached file's descriptor is a real number with a placeholder behind it: a duplicate of one
 * O_PATH descriptor of the daemon's socket. So numbers are the kernel's to give out, limits hold,
 * and one system call opens or closes. Whatever reaches the placeholder past this library fails
 * loudly: read() and mmap() say EBADF, /proc/self/fd/N opens as ENXIO, fstat() shows a socket. None
 * reads as an empty file.
 *
 * Before anything that does not pass through here can touch it (exec, spawn, a lock, an unknown
 * ioctl ...) the placeholder is replaced by the file itself, at the same number and offset:
 * fb_pl_make_real(). Two versions of a file are never mixed in one descriptor: if the source has
 * another one by then, what is cached is copied into a memfd; if that cannot be had, the call fails
 * with ESTALE.
 *
 * Rules. Nothing prints, aborts, or calls malloc. errno is as libc would leave it. No lock is held
 * while anything waits, and none that a signal handler could need.
 */
#ifndef FB_DOORS_PRELOAD_PRELOAD_PRIV_H
#define FB_DOORS_PRELOAD_PRELOAD_PRIV_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/attr.h"
#include "client/client.h"
#include "client/sys.h"

#define FB_EXPORT __attribute__((visibility("default")))

#define FB_PL_FDS          65536 /* descriptors that can stand for a file; higher ones are passed */
#define FB_PL_FILES        16384 /* cached files open at a time; more are passed */
#define FB_PL_WINDOW       (256u << 10) /* small reads of what is not in memory come from so much */
#define FB_PL_WINDOW_BELOW (64u << 10)
#define FB_PL_WINDOWS      64         /* of them at a time */
#define FB_PL_COPY_MAX     (1u << 30) /* bytes of a cached file that become a memfd */

/* Flags with which a file can be served; O_RDONLY is 0. */
#define FB_PL_SERVABLE \
 (O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_LARGEFILE | O_NOATIME | O_NOFOLLOW | O_SYNC)

/* A function that would have been called without us. All of them lie in one section, as in an
 * array (hence size and alignment), which needs no work when the library is loaded: no pointers. */
struct fb_pl_symbol {
    _Atomic(void *) function; /* NULL: not looked for yet */
    char name[FB_CACHELINE - sizeof(void *)];
} FB_ALIGNED(FB_CACHELINE);

static_assert(sizeof(struct fb_pl_symbol) == FB_CACHELINE, "no gaps between them");

void *fb_pl_look_for(struct fb_pl_symbol *symbol);

/* Inline, as all on the way to a call that is not for us: after a system call each return costs
 * more than this. */
static inline void *fb_pl_real(struct fb_pl_symbol *symbol)
{
    /* Relaxed: the function it leads to was there before we were. */
    void *f = atomic_load_explicit(&symbol->function, memory_order_relaxed);

    return fb_likely(f) ? f : fb_pl_look_for(symbol);
}

/* Looks for all of them. */
void fb_pl_find_all(void);

#define FB_PL_LISTED __attribute__((section("fb_pl_symbols"), used))

#define FB_REAL(name)                                        \
 ({                                                          \
static struct fb_pl_symbol symbol_ FB_PL_LISTED = {NULL, #name}; \
(__typeof__(&name))fb_pl_real(&symbol_);                         \
 })

/* One that no handler of signals may call: it need not be looked for before it is needed. */
#define FB_REAL_LATE(name)                      \
 ({                                             \
static struct fb_pl_symbol symbol_ = {NULL, #name}; \
(__typeof__(&name))fb_pl_real(&symbol_);            \
 })

/* ---- files ---- */

enum fb_pl_kind {
    FB_PL_CACHED = 1,
    FB_PL_WRITER, /* a real descriptor; when it is closed, the path is forgotten */
};

#define FB_PL_USED_OFFSET 1u /* read() or lseek() was called: the offset matters */
#define FB_PL_USED_AT     2u /* pread() was called */
#define FB_PL_USED_STAT   4u /* fstat() was called */

struct fb_pl_file {
    _Atomic uint32_t refs; /* descriptors, and calls under way */
    _Atomic uint32_t next_free;
    _Atomic uint32_t used;
    uint8_t kind;
    int flags; /* of open() */
    /* Negative: it has moved into the offset of a real descriptor, which is FB_PL_MOVED + its
     * number. */
    _Atomic int64_t offset;
    _Atomic int shadow;  /* the file itself, for locks and across fork(); -1: not open */
    _Atomic bool forked; /* another process has the same offset: that of the shadow */
    int64_t forked_at;   /* what the offset was then */
    /* A window into what is not in shared memory. */
    _Atomic bool window_busy;
    uint8_t *window;
    uint64_t window_at;
    uint32_t window_bytes;
    struct fb_client_file file;
    char path[FB_CLIENT_FILE_PATH]; /* absolute and clean: file.full, or what is written */
};

/* ---- table.c ---- */

extern struct fb_client fb_pl_client;

/* The file behind a descriptor, with a reference; NULL: not ours. */
struct fb_pl_file *fb_pl_get(int fd);
void fb_pl_put(struct fb_pl_file *f);
/* Quick: is there anything to look at? Every wrapper asks this first. */
extern _Atomic uint32_t fb_pl_slots[FB_PL_FDS];
extern _Atomic uint32_t fb_pl_windows; /* in use */
extern _Atomic bool fb_pl_active;      /* a slot was taken, ever */
extern _Atomic int fb_pl_highest;      /* no slot above is taken */
extern _Atomic uint32_t fb_pl_writers; /* files of kind FB_PL_WRITER */
extern _Atomic int fb_pl_placeholder;  /* what stands for cached files; -1: none yet */

#define FB_PL_MOVED     INT64_MIN
#define FB_PL_DIRECTORY UINT32_MAX /* a real descriptor of a directory below a root, perhaps */
#define FB_PL_OWN       (UINT32_MAX - 1) /* a real descriptor of the library's */
#define FB_PL_BUSY      0x80000000u      /* with a file's place: it just becomes real */

static inline uint32_t fb_pl_slot(int fd)
{
    return fb_likely((unsigned)fd < FB_PL_FDS)
               ? atomic_load_explicit(&fb_pl_slots[fd], memory_order_acquire)
               : 0;
}

static inline bool fb_pl_is_ours(int fd)
{
    uint32_t slot = fb_pl_slot(fd);

    return fb_unlikely(slot != 0) && slot < FB_PL_OWN;
}

/* A descriptor that is nothing to us, by a quick look; false: perhaps. */
static inline bool fb_pl_is_foreign(int fd)
{
    uint32_t low = atomic_load_explicit(&fb_pl_client.low_fd, memory_order_relaxed);

    return fb_pl_slot(fd) == 0 && (low == 0 || (uint32_t)fd < low) &&
           fd != atomic_load_explicit(&fb_pl_placeholder, memory_order_relaxed);
}

/* A new file with one reference; NULL: no room. */
struct fb_pl_file *fb_pl_new(enum fb_pl_kind kind);
/* A new descriptor for a cached file, which takes over the reference, also on failure. Negative
 * errno. */
int fb_pl_install(struct fb_pl_file *f, int lowest, bool cloexec);
/* A descriptor the kernel has just made: whatever the table says of that number is old. */
void fb_pl_fresh(int fd);
void fb_pl_mark(int fd, uint32_t slot);
/* A descriptor of a directory: where that is is found out at once, since files may be named by it.
 */
void fb_pl_mark_dir(int fd);
/* A real descriptor whose writes are to be noticed. */
void fb_pl_watch(int fd, struct fb_pl_file *f);
/* The same in the place of another one that is watched there, if it still is. */
void fb_pl_watch_instead(int fd, struct fb_pl_file *was, struct fb_pl_file *f);
/* One more descriptor of the same file. -1 lowest: exactly `to` (dup2). */
int fb_pl_dup(int fd, int lowest, int to, bool cloexec);
/* dup3(), after which `to` stands for `slot`: a reference is the slot's, or, on failure, still the
 * caller's. Negative errno. */
int fb_pl_dup_onto(int fd, int to, int flags, uint32_t slot);
/* Before a descriptor is closed: forgets what it stood for, a file that is to be put when it has
 * been closed, or NULL. True: it is the library's own, and must stay. */
bool fb_pl_closing(int fd, struct fb_pl_file **ret_file);
/* A real descriptor becomes the library's own, perhaps at another number; and is closed. */
int fb_pl_own(int fd);
void fb_pl_disown(int fd);
uint32_t fb_pl_place(const struct fb_pl_file *f);
/* This process has the path open for writing. */
bool fb_pl_writes_to(const char *path);

/* Before dup2() puts something else in the place of a descriptor. */
void fb_pl_overwriting(int fd);

/* ---- real.c ---- */

/* The real descriptor that the file's offset has moved to; -1: it has not. */
static inline int fb_pl_moved(int64_t offset)
{
    return offset < 0 ? (int)(offset - FB_PL_MOVED) : -1;
}

/* All descriptors of the file become real. One of its own, which is there as long as the file, or
 * negative errno. */
int fb_pl_go_real(struct fb_pl_file *f);
/* The same for a descriptor that may be cached, or not: 0, or negative errno. */
int fb_pl_make_real(int fd);

/* True: a call that needs the file itself may go on; false: errno says why not. */
static inline bool fb_pl_real_now(int fd)
{
    int rc = fb_unlikely(fb_pl_is_ours(fd)) ? fb_pl_make_real(fd) : 0;

    if (rc < 0)
        errno = -rc;
    return rc == 0;
}

/* Those that fn wants. */
void fb_pl_make_real_if(bool (*wanted)(int fd, const struct fb_pl_file *f));
bool fb_pl_any(int fd, const struct fb_pl_file *f);
bool fb_pl_inherited(int fd, const struct fb_pl_file *f); /* by a new program: not O_CLOEXEC */
/* The file itself, or its bytes; a new descriptor, O_CLOEXEC. Negative errno. */
int fb_pl_real_fd(struct fb_pl_file *f);
/* The file itself, open beside the cached one as long as that is. Negative errno. */
int fb_pl_shadow(struct fb_pl_file *f);
/* While a slot is BUSY: a handler that closes its number would wait for itself. */
uint64_t fb_pl_block_signals(void);
void fb_pl_allow_signals(uint64_t before);
void fb_pl_before_fork(void);
void fb_pl_in_child(void);

/* In the child of a vfork, which shares our memory, nothing is ours. */
extern _Thread_local bool fb_pl_vforked;

/* ---- locks.c ---- */

extern _Atomic uint32_t fb_pl_locked_count; /* 0: this process has locked nothing */

/* This process may have a lock on the file of that inode. */
bool fb_pl_has_locked(uint64_t ino);
/* Before the descriptor's file is locked by fcntl() or lockf(). The caller has no reference to it.
 * Negative errno. */
int fb_pl_before_lock(int fd);

static inline bool fb_pl_is_locked(const struct fb_pl_file *f)
{
    return fb_unlikely(atomic_load_explicit(&fb_pl_locked_count, memory_order_relaxed) > 0) &&
           fb_pl_has_locked(f->file.attr.ino);
}

/* ---- paths.c ---- */

/* The absolute, clean path of what open(dir, path) names, if it may be below a root. */
bool fb_pl_path(int dir, const char *path, char ret_path[FB_CLIENT_FILE_PATH]);
/* Nothing of this process was ever ours, and what is opened is not either: quick. Of writers and
 * directories that are opened by relative names the whole path has to be known. */
bool fb_pl_stranger(int dir, const char *path, int flags);
/* A path that is not ours, told without a look at the way to it; false: perhaps. */
bool fb_pl_outside(int dir, const char *path);
/* A directory neither below nor above any root. */
bool fb_pl_apart(const char *dir);
/* An absolute path that is not ours, whatever it leads over. */
bool fb_pl_elsewhere(const char *path);
/* The same as fb_pl_path(), all symbolic links resolved (by the kernel). */
bool fb_pl_exact(int dir, const char *path, char ret_path[FB_CLIENT_FILE_PATH]);
/* The path of a descriptor, if it may be below a root. */
bool fb_pl_path_of(int fd, char ret_path[FB_CLIENT_FILE_PATH]);
/* The same for a name that need not exist: links on the way to it are resolved, not itself. */
bool fb_pl_exact_name(int dir, const char *path, char ret_path[FB_CLIENT_FILE_PATH]);
/* Whether the library works in this process. */
bool fb_pl_on(void);

/* ---- dirs.c ---- */

/* The path of a directory, AT_FDCWD or a descriptor whose slot is FB_PL_DIRECTORY. */
bool fb_pl_dir_path(int dir, char ret_path[FB_CLIENT_FILE_PATH]);
/* It is another one from now on. */
void fb_pl_dir_forget(int dir);
/* This program has moved or removed something that may be a directory. */
void fb_pl_dirs_moved(void);
void fb_pl_dirs_in_child(void);
/* The current directory is far from all roots, or was lately. */
bool fb_pl_far(void);

struct fb_pl_place {
    _Atomic uint32_t version;
    _Atomic uint32_t verdict; /* of version + 2: whether it is far from all roots (lowest bit) */
    _Atomic int whose;        /* a descriptor + 1, or AT_FDCWD; 0: nobody's */
    _Atomic uint32_t bytes;
    _Atomic int64_t asked_ns;
    _Atomic uint64_t path[FB_CLIENT_FILE_PATH / sizeof(uint64_t)];
} FB_ALIGNED(FB_CACHELINE);

/* The current directory; the others have no verdict. */
extern struct fb_pl_place fb_pl_here __attribute__((visibility("hidden")));

/* fb_pl_far() without a call; false: perhaps. */
static inline bool fb_pl_known_far(void)
{
    uint32_t version = atomic_load_explicit(&fb_pl_here.version, memory_order_relaxed);

    /* An odd version, while somebody writes, has no verdict of its own. */
    return atomic_load_explicit(&fb_pl_here.verdict, memory_order_relaxed) == ((version + 2) | 1);
}

/* ---- virtual.c ---- */

/* Where a path leads that a program has written. */
struct fb_pl_way {
    const struct fb_pl_root *root; /* the virtual root; NULL: it leads to where it says */
    int error;                     /* it cannot be gone: fails, and with that */
    char text[PATH_MAX];
};

extern bool fb_pl_virtual; /* there is a virtual root */

void fb_pl_take_virtual(const char *list); /* FOREBAY_VIRTUAL, once */
const char *fb_pl_go_there(struct fb_pl_way *way, int dir, const char *path);
/* The errno of a call that failed on its way. */
int fb_pl_blame(const struct fb_pl_way *way, int error);

/* Where the path leads: to be called with that. It may point into `way`. */
static inline const char *fb_pl_go(struct fb_pl_way *way, int dir, const char *path)
{
    way->root = NULL;
    way->error = 0;
    return fb_likely(!fb_pl_virtual) ? path : fb_pl_go_there(way, dir, path);
}

static inline void fb_pl_failed(const struct fb_pl_way *way)
{
    if (fb_unlikely(fb_pl_virtual))
        errno = fb_pl_blame(way, errno);
}

/* After the call; below zero: it has failed. */
static inline long fb_pl_end(const struct fb_pl_way *way, long result)
{
    if (result < 0)
        fb_pl_failed(way);
    return result;
}

/* A path that the kernel says, as the program sees it. False: it is that already. */
bool fb_pl_back(char text[PATH_MAX]);
/* The descriptor is of the mount below which `path` is, not of the directory under it. */
bool fb_pl_is_there(int fd, const char *path);
/* open(2) of a file there, or anywhere; negative errno. */
int fb_pl_open_there(const char *path, int flags);

/* ---- wrap_open.c ---- */

/* A descriptor of a cached file, or -1: pass. */
int fb_pl_open(int dir, const char *path, int flags);
/* After a real open: takes note of writers and directories. Returns fd. */
int fb_pl_opened_real(int fd, int dir, const char *path, int flags);

/* Something has got another name, perhaps what this program has open for writing: that is written
 * to by its new name from now on. `to`, not NULL: what was linked, and where; it may have had no
 * name before. */
void fb_pl_writers_moved(const char *to, const struct stat *st);

/* ---- wrap_change.c ---- */

/* Before this program changes what the path leads to, or what it names: what it has open of that
 * becomes real. "" or NULL: of what is open at `dir`. */
void fb_pl_before_change(int dir, const char *path);

/* The attributes of what is open have been changed. */
void fb_pl_changed_fd(int fd);

/* With AT_EMPTY_PATH: the call is about the descriptor itself. */
static inline bool fb_pl_names_fd(const char *path, int flags)
{
    return (flags & AT_EMPTY_PATH) != 0 && (!path || path[0] == '\0');
}

/* ---- wrap_stdio.c ---- */

/* For wide characters: the stream itself, or, if it is ours, libc's own in its place. NULL: that
 * cannot be had, or bytes were read. */
FILE *fb_pl_wide(FILE *file);
/* The stream itself, or libc's own that has taken its place. */
FILE *fb_pl_stream(FILE *file);
/* After a call: what it has left in libc's own is to be seen in ours. */
void fb_pl_show_state(FILE *file, const FILE *used);

/* A stream of libc's is about to be read: standard input becomes real (wrap_stdin.c). */
static inline void fb_pl_about_to_read(const FILE *file)
{
    if (fb_unlikely(fb_pl_is_ours(0)) && file == stdin)
        (void)fb_pl_make_real(0);
}

/* ---- wrap_process.c ---- */

/* This process is no longer who it was, or where: it does without the cache. */
void fb_pl_become_other(void);

/* ---- wrap_read.c ---- */

void fb_pl_note_use(struct fb_pl_file *f, uint32_t how);
ssize_t fb_pl_read_at(struct fb_pl_file *f, void *to, size_t bytes, int64_t offset);
ssize_t fb_pl_read(struct fb_pl_file *f, void *to, size_t bytes);
int64_t fb_pl_seek(struct fb_pl_file *f, int64_t offset, int whence);

/* -1 and errno. */
static inline int fb_fail(int error)
{
    errno = error;
    return -1;
}

#endif
