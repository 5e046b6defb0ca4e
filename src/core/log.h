/*
 * core/log.h - the daemon's log: one line an event, levels, a file that rotates.
 *
 * The only mutable global of the daemon. Lines are `2026-01-31T12:00:00.000Z LEVEL text`. Before
 * fb_log_open(), and with path NULL, lines go to standard error without a stamp, as a program's
 * messages do: `forebay: warning: text`. Control characters are escaped (a newline is \n), so an
 * event is always one line; a text over 4 KiB ends in "...". A line that cannot be written is
 * dropped, silently. Between fb_log_start() and fb_log_close() no caller waits for the disk: a
 * thread writes, in the order of the calls, and where it cannot keep up lines are lost, which a
 * line in their place says. errno is left as it was. Never called on the hit path. Repeated
 * failures are the caller's to limit: see fb_log_limited().
 */
#ifndef FB_CORE_LOG_H
#define FB_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

enum fb_log_level {
    FB_LOG_ERROR,
    FB_LOG_WARN,
    FB_LOG_INFO,
    FB_LOG_DEBUG,
};

#define FB_LOG_KEEP_MAX 100

/* Opens (appends to) `path`, mode 0600; before a line would take the file past `max_bytes` (0: no
 * limit) it becomes path.1, path.1 becomes path.2 and so on, `keep` old files at most. path NULL:
 * standard error. Replaces a log that was open; on failure that one stays. */
FB_MUST_CHECK int fb_log_open(const char *path, enum fb_log_level level, uint64_t max_bytes,
                              unsigned keep);

/* Standard error leads into the open log from now on, whatever it is rotated to: for what others
 * print, and for last words (crash.h). False: no log is open. */
bool fb_log_take_stderr(void);

/* From now on a thread writes. Not twice. A child of fork() has no such thread, and writes itself.
 */
FB_MUST_CHECK int fb_log_start(void);

/* Opens the same path anew, which somebody may have moved; the thread does where there is one. The
 * log says whether it went well. */
void fb_log_reopen(void);

/* Waits until what was logged before is written. False: it was not by `until_ns`. */
bool fb_log_flush(int64_t until_ns);

/* For who dies of a signal: writes what the thread had still to write. Safe in a handler. */
void fb_log_last_words(void);

/* Ends the thread, with all written, and goes back to standard error and level info. Where the disk
 * hangs it is waited for for seconds, then all stays as it is. */
void fb_log_close(void);

/* Parses error, warn, info, debug. -EINVAL otherwise. */
FB_MUST_CHECK int fb_log_level_parse(const char *text, enum fb_log_level *ret_level);

void fb_log(enum fb_log_level level, const char *format, ...) FB_PRINTF(2, 3);

#define fb_log_error(...) fb_log(FB_LOG_ERROR, __VA_ARGS__)
#define fb_log_warn(...)  fb_log(FB_LOG_WARN, __VA_ARGS__)
#define fb_log_info(...)  fb_log(FB_LOG_INFO, __VA_ARGS__)
#define fb_log_debug(...) fb_log(FB_LOG_DEBUG, __VA_ARGS__)

/* True at most once a second for each `last_ns` (zero at first), whatever the thread:
 *     if (fb_log_limited(&last))
 *         fb_log_warn(...)
 */
bool fb_log_limited(_Atomic int64_t *last_ns);

#endif
