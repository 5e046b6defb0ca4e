/*
 * client/client.h - a process that reads through the cache: what libforebay and the preload library
 * are made of.
 *
 * A client knows the roots, directories whose files the daemon serves. Opening a file below one
 * finds its record in shared memory, reading it copies from shared memory (proto/layout.h says how
 * that is right without a lock). What is not there is asked of the daemon over its socket.
 *
 *     session.c  reaching a daemon, mapping its memory     ask.c   questions to it
 *     file.c     opening and reading                       pin.c   pointers instead of copies
 *     path.c     paths as programs write them              stat.c  what is known of a file
 *     medium.c   reading the NVMe tier
 *     api.c      libforebay (include/forebay.h)
 *
 * Sessions. A session is the memory of one run of the daemon, mapped at the first need. When that
 * daemon has gone, empty memory is laid over its mappings, in one step: whoever was just reading
 * there finds generations of 0, which no record has, and asks; nothing is ever unmapped under a
 * reader, and the memory is free. Only where pointers were handed out it stays until the last is
 * released. A later daemon is a new session, FB_CLIENT_SESSIONS at most.
 *
 * Nothing here allocates with malloc, prints, aborts, or holds a lock that another process or a
 * signal handler could wait for. Every wait ends: when the daemon shows no sign of life for
 * FB_CLIENT_BEAT_LATE_NS, the answer is FB_CLIENT_PASS, "use the file itself".
 *
 * After fork() the child calls fb_client_forked() before anything else.
 */
#ifndef FB_CLIENT_CLIENT_H
#define FB_CLIENT_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/attr.h"
#include "proto/client.h"
#include "proto/layout.h"

#define FB_CLIENT_SESSIONS    16
#define FB_CLIENT_CONNECTIONS 32
#define FB_CLIENT_BUFFERS     32
#define FB_CLIENT_UNTOLD      32
#define FB_CLIENT_SOCKET_MAX  108
#define FB_CLIENT_FILE_PATH   1024u /* longest path with its final zero; longer ones are passed */

enum {
    FB_CLIENT_PASS = 1, /* the cache has nothing to say: use the file itself */
    FB_CLIENT_LINK = 2, /* a symbolic link, or a path through one: resolve it and try again */
};

struct fb_client_place {
    const char *path; /* no final slash; "" is the root directory */
    uint32_t path_len;
    uint32_t block_bytes;
    uint64_t dev; /* of the directory */
    uint16_t source;
    bool usable; /* it leads to the same directory here as in the daemon */
};

struct fb_session {
    struct fb_layout layout;
    _Atomic(struct fb_client_area *) area; /* NULL: none */
    _Atomic uint8_t *touched;              /* one a stretch of DRAM: how often it was read here */
    _Atomic uint32_t pointers;             /* into DRAM, handed out, here or before a fork */
    uint32_t credits;                      /* segments that may be pinned: pins.lock */

    /* The connection that the area, and with it every pin, hangs on in the daemon. It asks for
     * credits and is used for nothing else, so that nothing that goes wrong elsewhere closes it. */
    struct fb_client_anchor {
        _Atomic int fd; /* -1: none, nor is one whose mark is 0 */
        _Atomic uint64_t mark;
        int64_t retry_ns; /* no question for credits before that */
        bool asked;       /* the answer, or the rest of it, is still to come */
        size_t got;
        struct fb_client_reply reply;
    } anchor; /* all but fd and mark: whoever has set pins.asking */

    /* The NVMe tier; its descriptors are of files that can be read at any place. */
    struct fb_client_medium {
        uint32_t base;
        uint32_t slots;
        uint64_t segment_bytes;
        _Atomic uint32_t count; /* of files; 0: none */
        _Atomic int fds[FB_CLIENT_FILES_MAX];
        uint64_t marks[FB_CLIENT_FILES_MAX]; /* what they were when they were ours */
    } medium;

    char *roots; /* what places point into */
    size_t roots_bytes;
    uint32_t place_count;
    struct fb_client_place places[FB_CLIENT_ROOTS_MAX];
};

struct fb_client_connection {
    _Atomic int state;
    _Atomic int fd;
    _Atomic uint64_t mark; /* of the socket: is it still ours? */
};

enum fb_untold {
    FB_UNTOLD_NONE,
    FB_UNTOLD_BUSY, /* being written down, or told */
    FB_UNTOLD_PATH  /* to be told */
};

struct fb_client {
    char socket[FB_CLIENT_SOCKET_MAX];
    _Atomic int32_t pid;
    _Atomic int reads;                    /* what this process may read: stat.c; asked once */
    _Atomic uint32_t uid;                 /* then known */
    _Atomic bool off;                     /* for good: identity differs, or too many sessions */
    _Atomic bool opening;                 /* somebody opens a session */
    _Atomic int64_t retry_ns;             /* no attempt to reach the daemon before that */
    _Atomic(struct fb_session *) session; /* NULL: none now */
    _Atomic uint32_t session_count;
    _Atomic bool area_lost; /* the session has none, or that of the process we were forked from */
    _Atomic bool anchoring; /* somebody gets one */
    _Atomic int64_t anchor_retry_ns; /* nobody tries before that */
    _Atomic int64_t hung_ns;         /* the last beat of a daemon that hangs */
    _Atomic uint32_t low_fd;         /* no descriptor of ours is below; 0: there is none */
    _Atomic uint32_t untold_count;   /* see below, and `missed` */
    _Atomic int missed; /* enum fb_untold: changes from a time when no daemon could be reached */
    struct fb_client_connection connections[FB_CLIENT_CONNECTIONS];
    _Atomic(uint8_t *) buffers[FB_CLIENT_BUFFERS]; /* for reads from a medium: medium.c */
    /* Large, and untouched until it is used: every program under the library begins with this. */
    struct fb_session sessions[FB_CLIENT_SESSIONS];

    /* Paths that were changed when the daemon could not be told (no descriptor was left, say): it
     * is told before this process opens anything. More than fit: the client is off for good. */
    struct fb_client_untold {
        _Atomic int state; /* enum fb_untold */
        char path[FB_CLIENT_FILE_PATH];
    } untold[FB_CLIENT_UNTOLD];

    struct fb_client_pins {
        _Atomic bool lock;
        _Atomic bool asking; /* somebody asks for credits */
        uint32_t end;        /* slots from here on were never used */

        struct {
            const struct fb_session *session;
            uint32_t segment;
            uint32_t pointers; /* 0: unused */
        } slots[FB_CLIENT_HAZARDS];
    } pins;
};

/* A file that is open: one version of one path. */
struct fb_client_file {
    struct fb_session *session;
    uint32_t id;
    uint32_t gen;
    uint64_t path_hash;
    struct fb_attr attr;
    uint32_t block_bytes; /* st_blksize */
    uint64_t root_dev;    /* st_dev of what has none on its source */
    uint16_t source;
    uint16_t path_len;
    uint16_t path_at; /* where the path below the root begins */
    const char *full; /* not ours: it stays while the file is used */
};

/* The monotonic clock, a few milliseconds late. */
int64_t fb_client_coarse_ns(void);

/* `client` is zeroed memory. False: the socket's name is too long. */
FB_MUST_CHECK bool fb_client_init(struct fb_client *client, const char *socket);
void fb_client_forked(struct fb_client *client);
/* A connection on which nothing is said: the daemon knows that there is somebody. Negative errno;
 * -EACCES: who listens there is another user. */
FB_MUST_CHECK int fb_client_connect(struct fb_client *client);
/* The daemon hangs, and has for a while: it must not be waited for. */
bool fb_client_hangs(struct fb_client *client);
/* Gives everything back: nobody uses the client, its files or its pointers any more. */
void fb_client_fini(struct fb_client *client);
/* This process is no longer who it was (setuid, chroot ...): all is passed from now on. */
void fb_client_turn_off(struct fb_client *client);
/* One of our own descriptors, which the program must not close. */
bool fb_client_owns(struct fb_client *client, int fd);

/* A session to use now, opened when there is none; NULL: pass. */
struct fb_session *fb_client_session(struct fb_client *client);

/* The root that an absolute, clean path (no `.`, `..`, `//`) is at or below; NULL: none. */
const struct fb_client_place *fb_client_place(const struct fb_session *session, const char *path);

/* 0: a regular file. FB_CLIENT_PASS, FB_CLIENT_LINK. Never an error: whoever passes finds out.
 * `path` is as for fb_client_place(), and becomes the file's `full`. */
FB_MUST_CHECK int fb_client_open(struct fb_client *client, const char *path,
                                 struct fb_client_file *ret_file);

/* Bytes, 0 at the end, a negative errno (-ESTALE: the source has another version and the cache no
 * longer has this one), or -FB_CLIENT_GONE: read the file itself. */
#define FB_CLIENT_GONE 4096
FB_MUST_CHECK int64_t fb_client_pread(struct fb_client *client, const struct fb_client_file *file,
                                      void *ret_data, size_t bytes, uint64_t offset);

/* The same from shared memory alone; less than asked where something is not there. */
size_t fb_client_copy(struct fb_client *client, const struct fb_client_file *file, void *ret_data,
                      size_t bytes, uint64_t offset);

/* stat(2) of what was opened; and whether `st` is of the same version. */
void fb_client_stat(const struct fb_client_file *file, struct stat *ret_stat);
bool fb_client_same_version(const struct fb_client_file *file, const struct stat *st);

/* Whether open(2) with these flags would let this process read what was opened. The daemon, which
 * is the same user, has seen the file, not opened it. An owner's bits decide for the owner,
 * whatever else there is; where the mode leaves a doubt (groups, ACLs) the kernel does. */
bool fb_client_may_read(struct fb_client *client, const struct fb_client_file *file, int flags);

/* The path (absolute, clean) is about to be changed, or was. When the daemon is there and cannot be
 * told, this process opens nothing through it until it can; one that hangs doubts what it knows
 * when it goes on, and so does one that was out of reach when it is reached. */
void fb_client_forget(struct fb_client *client, const char *path);
/* The same, and this process has it open for writing from now on: when it ends without a
 * fb_client_forget() of it, however it ends, the daemon forgets it once more. */
void fb_client_writes(struct fb_client *client, const char *path);

/* ---- paths (path.c) ---- */

/* Appends `path` to the clean directory in `to`. False: too long, a slash or a dot at its end, or
 * `..` after a name, which only the kernel can follow. */
FB_MUST_CHECK bool fb_client_append(char to[FB_CLIENT_FILE_PATH], const char *path);
/* The absolute, clean path of a file's name: itself, when it is one, or in `room`. NULL: only the
 * kernel can tell, see below. */
const char *fb_client_clean(const char *path, char room[FB_CLIENT_FILE_PATH]);
/* The path of what is open, without symbolic links. */
FB_MUST_CHECK bool fb_client_path_of(int fd, char ret_path[FB_CLIENT_FILE_PATH]);

/* ---- pinned bytes (pin.c) ---- */

/* Bytes [offset, offset + *bytes) of one item in shared memory, as many as lie there, that stay as
 * they are until released; NULL: copy instead. */
const void *fb_client_acquire(struct fb_client *client, const struct fb_client_file *file,
                              uint64_t offset, size_t *bytes);
void fb_client_release(struct fb_client *client, const void *data);

#endif
