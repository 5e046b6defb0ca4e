/*
 * libforebay: the client behind a public face (include/forebay.h).
 *
 *     forebay ──► core ◄── file ──► handle ──► handle of an older session ...
 *                  ▲        └─ descriptor of the file itself, when it was needed
 *                  └── pin
 *
 * A core is a client and whatever it has mapped. Files and pins hold it, so that the memory they
 * read from outlives the connection. A client knows a limited number of daemons one after the
 * other; when it has seen them all, the next file gets a new core.
 *
 * A handle is a file as one daemon knows it. When another daemon has come, the file gets one more,
 * of the same version. Handles and cores are only ever put in front of a list that is freed at the
 * end: readers need no lock.
 *
 * fork() is noticed without a global handler: a page that the kernel empties in children says
 * whether this process is the one that made it.
 */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "forebay.h"

#include "client/client_priv.h"

#define SOCKET_ENV "FOREBAY_SOCKET"
#define PAGE_BYTES 4096u

#ifndef MADV_WIPEONFORK
# define MADV_WIPEONFORK 18
#endif

enum {
    WIPED, /* we are a child that has not noticed yet */
    NOTICING,
    OURS
};

struct core {
    _Atomic uint32_t refs;
    _Atomic uint32_t forks; /* how many lie between the first process and this one */
    _Atomic int *owner;     /* on a page of its own, which the kernel empties in a child */
    struct core *older;
    struct fb_client client;
};

struct forebay {
    _Atomic(struct core *) core; /* NULL: there is no socket to ask at */
};

struct handle {
    struct handle *older;
    struct fb_client_file file;
};

struct forebay_file {
    struct core *core;
    _Atomic(struct handle *) handle;           /* NULL: read directly */
    _Atomic(const struct fb_session *) missed; /* a session that does not have this version */
    _Atomic int fd;                            /* the file itself; -1: not open */
    struct stat st;                            /* of one that is read directly */
    struct handle first;                       /* what `handle` was first, if anything */
    char path[];                               /* of the handles */
};

struct forebay_pin {
    struct core *core; /* NULL: a copy */
    const void *data;
    uint32_t forks; /* of the process that pinned */
};

/* ---- cores ---- */

static void core_free(struct core *core)
{
    if (core->owner)
        fb_sys_munmap((void *)(uintptr_t)core->owner, PAGE_BYTES);
    free(core);
}

static struct core *core_new(const char *socket)
{
    struct core *core = calloc(1, sizeof *core);

    if (!core)
        return NULL;
    core->owner = fb_sys_memory(PAGE_BYTES);
    if (!core->owner || !fb_client_init(&core->client, socket)) {
        errno = core->owner ? ENAMETOOLONG : ENOMEM;
        core_free(core);
        return NULL;
    }
    /* A kernel before 4.14: forks cannot be noticed, so there is no cache. */
    if (fb_sys(SYS_madvise, core->owner, PAGE_BYTES, MADV_WIPEONFORK, 0) != 0)
        fb_client_turn_off(&core->client);
    atomic_init(core->owner, OURS);
    atomic_init(&core->refs, 1);
    return core;
}

static void core_put(struct core *core)
{
    /* Acquire and release: the last one sees all that others did with it. */
    if (!core || atomic_fetch_sub_explicit(&core->refs, 1, memory_order_acq_rel) != 1)
        return;
    fb_client_fini(&core->client);
    core_free(core);
}

/* First in every call that uses the client. */
static void enter(struct core *core)
{
    int expected = WIPED;

    /* Acquire pairs with the release below. */
    if (fb_likely(atomic_load_explicit(core->owner, memory_order_acquire) == OURS))
        return;
    if (atomic_compare_exchange_strong(core->owner, &expected, NOTICING)) {
        fb_client_forked(&core->client);
        atomic_fetch_add(&core->forks, 1);
        atomic_store_explicit(core->owner, OURS, memory_order_release);
        return;
    }
    /* Another thread of the child is at it; it waits for nothing. */
    while (atomic_load_explicit(core->owner, memory_order_acquire) == NOTICING)
        sched_yield();
}

/* ---- the connection ---- */

const char *forebay_version(void)
{
    return FB_VERSION;
}

struct forebay *forebay_connect(const char *socket)
{
    struct forebay *forebay = calloc(1, sizeof *forebay);

    if (!forebay)
        return NULL;
    if (!socket)
        socket = secure_getenv(SOCKET_ENV);
    if (socket && *socket) {
        struct core *core = core_new(socket);

        if (!core) {
            free(forebay);
            return NULL;
        }
        atomic_init(&forebay->core, core);
    }
    return forebay;
}

void forebay_disconnect(struct forebay *forebay)
{
    struct core *core = forebay ? atomic_load(&forebay->core) : NULL;

    while (core) {
        struct core *older = core->older;

        core_put(core);
        core = older;
    }
    free(forebay);
}

/* The core for a new file. */
static struct core *core_of(struct forebay *forebay)
{
    struct core *core = atomic_load_explicit(&forebay->core, memory_order_acquire), *fresh;

    if (!core)
        return NULL;
    enter(core);
    if (fb_likely(!atomic_load_explicit(&core->client.off, memory_order_relaxed) ||
                  atomic_load(&core->client.session_count) < FB_CLIENT_SESSIONS))
        return core;
    fresh = core_new(core->client.socket);
    if (!fresh)
        return core;
    fresh->older = core;
    if (atomic_compare_exchange_strong(&forebay->core, &core, fresh))
        return fresh;
    core_put(fresh);
    return core;
}

/* ---- opening ---- */

static void file_free(struct forebay_file *file)
{
    struct handle *h = atomic_load(&file->handle);
    int fd = atomic_load(&file->fd);

    while (h && h != &file->first) {
        struct handle *older = h->older;

        free(h);
        h = older;
    }
    if (fd >= 0)
        fb_sys_close(fd);
    core_put(file->core);
    free(file);
}

static struct forebay_file *file_new(const char *path)
{
    size_t bytes = strlen(path) + 1;
    struct forebay_file *file = malloc(sizeof *file + bytes);

    if (!file)
        return NULL;
    file->core = NULL;
    atomic_init(&file->handle, NULL);
    atomic_init(&file->missed, NULL);
    atomic_init(&file->fd, -1);
    memcpy(file->path, path, bytes);
    return file;
}

/* NULL also when memory is short. */
static struct forebay_file *open_cached(struct core *core, const char *path)
{
    struct forebay_file *file = file_new(path);

    if (!file)
        return NULL;
    if (fb_client_open(&core->client, file->path, &file->first.file) != 0 ||
        !fb_client_may_read(&core->client, &file->first.file, 0)) {
        free(file);
        return NULL;
    }
    file->first.older = NULL;
    atomic_init(&file->handle, &file->first);
    file->core = core;
    atomic_fetch_add_explicit(&core->refs, 1, memory_order_relaxed);
    return file;
}

static int not_regular(mode_t mode)
{
    if (S_ISREG(mode))
        return 0;
    return S_ISDIR(mode) ? -EISDIR : -EINVAL;
}

/* A descriptor of a regular file, and what it is. */
static int open_regular(const char *path, struct stat *ret_stat)
{
    /* Not blocking: a FIFO is found out, not waited for. */
    int fd = fb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    int rc;

    if (fd < 0)
        return fd;
    rc = fb_sys_fstat(fd, ret_stat);
    if (rc == 0)
        rc = not_regular(ret_stat->st_mode);
    if (rc < 0)
        fb_sys_close(fd);
    return rc < 0 ? rc : fd;
}

/* Opened, the file's path without links is known, and is perhaps one below a root after all. */
static struct forebay_file *open_itself(struct core *core, const char *path, const char *tried)
{
    char exact[FB_CLIENT_FILE_PATH];
    struct forebay_file *file = NULL;
    struct stat st;
    int fd = open_regular(path, &st);

    if (fd < 0) {
        errno = -fd;
        return NULL;
    }
    if (core && fb_client_path_of(fd, exact) && (!tried || strcmp(exact, tried) != 0))
        file = open_cached(core, exact);
    if (file) {
        fb_sys_close(fd);
        return file;
    }
    file = file_new("");
    if (!file) {
        fb_sys_close(fd);
        errno = ENOMEM;
        return NULL;
    }
    file->st = st;
    atomic_store(&file->fd, fd);
    return file;
}

struct forebay_file *forebay_open(struct forebay *forebay, const char *path)
{
    struct core *core = core_of(forebay);
    char room[FB_CLIENT_FILE_PATH];
    const char *clean = core ? fb_client_clean(path, room) : NULL;
    struct forebay_file *file = clean ? open_cached(core, clean) : NULL;

    return file ? file : open_itself(core, path, clean);
}

void forebay_close(struct forebay_file *file)
{
    if (file)
        file_free(file);
}

int forebay_stat(const struct forebay_file *file, struct stat *ret_stat)
{
    if (forebay_is_cached(file))
        fb_client_stat(&file->first.file, ret_stat);
    else
        *ret_stat = file->st;
    return 0;
}

off_t forebay_size(const struct forebay_file *file)
{
    return forebay_is_cached(file) ? (off_t)file->first.file.attr.version.size : file->st.st_size;
}

int forebay_is_cached(const struct forebay_file *file)
{
    return atomic_load_explicit(&file->handle, memory_order_relaxed) != NULL;
}

size_t forebay_block_size(const struct forebay_file *file)
{
    const struct handle *h = atomic_load_explicit(&file->handle, memory_order_acquire);

    return h ? h->file.session->layout.h.block_bytes : 0;
}

/* ---- reading the file itself ---- */

static int64_t read_fd(int fd, uint8_t *to, size_t bytes, int64_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        int64_t n = fb_sys_pread(fd, to + done, bytes - done, offset + (int64_t)done);

        if (n == -EINTR)
            continue;
        if (n < 0 && done == 0)
            return n;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

/* A descriptor of what the path leads to, opened once. */
static int itself(struct forebay_file *file)
{
    int fd = atomic_load_explicit(&file->fd, memory_order_acquire), expected = -1;

    if (fd >= 0)
        return fd;
    fd = fb_sys_open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    if (fd < 0 || atomic_compare_exchange_strong(&file->fd, &expected, fd))
        return fd;
    fb_sys_close(fd);
    return expected;
}

/* Only of the version that was opened. Looked at after the read, so that whatever was read was
 * there before a change. */
static int64_t read_itself(struct forebay_file *file, const struct handle *h, uint8_t *to,
                           size_t bytes, int64_t offset)
{
    int fd = itself(file);
    struct stat st;
    int64_t n;

    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        return -ESTALE;
    if (fd < 0)
        return fd;
    n = read_fd(fd, to, bytes, offset);
    if (fb_sys_fstat(fd, &st) != 0 || !fb_client_same_version(&h->file, &st))
        return -ESTALE;
    return n;
}

/* ---- reading ---- */

/* The file as the daemon of now knows it, if it is another than the one that opened it; else as it
 * was known. */
static struct handle *current(struct forebay_file *file)
{
    struct handle *h = atomic_load_explicit(&file->handle, memory_order_acquire), *fresh;
    const struct fb_session *s = fb_client_session(&file->core->client);

    if (fb_likely(!s || h->file.session == s ||
                  atomic_load_explicit(&file->missed, memory_order_relaxed) == s))
        return h;
    fresh = malloc(sizeof *fresh);
    if (!fresh)
        return h;
    if (fb_client_open(&file->core->client, file->path, &fresh->file) != 0 ||
        !fb_version_equal(&fresh->file.attr.version, &h->file.attr.version)) {
        atomic_store_explicit(&file->missed, s, memory_order_relaxed);
        free(fresh);
        return h;
    }
    fresh->older = h;
    /* Release: who finds the handle finds it complete. */
    if (atomic_compare_exchange_strong(&file->handle, &h, fresh))
        return fresh;
    free(fresh);
    return h;
}

/* The same for hits. A daemon that has gone has no use for hits in what it left; whether one lives
 * was asked when the file was opened. */
static struct handle *of_now(struct forebay_file *file)
{
    struct handle *h = atomic_load_explicit(&file->handle, memory_order_acquire);

    /* Relaxed: only compared. */
    if (fb_likely(atomic_load_explicit(&file->core->client.session, memory_order_relaxed) ==
                  h->file.session))
        return h;
    return current(file);
}

/* What the source itself says is the answer; everything else is the cache's own trouble. */
static bool is_of_source(int64_t error)
{
    return error == -ETIMEDOUT || error == -EIO;
}

/* Bytes, all of them but at the end of the file; negative errno when there are none. */
static int64_t read_cached(struct forebay_file *file, uint8_t *to, size_t bytes, uint64_t offset)
{
    struct fb_client *client = &file->core->client;
    struct handle *h = of_now(file);
    uint64_t size = h->file.attr.version.size;
    size_t done, all;

    if (offset >= size)
        return 0;
    all = (size_t)fb_min_u64(bytes, size - offset);
    done = fb_client_copy(client, &h->file, to, all, offset);
    while (done < all) {
        int64_t n;

        h = current(file);
        n = fb_client_pread(client, &h->file, to + done, all - done, offset + done);
        if (n <= 0 && !is_of_source(n))
            n = read_itself(file, h, to + done, all - done, (int64_t)(offset + done));
        if (n <= 0)
            return done > 0 ? (int64_t)done : n < 0 ? n : -ESTALE;
        done += (size_t)n;
    }
    return (int64_t)done;
}

static int64_t read_at(struct forebay_file *file, void *to, size_t bytes, off_t offset)
{
    if (offset < 0)
        return -EINVAL;
    bytes = (size_t)fb_min_u64(bytes, SSIZE_MAX);
    if (!forebay_is_cached(file))
        return read_fd(atomic_load_explicit(&file->fd, memory_order_relaxed), to, bytes, offset);
    enter(file->core);
    return read_cached(file, to, bytes, (uint64_t)offset);
}

ssize_t forebay_pread(struct forebay_file *file, void *buffer, size_t length, off_t offset)
{
    int64_t n = read_at(file, buffer, length, offset);

    if (n < 0) {
        errno = (int)-n;
        return -1;
    }
    return n;
}

/* ---- bytes without a copy ---- */

/* NULL: copy. */
static const void *pin_shared(struct forebay_file *file, uint64_t offset, size_t bytes)
{
    size_t block = forebay_block_size(file);
    struct fb_client *client;
    const struct handle *h;
    const void *data;
    size_t got = bytes;

    if (block == 0 || bytes == 0 || offset / block != (offset + bytes - 1) / block)
        return NULL;
    client = &file->core->client;
    h = of_now(file);
    data = fb_client_acquire(client, &h->file, offset, &got);
    if (data && got < bytes) {
        fb_client_release(client, data);
        return NULL;
    }
    return data;
}

/* Negative errno; else how many there are. */
static int64_t copy_all(struct forebay_file *file, uint8_t *to, size_t bytes, off_t offset)
{
    size_t done = 0;

    while (done < bytes) {
        int64_t n = read_at(file, to + done, bytes - done, offset + (off_t)done);

        if (n < 0)
            return n;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (int64_t)done;
}

/* Bytes follow the pin, where malloc would have put them: aligned for anything. */
static struct forebay_pin *pin_copy(struct forebay_file *file, off_t offset, size_t *length)
{
    static const size_t head = (sizeof(struct forebay_pin) + 63) / 64 * 64;
    struct forebay_pin *pin = NULL;
    int64_t n;

    if (*length > SSIZE_MAX - head || posix_memalign((void **)&pin, 64, head + *length) != 0) {
        errno = ENOMEM;
        return NULL;
    }
    *pin = (struct forebay_pin){.data = (uint8_t *)pin + head};
    n = copy_all(file, (uint8_t *)pin + head, *length, offset);
    if (n < 0) {
        free(pin);
        errno = (int)-n;
        return NULL;
    }
    *length = (size_t)n;
    return pin;
}

static struct forebay_pin *acquire(struct forebay_file *file, off_t offset, size_t *length)
{
    struct forebay_pin *pin;
    const void *data;

    if (forebay_is_cached(file))
        enter(file->core);
    data = pin_shared(file, (uint64_t)offset, *length);
    if (!data)
        return pin_copy(file, offset, length);
    pin = malloc(sizeof *pin);
    if (!pin) {
        fb_client_release(&file->core->client, data);
        return NULL;
    }
    *pin = (struct forebay_pin){
        .core = file->core, .data = data, .forks = atomic_load(&file->core->forks)};
    atomic_fetch_add_explicit(&file->core->refs, 1, memory_order_relaxed);
    return pin;
}

const void *forebay_acquire(struct forebay_file *file, off_t offset, size_t *length,
                            struct forebay_pin **ret_pin)
{
    off_t size = forebay_size(file);

    *ret_pin = NULL;
    if (offset < 0) {
        errno = EINVAL;
        return NULL;
    }
    *length = offset >= size ? 0 : (size_t)fb_min_u64(*length, (uint64_t)(size - offset));
    *ret_pin = acquire(file, offset, length);
    return *ret_pin ? (*ret_pin)->data : NULL;
}

int forebay_pin_is_shared(const struct forebay_pin *pin)
{
    return pin->core != NULL;
}

void forebay_release(struct forebay_pin *pin)
{
    if (!pin)
        return;
    if (pin->core) {
        enter(pin->core);
        /* What was pinned before a fork is the parent's. */
        if (pin->forks == atomic_load(&pin->core->forks))
            fb_client_release(&pin->core->client, pin->data);
        core_put(pin->core);
    }
    free(pin);
}
