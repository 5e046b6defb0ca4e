/*
 * forebay.h - read files through the Forebay cache from a C program.
 *
 *     struct forebay *fb = forebay_connect(NULL);
 *     struct forebay_file *file = forebay_open(fb, "/nfs/imagenet/train/n01440764_10026.jpg");
 *     struct forebay_pin *pin;
 *     size_t length = SIZE_MAX;
 *     const void *bytes = forebay_acquire(file, 0, &length, &pin);
 *
 *     decode(bytes, length);          // no copy was made: these are the cache's own bytes
 *     forebay_release(pin);
 *     forebay_close(file);
 *     forebay_disconnect(fb);
 *
 * Any regular file can be opened. One below a directory that the daemon serves is read through the
 * cache, out of memory that the daemon shares with this process; every other one, and every one
 * while there is no daemon, is read as read(2) would. So a program has one way to read, and the
 * cache can come and go: nothing here fails for want of a daemon, and nothing waits longer than
 * some two seconds for one that hangs.
 *
 * Versions. A file that was opened through the cache is one version of it, told by size, mtime,
 * ctime and inode: it reads as it was when it was opened, and two versions are never mixed. When
 * the file changes and the cache no longer holds a part of what was opened, reading that part fails
 * with ESTALE: open it anew. A file that was opened without the cache is a descriptor as any other
 * and shows changes as they are made.
 *
 * Errors. As in POSIX: -1 or NULL, and errno. errno is not touched otherwise but by malloc(3).
 *
 * Threads. All functions may be called from several threads at once, also with the same objects;
 * only what ends an object (disconnect, close, release) must be the last call with it. None is safe
 * in a signal handler.
 *
 * Lifetimes. Objects hold what they need: a file may be used after its connection was disconnected,
 * and acquired bytes after their file was closed. The order in which things are ended is free.
 *
 * fork(2). A child may use and close what it inherits; it gets connections of its own. Bytes
 * acquired before the fork belong to the parent: in the child they may be read as long as the
 * parent holds them, and releasing them there frees the child's memory, not the parent's hold.
 *
 * The library starts no thread, has no global state, prints nothing and never aborts. It keeps a
 * few descriptors open (close-on-exec, from number 900 on): a program that closes descriptors which
 * are not its own loses what it has acquired.
 *
 * Link with `pkg-config --cflags --libs forebay`. See libforebay(3).
 */
#ifndef FOREBAY_H
#define FOREBAY_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef FOREBAY_API
# define FOREBAY_API __attribute__((visibility("default")))
#endif

struct forebay;      /* a way to a daemon, whether it is there or not */
struct forebay_file; /* an open file */
struct forebay_pin;  /* a hold on bytes */

/* The version of the library, as "0.1.0". A constant. */
FOREBAY_API const char *forebay_version(void);

/* ---- the daemon ---- */

/* A connection to the daemon that listens at `socket`; NULL: at $FOREBAY_SOCKET, which `forebay
 * run` sets for the programs it starts. Nothing is contacted yet. Whether a daemon is there is
 * found out at each need, at most once a second while there is none; without a socket's name files
 * are always read directly. To be ended with forebay_disconnect().
 *
 * Under `forebay run` the daemon hears what the program writes. Who connects otherwise, by the name
 * of a socket, has nobody to tell it: a file that the program itself has just written may read as
 * it was before until --metadata-ttl has passed.
 *
 * NULL: ENOMEM; ENAMETOOLONG, the name is longer than a socket's can be. */
FOREBAY_API struct forebay *forebay_connect(const char *socket);

/* Takes NULL. Files and bytes that are still open or held stay good. */
FOREBAY_API void forebay_disconnect(struct forebay *forebay);

/* ---- files ---- */

/* Opens a regular file for reading. `path` is as for open(2): relative or absolute, through
 * symbolic links or not. To be ended with forebay_close().
 *
 * NULL: what open(2) says, when the cache does not have the file; EISDIR, a directory; EINVAL, not
 * a regular file; ENOMEM. */
FOREBAY_API struct forebay_file *forebay_open(struct forebay *forebay, const char *path);

/* Takes NULL. Bytes that were acquired stay good. */
FOREBAY_API void forebay_close(struct forebay_file *file);

/* Reads up to `length` bytes at `offset`. Returns how many; fewer than asked only at the end of the
 * file, where it is 0, or when an error came after some bytes had been read: then the next call
 * says which. When the daemon cannot answer, the bytes come from the file itself, if that is still
 * the version that was opened.
 *
 * -1: ESTALE, it is not, and the cache does not have these bytes; EINVAL, a negative offset;
 * ETIMEDOUT, EIO and others: the source did not answer, or with an error. */
FOREBAY_API ssize_t forebay_pread(struct forebay_file *file, void *buffer, size_t length,
                                  off_t offset);

/* What stat(2) says of the file, at the time it was opened. 0. */
FOREBAY_API int forebay_stat(const struct forebay_file *file, struct stat *ret_stat);

/* Its size when it was opened, in bytes. */
FOREBAY_API off_t forebay_size(const struct forebay_file *file);

/* 1: the file was opened through the cache; 0: it is read directly. */
FOREBAY_API int forebay_is_cached(const struct forebay_file *file);

/* The cache keeps a file in blocks of so many bytes, the first at offset 0. Bytes of one block can
 * be acquired without a copy. 0: the file is read directly. */
FOREBAY_API size_t forebay_block_size(const struct forebay_file *file);

/* ---- bytes without a copy ---- */

/* The bytes from `offset` on, `*length` of them or as many as the file has; *length says how many
 * there are (SIZE_MAX asks for all). They stay where they are and as they are until they are
 * released: also if the daemon evicts them, ends, is killed or started again, and if the file
 * changes or is closed. They may only be read; writing to them is a fault.
 *
 * Bytes that lie in one block and in the cache's memory are not copied. The daemon lets all
 * programs together hold a quarter of its memory that way. Bytes beyond that, those that lie in
 * several blocks or are not in memory, and files that are not cached are copied into memory of this
 * process: it always works, and forebay_pin_is_shared() says which it was.
 *
 * *ret_pin is to be ended with forebay_release(). Bytes that are held keep a stretch of the cache's
 * memory (a segment, some megabytes) from being reused: hold them for as long as they are needed.
 *
 * NULL: as forebay_pread(); ENOMEM; EINVAL, a negative offset. *ret_pin is NULL then. Never NULL on
 * success, also for no bytes. */
FOREBAY_API const void *forebay_acquire(struct forebay_file *file, off_t offset, size_t *length,
                                        struct forebay_pin **ret_pin);

/* 1: the cache's own memory; 0: a copy. */
FOREBAY_API int forebay_pin_is_shared(const struct forebay_pin *pin);

/* Takes NULL. The bytes are gone. */
FOREBAY_API void forebay_release(struct forebay_pin *pin);

#ifdef __cplusplus
}
#endif

#endif
