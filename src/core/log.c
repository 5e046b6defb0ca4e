/*
 * A line is formatted on the caller's stack and leaves in one write(2) under the lock, so lines
 * never mix. A log that cannot be written (a full disk above all) must not disturb the daemon: the
 * line is dropped, and where only its beginning went out, the next one starts with a newline. A
 * disk that hangs keeps who writes to it; the others wait a moment, once, and drop their lines.
 *
 * Rotation makes the new file first, under the name path.new, and moves the old ones only then: if
 * it fails, logging goes on in the old file and no old file was lost.
 */
#include "core/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"

#define TEXT_SIZE   4096 /* of a message, once escaped */
#define PREFIX_SIZE 128  /* of stamp and level, whatever the clock says */
#define LINE_SIZE   (1 + PREFIX_SIZE + TEXT_SIZE + 1)
#define ELLIPSIS    "..."
#define HANG_NS     (5 * FB_NS_PER_S) /* somebody who writes for so long hangs */
#define TRY_NS      FB_NS_PER_MS

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

struct logger {
    struct fb_mutex mutex;  /* guards `output` */
    _Atomic unsigned level; /* relaxed: nothing else hangs on it */
    _Atomic bool hangs;     /* relaxed: a hint */
    struct output output;
};

struct level {
    const char *name;    /* as settings spell it */
    const char *label;   /* in the file */
    const char *message; /* on standard error */
};

static struct logger logger = {
    .mutex = {.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = FB_RANK_LOG},
    .level = FB_LOG_INFO,
    .output = {.fd = -1},
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

void fb_log_close(void)
{
    replace_output(&(struct output){.fd = -1}, FB_LOG_INFO);
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
    close(o->fd);
    o->fd = fb_steal_fd(&fd);
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

/* The stamp is taken under the lock, so that stamps ascend within the file. */
static void emit(enum fb_log_level level, const char *text, size_t text_len)
    FB_REQUIRES(logger.mutex)
{
    struct output *o = &logger.output;
    char line[LINE_SIZE];
    size_t len = 0;
    size_t skip;

    line[len++] = '\n';
    len += format_prefix(line + len, o->fd >= 0, &levels[level]);
    memcpy(line + len, text, text_len);
    len += text_len;
    line[len++] = '\n';
    skip = o->torn ? 0 : 1;
    if (o->rotates && o->size > 0 && o->size + len - skip > o->max_bytes) {
        rotate(o);
        skip = o->torn ? 0 : 1;
    }
    write_line(o, line + skip, len - skip);
}

/* False: whoever has it hangs. */
static bool lock_in_time(void) FB_TRIES(logger.mutex)
{
    bool hangs = atomic_load_explicit(&logger.hangs, memory_order_relaxed), locked;
    int64_t until_ns = fb_now_ns() + (hangs ? 0 : HANG_NS);

    while (!(locked = fb_mutex_try(&logger.mutex)) && fb_now_ns() < until_ns)
        fb_sleep_ns(TRY_NS);
    if (hangs == locked)
        atomic_store_explicit(&logger.hangs, !locked, memory_order_relaxed);
    return locked;
}

void fb_log(enum fb_log_level level, const char *format, ...)
{
    int saved_errno = errno;
    char raw[TEXT_SIZE];
    char text[TEXT_SIZE];
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
    if (lock_in_time()) {
        emit(level, text, len);
        fb_mutex_unlock(&logger.mutex);
    }
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
