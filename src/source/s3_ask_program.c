#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_ask.h"

#define WORDS_MAX 64
#define POLL_MS   20

/* ---- the command line ------------------------------------------------------------------------ */

/* Cuts `line` into words in place. Quotes of both kinds hold a word together; a backslash takes the
 * next character as it is, but not within single quotes. */
static int split_words(char *line, char *ret_words[WORDS_MAX + 1])
{
    unsigned count = 0;
    char *from = line, *to = line;

    for (;;) {
        char quote = 0;

        from += strspn(from, " \t\r\n");
        if (!*from)
            break;
        if (count == WORDS_MAX)
            return -E2BIG;
        ret_words[count++] = to;
        for (; *from && (quote || !strchr(" \t\r\n", *from)); from++) {
            if (!quote && (*from == '"' || *from == '\''))
                quote = *from;
            else if (quote && *from == quote)
                quote = 0;
            else if (*from == '\\' && quote != '\'' && from[1])
                *to++ = *++from;
            else
                *to++ = *from;
        }
        if (quote)
            return -EINVAL;
        if (*from)
            from++;
        *to++ = '\0';
    }
    ret_words[count] = NULL;
    return count > 0 ? 0 : -EINVAL;
}

/* ---- the process ----------------------------------------------------------------------------- */

/* A process group of its own, no signal blocked or ignored, nothing to read, and what it complains
 * about goes nowhere: it may name secrets. */
static int start(char *const *words, const char *const *env, int output, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int r;

    sigemptyset(&none);
    sigfillset(&all);
    r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    r = posix_spawnattr_init(&attr);
    if (r != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -r;
    }
    r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (r == 0)
        r = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                POSIX_SPAWN_SETSIGDEF);
    if (r == 0)
        r = posix_spawnattr_setsigmask(&attr, &none);
    if (r == 0)
        r = posix_spawnattr_setsigdefault(&attr, &all);
    if (r == 0)
        r = posix_spawnp(ret_pid, words[0], &actions, &attr, words, (char *const *)env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* When to give up. */
struct limit {
    int64_t until_ns;
    const _Atomic bool *cancel;
};

static int over(const struct limit *limit)
{
    if (limit->cancel && atomic_load_explicit(limit->cancel, memory_order_relaxed))
        return -ECANCELED;
    return fb_now_ns() >= limit->until_ns ? -ETIMEDOUT : 0;
}

/* Until the end of the output. */
static int read_output(int fd, const struct limit *limit, struct fb_s3_text *output)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    char piece[4096];
    ssize_t n = 1;
    int r = 0;

    while (r == 0 && n != 0) {
        int ready = poll(&poller, 1, POLL_MS);

        if (ready <= 0) {
            r = ready < 0 && errno != EINTR ? -errno : over(limit);
            continue;
        }
        n = read(fd, piece, sizeof piece);
        if (n < 0)
            r = -errno;
        else if ((size_t)n > FB_S3_ASK_BODY_MAX - output->len)
            r = -EMSGSIZE;
        else
            fb_s3_text_add(output, piece, (size_t)n);
    }
    OPENSSL_cleanse(piece, sizeof piece);
    return r == 0 && !fb_s3_text_ok(output) ? -ENOMEM : r;
}

/* Waits for the end of the process itself, which may come after that of its output; one that failed
 * or takes too long is ended, with its group. */
static int finish(pid_t pid, const struct limit *limit, int r)
{
    int status = 0;
    pid_t got;

    for (;;) {
        if (r < 0)
            kill(-pid, SIGKILL);
        got = waitpid(pid, &status, r < 0 ? 0 : WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            break;
        if (got == 0) {
            r = over(limit);
            fb_sleep_ns(POLL_MS * FB_NS_PER_MS);
        }
    }
    if (r < 0)
        return r;
    return got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

int fb_s3_ask_program(const char *command, const char *const *env, long timeout_ms,
                      const _Atomic bool *cancel, struct fb_s3_text *ret_output)
{
    FB_AUTO_FREE char *line = fb_strdup(command);
    const char *const nothing[] = {NULL};
    const struct limit limit = {fb_now_ns() + timeout_ms * FB_NS_PER_MS, cancel};
    char *words[WORDS_MAX + 1];
    int ends[2];
    pid_t pid = 0;
    int r = line ? split_words(line, words) : -ENOMEM;

    fb_s3_text_clear(ret_output);
    if (r < 0)
        return r;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    r = start(words, env ? env : nothing, ends[1], &pid);
    close(ends[1]);
    if (r == 0)
        r = finish(pid, &limit, read_output(ends[0], &limit, ret_output));
    close(ends[0]);
    return r;
}
