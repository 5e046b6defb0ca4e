/*
 * A line is made on the caller's stack and leaves in one write(2), so lines never mix. A log that
 * cannot be written (a full disk above all) must not disturb the daemon: the line is dropped, and
 * where only its beginning went out, the next one starts with a newline.
 *
 * Nor may a disk that hangs. So the daemon's lines wait in a ring, which is memory, and one thread
 * takes them to the file, in their order:
 *
 *     fb_log() ── put() ──► ring ── log thread ── emit() ──► file
 *
 * A caller holds the ring's lock for as long as it takes to copy a line, and nobody holds it while
 * he writes. A line stays in the ring until it is written: who dies meanwhile writes what is there
 * himself (one line twice, perhaps, but none is missing). When the ring is full, lines are lost and
 * counted, and where they would stand, a line says how many. Without the thread (programs, and a
 * daemon that is not yet that far) a line is written by who has it to say.
 *
 * Rotation makes the new file first, under the name path.new, and moves the old ones only then: if
 * it fails, logging goes on in the old file and no old file was lost.
 */
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"

#define TEXT_SIZE   4096 /* of a message, once escaped */
#define PREFIX_SIZE 128  /* of stamp and level, whatever the clock says */
#define LINE_SIZE   (PREFIX_SIZE + TEXT_SIZE + 1)
#define NOTE_SIZE   256          /* of the line about lost ones */
#define RING_BYTES  (256U << 10) /* a power of two: some two thousand lines */
#define ELLIPSIS    "..."
#define END_NS      (10 * FB_NS_PER_S) /* who ends waits for so long for the last lines */
#define DEATH_TRIES 10000              /* to get the ring's lock */

struct output {
    int fd;       /* -1: standard error */
    bool rotates; /* a regular file with a limit */
    bool torn;    /* the last line went out in part */
    bool stderr_too;
    char *path;
    uint64_t size;
    uint64_t max_bytes;
    unsigned keep;
};

/* Lines, each behind its length, from `written` to `put`; both count on. */
struct ring {
    uint64_t put;
    uint64_t written;
    uint64_t lost; /* lines, since the last one that was put */
};

struct logger {
    struct fb_mutex mutex;  /* guards `output`; held while it is written to */
    _Atomic unsigned level; /* relaxed: nothing else hangs on it */
    _Atomic int fd;         /* relaxed: that of `output`, for who cannot wait for the lock */
    struct output output;

    struct fb_mutex queue;  /* guards what follows; never held while anything is written */
    struct fb_cond work;    /* for the thread */
    struct fb_cond written; /* for those who wait for it */
    bool started;           /* there is a thread to be joined */
    bool threaded;          /* lines go through the ring */
    bool reopen;
    bool stop;
    bool stopped;
    pthread_t thread;
    struct ring ring;
};

struct level {
    const char *name;    /* as settings spell it */
    const char *label;   /* in the file */
    const char *message; /* on standard error */
};

/* The ring's. Apart, as it would else lie in the program's file. */
static char ring_bytes[RING_BYTES];

static struct logger logger = {
    .mutex = {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = FB_RANK_LOG},
    .level = FB_LOG_INFO,
    .fd = -1,
    .output = {.fd = -1},
    .queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = FB_RANK_LOG_QUEUE},
};

static const struct level levels[] = {
    [FB_LOG_ERROR] = {"error", "ERROR", "forebay: error: "},
    [FB_LOG_WARN] = {"warn", "WARN", "forebay: warning: "},
    [FB_LOG_INFO] = {"info", "INFO", "forebay: "},
    [FB_LOG_DEBUG] = {"debug", "DEBUG", "forebay: debug: "},
};

/* Opens for appending; a file that was there loses the permissions of others. */
static int open_file(const char *path, int flags, struct stat *ret_stat)
{
    FB_AUTO_CLOSE int fd =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | flags, 0600);

    if (fd < 0 || fstat(fd, ret_stat) < 0)
        return -errno;
    if (S_ISREG(ret_stat->st_mode) && (ret_stat->st_mode & 07777) != 0600 && fchmod(fd, 0600) < 0)
        return -errno;
    return fb_steal_fd(&fd);
}

/* In one step, so that no line of another thread goes astray between the two outputs. */
static void replace_output(const struct output *output, enum fb_log_level level)
{
    struct output old;

    fb_mutex_lock(&logger.mutex);
    old = logger.output;
    logger.output = *output;
    /* Standard error stays with the log, wherever that goes. */
    if (old.stderr_too && output->fd >= 0)
        logger.output.stderr_too = dup2(output->fd, STDERR_FILENO) >= 0;
    atomic_store_explicit(&logger.level, level, memory_order_relaxed);
    atomic_store_explicit(&logger.fd, output->fd, memory_order_relaxed);
    fb_mutex_unlock(&logger.mutex);
    fb_closep(&old.fd);
    free(old.path);
}

int fb_log_open(const char *path, enum fb_log_level level, uint64_t max_bytes, unsigned keep)
{
    struct output output = {.fd = -1, .max_bytes = max_bytes, .keep = keep};
    FB_AUTO_FREE char *copy = NULL;
    struct stat st = {0};

    if ((unsigned)level >= FB_ARRAY_SIZE(levels) || keep > FB_LOG_KEEP_MAX)
        return -EINVAL;
    if (path) {
        copy = fb_strdup(path);
        if (!copy)
            return -ENOMEM;
        output.fd = open_file(path, 0, &st);
        if (output.fd < 0)
            return output.fd;
        output.rotates = S_ISREG(st.st_mode) && max_bytes > 0;
        output.size = (uint64_t)st.st_size;
        output.path = fb_steal(copy);
    }
    replace_output(&output, level);
    return 0;
}

bool fb_log_take_stderr(void)
{
    struct output *o = &logger.output;
    bool taken;

    fb_mutex_lock(&logger.mutex);
    taken = o->fd >= 0 && dup2(o->fd, STDERR_FILENO) >= 0;
    o->stderr_too = taken;
    fb_mutex_unlock(&logger.mutex);
    return taken;
}

int fb_log_level_parse(const char *text, enum fb_log_level *ret_level)
{
    for (unsigned i = 0; i < FB_ARRAY_SIZE(levels); i++) {
        if (strcmp(text, levels[i].name) == 0) {
            *ret_level = (enum fb_log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

static void shift_file(const char *path, unsigned from)
{
    FB_AUTO_FREE char *old = from ? fb_asprintf("%s.%u", path, from) : fb_strdup(path);
    FB_AUTO_FREE char *new = fb_asprintf("%s.%u", path, from + 1);

    if (old && new)
        rename(old, new);
}

static void rotate(struct output *o)
{
    FB_AUTO_FREE char *fresh = fb_asprintf("%s.new", o->path);
    FB_AUTO_CLOSE int fd = -1;
    struct stat st;
    int old;

    /* Where it fails, it is tried again once as much again has been written. */
    o->size = 0;
    if (fresh)
        fd = open_file(fresh, O_TRUNC | O_NOFOLLOW, &st);
    if (fd < 0)
        return;
    for (unsigned i = o->keep; i > 0; i--)
        shift_file(o->path, i - 1);
    if (rename(fresh, o->path) < 0) {
        unlink(fresh);
        return;
    }
    old = o->fd;
    o->fd = fb_steal_fd(&fd);
    atomic_store_explicit(&logger.fd, o->fd, memory_order_relaxed);
    close(old); /* only now: who dies, or is forked, finds one that is open */
    o->torn = false;
    if (o->stderr_too)
        dup2(o->fd, STDERR_FILENO);
}

/* Copies `text` with its control characters escaped; returns the length, at most `size`, the end
 * marked where not all of it fits. Nothing is written past it, not even a zero. */
static size_t escape(char *out, size_t size, const char *text, bool cut)
{
    static const char hex[] = "0123456789abcdef";
    size_t limit = size - (sizeof ELLIPSIS - 1);
    size_t len = 0;

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool control = c < 0x20 || c == 0x7f;

        if (len + (control ? 4 : 1) > limit) {
            cut = true;
            break;
        }
        if (!control) {
            out[len++] = (char)c;
        } else if (c == '\n' || c == '\t' || c == '\r') {
            out[len++] = '\\';
            out[len++] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
        } else {
            out[len++] = '\\';
            out[len++] = 'x';
            out[len++] = hex[c >> 4];
            out[len++] = hex[c & 15];
        }
    }
    if (cut) {
        memcpy(out + len, ELLIPSIS, sizeof ELLIPSIS - 1);
        len += sizeof ELLIPSIS - 1;
    }
    return len;
}

static size_t format_prefix(char out[PREFIX_SIZE], bool stamped, const struct level *level)
{
    struct timespec now;
    struct tm tm = {0};

    if (!stamped)
        return (size_t)snprintf(out, PREFIX_SIZE, "%s", level->message);
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    return (size_t)snprintf(out, PREFIX_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s ",
                            tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                            tm.tm_sec, (int)(now.tv_nsec / FB_NS_PER_MS), level->label);
}

static void write_line(struct output *o, const char *line, size_t len)
{
    ssize_t n;

    do {
        n = write(o->fd >= 0 ? o->fd : STDERR_FILENO, line, len);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        o->size += (uint64_t)n;
        o->torn = (size_t)n < len;
    }
}

/* Rotates where it is time to. */
static void emit(const char *line, size_t len) FB_REQUIRES(logger.mutex)
{
    static const char newline = '\n';
    struct output *o = &logger.output;

    if (o->rotates && o->size > 0 && o->size + o->torn + len > o->max_bytes)
        rotate(o);
    if (o->torn)
        write_line(o, &newline, 1);
    if (!o->torn)
        write_line(o, line, len);
}

/* Returns the length of the line. */
static size_t make_line(char out[LINE_SIZE], enum fb_log_level level, const char *text, size_t len)
{
    bool stamped = atomic_load_explicit(&logger.fd, memory_order_relaxed) >= 0;
    size_t at = format_prefix(out, stamped, &levels[level]);

    memcpy(out + at, text, len);
    out[at + len] = '\n';
    return at + len + 1;
}

static size_t make_note(char out[LINE_SIZE], uint64_t lost)
{
    char text[NOTE_SIZE - PREFIX_SIZE];
    int n = snprintf(text, sizeof text, "%llu lines are lost: the log could not be written in time",
                     (unsigned long long)lost);

    return make_line(out, FB_LOG_WARN, text, (size_t)n);
}

/* ---- the ring ---- */

static void ring_in(struct ring *r, const void *data, size_t len)
{
    size_t at = r->put % RING_BYTES;
    size_t first = len < RING_BYTES - at ? len : RING_BYTES - at;

    memcpy(ring_bytes + at, data, first);
    memcpy(ring_bytes, (const char *)data + first, len - first);
    r->put += len;
}

static void ring_out(uint64_t from, void *data, size_t len)
{
    size_t at = from % RING_BYTES;
    size_t first = len < RING_BYTES - at ? len : RING_BYTES - at;

    memcpy(data, ring_bytes + at, first);
    memcpy((char *)data + first, ring_bytes, len - first);
}

static bool ring_put(struct ring *r, const char *line, uint16_t len)
{
    if (sizeof len + len > RING_BYTES - (r->put - r->written))
        return false;
    ring_in(r, &len, sizeof len);
    ring_in(r, line, len);
    return true;
}

/* The line that begins at `*at`, which moves on to the next; 0: there is none. */
static size_t ring_get(const struct ring *r, uint64_t *at, char out[LINE_SIZE])
{
    uint16_t len;

    if (*at == r->put)
        return 0;
    ring_out(*at, &len, sizeof len);
    ring_out(*at + sizeof len, out, len);
    *at += sizeof len + len;
    return len;
}

/* The stamp is taken under the lock, so that stamps ascend. */
static void put(enum fb_log_level level, const char *text, size_t text_len)
    FB_REQUIRES(logger.queue)
{
    struct ring *r = &logger.ring;
    char line[LINE_SIZE];
    size_t len;

    if (r->lost > 0) {
        len = make_note(line, r->lost);
        if (ring_put(r, line, (uint16_t)len))
            r->lost = 0;
    }
    len = make_line(line, level, text, text_len);
    if (r->lost > 0 || !ring_put(r, line, (uint16_t)len))
        r->lost++;
    else
        fb_cond_signal(&logger.work);
}

/* ---- the thread ---- */

static void reopen(void)
{
    enum fb_log_level level = atomic_load_explicit(&logger.level, memory_order_relaxed);
    const struct output *o = &logger.output;
    FB_AUTO_FREE char *path = NULL;
    uint64_t max_bytes;
    unsigned keep;
    int rc;

    fb_mutex_lock(&logger.mutex);
    path = o->path ? fb_strdup(o->path) : NULL;
    rc = o->path && !path ? -ENOMEM : 0;
    max_bytes = o->max_bytes;
    keep = o->keep;
    fb_mutex_unlock(&logger.mutex);
    if (rc == 0)
        rc = fb_log_open(path, level, max_bytes, keep);
    if (rc)
        fb_log_error("cannot open the log anew: %s", fb_strerror(rc));
    else
        fb_log_info("log opened anew");
}

/* What is to be written next; 0: nothing. `*ret_next`: where the ring begins once that is done. */
static size_t next_line(char out[LINE_SIZE], uint64_t *ret_next) FB_REQUIRES(logger.queue)
{
    struct ring *r = &logger.ring;
    size_t len;

    *ret_next = r->written;
    len = ring_get(r, ret_next, out);
    if (len == 0 && r->lost > 0) {
        len = make_note(out, r->lost);
        r->lost = 0;
    }
    return len;
}

static void *write_lines(void *arg)
{
    char line[LINE_SIZE];
    uint64_t next;
    size_t len;

    fb_mutex_lock(&logger.queue);
    for (;;) {
        len = next_line(line, &next);
        if (len == 0 && logger.reopen) {
            logger.reopen = false;
            fb_mutex_unlock(&logger.queue);
            reopen();
            fb_mutex_lock(&logger.queue);
            continue;
        }
        if (len == 0 && logger.stop)
            break;
        if (len == 0) {
            fb_cond_wait(&logger.work, &logger.queue, FB_NEVER_NS);
            continue;
        }
        fb_mutex_unlock(&logger.queue);
        fb_mutex_lock(&logger.mutex);
        emit(line, len);
        fb_mutex_unlock(&logger.mutex);
        fb_mutex_lock(&logger.queue);
        logger.ring.written = next;
        fb_cond_broadcast(&logger.written);
    }
    /* In one step: no line comes into the ring any more. */
    logger.threaded = false;
    logger.stopped = true;
    fb_cond_broadcast(&logger.written);
    fb_mutex_unlock(&logger.queue);
    return arg;
}

static FB_NO_TSA void before_fork(void)
{
    pthread_mutex_lock(&logger.queue.mutex);
}

static FB_NO_TSA void after_fork(void)
{
    pthread_mutex_unlock(&logger.queue.mutex);
}

/* The thread is the parent's, and so is what waits for it; it may have been writing. */
static FB_NO_TSA void after_fork_in_child(void)
{
    pthread_mutex_init(&logger.mutex.mutex, NULL);
    fb_cond_init(&logger.work);
    fb_cond_init(&logger.written);
    logger.started = false;
    logger.threaded = false;
    logger.ring.put = 0;
    logger.ring.written = 0;
    logger.ring.lost = 0;
    pthread_mutex_unlock(&logger.queue.mutex);
}

static void mind_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

int fb_log_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int rc = pthread_once(&once, mind_forks);

    if (rc)
        return -rc;
    fb_mutex_lock(&logger.queue);
    FB_ASSERT(!logger.started);
    logger.reopen = false;
    logger.stop = false;
    logger.stopped = false;
    rc = fb_thread_start(&logger.thread, "fb-log", write_lines, NULL);
    logger.started = rc == 0;
    logger.threaded = rc == 0;
    fb_mutex_unlock(&logger.queue);
    return rc;
}

void fb_log_reopen(void)
{
    bool threaded;

    fb_mutex_lock(&logger.queue);
    threaded = logger.threaded;
    logger.reopen = threaded;
    fb_cond_signal(&logger.work);
    fb_mutex_unlock(&logger.queue);
    if (!threaded)
        reopen();
}

bool fb_log_flush(int64_t until_ns)
{
    bool done;
    uint64_t put;

    fb_mutex_lock(&logger.queue);
    put = logger.ring.put;
    while (!(done = logger.ring.written >= put) &&
           fb_cond_wait(&logger.written, &logger.queue, until_ns))
        continue;
    fb_mutex_unlock(&logger.queue);
    return done;
}

/* False: it hangs, and stays. */
static bool stop_thread(void)
{
    int64_t until_ns = fb_now_ns() + END_NS;
    bool stopped;

    fb_mutex_lock(&logger.queue);
    if (!logger.started) {
        fb_mutex_unlock(&logger.queue);
        return true;
    }
    logger.stop = true;
    fb_cond_signal(&logger.work);
    while (!logger.stopped && fb_cond_wait(&logger.written, &logger.queue, until_ns))
        continue;
    stopped = logger.stopped;
    logger.started = !stopped;
    fb_mutex_unlock(&logger.queue);
    if (stopped)
        pthread_join(logger.thread, NULL);
    return stopped;
}

void fb_log_close(void)
{
    if (stop_thread())
        replace_output(&(struct output){.fd = -1}, FB_LOG_INFO);
}

/* Locks are only tried for, as their owner may be the one that dies; ours is not given back. */
FB_NO_TSA void fb_log_last_words(void)
{
    const struct ring *r = &logger.ring;
    int fd = atomic_load_explicit(&logger.fd, memory_order_relaxed);
    static char line[LINE_SIZE]; /* there may be little stack left */
    uint64_t at;
    size_t len;

    for (unsigned i = 0; pthread_mutex_trylock(&logger.queue.mutex) != 0; i++) {
        if (i == DEATH_TRIES)
            return;
        sched_yield();
    }
    at = r->written;
    while ((len = ring_get(r, &at, line)) > 0) {
        if (write(fd >= 0 ? fd : STDERR_FILENO, line, len) < 0)
            return;
    }
}

static void say_now(enum fb_log_level level, const char *text, size_t text_len)
{
    char line[LINE_SIZE];

    fb_mutex_lock(&logger.mutex);
    emit(line, make_line(line, level, text, text_len));
    fb_mutex_unlock(&logger.mutex);
}

void fb_log(enum fb_log_level level, const char *format, ...)
{
    int saved_errno = errno;
    char raw[TEXT_SIZE];
    char text[TEXT_SIZE];
    bool threaded;
    va_list args;
    size_t len;
    int n;

    if ((unsigned)level > atomic_load_explicit(&logger.level, memory_order_relaxed))
        return;
    va_start(args, format);
    n = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    if (n < 0)
        return;
    len = escape(text, sizeof text, raw, (size_t)n >= sizeof raw);
    fb_mutex_lock(&logger.queue);
    threaded = logger.threaded;
    if (threaded)
        put(level, text, len);
    fb_mutex_unlock(&logger.queue);
    if (!threaded)
        say_now(level, text, len);
    errno = saved_errno;
}

bool fb_log_limited(_Atomic int64_t *last_ns)
{
    int64_t now_ns = fb_now_ns();
    int64_t seen_ns = atomic_load_explicit(last_ns, memory_order_relaxed);

    if (seen_ns != 0 && now_ns - seen_ns < FB_NS_PER_S)
        return false;
    /* Relaxed: it decides who speaks and publishes nothing. */
    return atomic_compare_exchange_strong_explicit(last_ns, &seen_ns, now_ns, memory_order_relaxed,
                                                   memory_order_relaxed);
}
