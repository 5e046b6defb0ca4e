/*
 * Between the caller and the daemon stands a process that ends when the daemon is ready:
 *
 *     caller ── fork ──► starter ── fork ──► daemon
 *        ◄── message ───────┘ ◄── message ─────┘
 *
 * So the daemon is nobody's child. That matters when the caller becomes another program, which must
 * not find a child that it knows nothing of, let alone wait for it.
 *
 * Each says over a pipe, in one message, how it went. Silence means that it died, or hangs until
 * the time is over; then the starter ends the daemon and removes mounts that it may have left.
 */
#include "cli/start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "cli/cli.h"
#include "cli/unmount.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/last_error.h"
#include "daemon/mountinfo.h"
#include "daemon/wire.h"

#define TERM_WAIT_NS    (15 * FB_NS_PER_S)
#define KILL_WAIT_NS    (5 * FB_NS_PER_S)
#define STARTER_MORE_NS (TERM_WAIT_NS + KILL_WAIT_NS + 5 * FB_NS_PER_S)
#define REAP_STEP_NS    (10 * FB_NS_PER_MS)

struct message {
    int outcome; /* 0: ready; START_OWNED, START_INTERRUPTED, or a negative errno */
    struct fb_error error;
};

/* A process that was started, and the pipe on which it will say how it went. */
struct child {
    pid_t pid;
    int pipe;
};

static void tell(int fd, int outcome, const struct fb_error *error)
{
    struct message m = {.outcome = outcome};
    ssize_t ignored;

    if (error)
        m.error = *error;
    /* Smaller than PIPE_BUF: all or nothing. */
    ignored = write(fd, &m, sizeof m);
    (void)ignored;
}

static bool hear(const struct child *child, struct message *ret_message)
{
    if (read(child->pipe, ret_message, sizeof *ret_message) != (ssize_t)sizeof *ret_message)
        return false;
    ret_message->error.text[sizeof ret_message->error.text - 1] = 0;
    return true;
}

/* True when the process has ended. */
static bool reap(pid_t pid, int64_t until_ns, int *ret_status)
{
    for (;;) {
        pid_t got = waitpid(pid, ret_status, WNOHANG);

        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        if (fb_now_ns() >= until_ns)
            return false;
        fb_sleep_ns(REAP_STEP_NS);
    }
}

/* Or it would come again when the mask is lifted, and end us without a word. */
static void take_signal(int fd)
{
    struct signalfd_siginfo info;
    ssize_t ignored = read(fd, &info, sizeof info);

    (void)ignored;
}

/* ---- in the daemon ---- */

static void use_null(int fd)
{
    FB_AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0)
        dup2(null, fd);
}

/* From now on nobody is there to read what we print. */
static void daemon_ready(void *arg)
{
    int *fd = arg;

    use_null(STDOUT_FILENO);
    if (!fb_log_take_stderr())
        use_null(STDERR_FILENO);
    tell(*fd, 0, NULL);
    close(fb_steal_fd(fd));
}

/* The log has it, too, but that is a file; until we are ready standard error is our caller's. */
static void daemon_note(void *arg, const char *sentence)
{
    (void)arg;
    fputs("forebay: warning: ", stderr);
    cli_print_text(stderr, sentence);
    fputc('\n', stderr);
}

/* What our caller had open (a shell's lock file, the write end of a pipe) is not ours to keep. */
static void close_inherited(int keep)
{
    if (keep > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    close_range((unsigned)keep + 1, ~0U, 0);
}

static void run_daemon(const struct fb_daemon_options *asked, char **others, int fd)
{
    struct fb_daemon_options options = *asked;
    struct fb_error error = {""};
    int rc;

    for (char **word = others; word && *word; word++)
        memset(*word, 0, strlen(*word));
    options.ready = daemon_ready;
    options.note = daemon_note;
    options.arg = &fd;
    setsid();
    use_null(STDIN_FILENO);
    close_inherited(fd);
    if (chdir("/") != 0)
        fb_log_warn("cannot work from /: %s", fb_strerror(errno));
    rc = fb_daemon_run(&options, &error);
    if (fd >= 0)
        tell(fd, rc == FB_DAEMON_OWNED ? START_OWNED : -EIO, &error);
    if (rc == FB_DAEMON_STUCK)
        _exit(CLI_FAILED);
    fb_closep(&fd);
}

/* ---- in the starter ---- */

static void remove_mounts(const struct fb_list *mounts)
{
    const struct fb_list *it;
    const struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, mounts) {
        const struct fb_mount_request *r = FB_LIST_ENTRY(it, struct fb_mount_request, link);

        if (fb_mountinfo_is_forebay(r->mountpoint))
            (void)!cli_unmount(r->mountpoint, true, NULL);
    }
}

static void end_daemon(pid_t pid, const struct fb_daemon_options *options)
{
    int status;

    kill(pid, SIGTERM);
    if (!reap(pid, fb_now_ns() + TERM_WAIT_NS, &status)) {
        kill(pid, SIGKILL);
        reap(pid, fb_now_ns() + KILL_WAIT_NS, &status);
    }
    remove_mounts(options->mounts);
}

static int explain_death(pid_t pid, const struct fb_config *config, struct fb_error *err)
{
    const char *log = config->log_file ? config->log_file : "its log";
    int status = 0;

    if (!reap(pid, fb_now_ns() + TERM_WAIT_NS, &status))
        return fb_error_set(err, -ETIMEDOUT, "the daemon does not end; see %s", log);
    if (WIFSIGNALED(status))
        return fb_error_set(err, -ECHILD, "the daemon was killed by signal %d (%s); see %s",
                            WTERMSIG(status), sigdescr_np(WTERMSIG(status)), log);
    return fb_error_set(err, -ECHILD, "the daemon ended unexpectedly, status %d; see %s",
                        WEXITSTATUS(status), log);
}

static int take_message(const struct child *child, const struct fb_config *config,
                        struct fb_error *err)
{
    struct message m;
    int status;

    if (!hear(child, &m))
        return explain_death(child->pid, config, err);
    if (m.outcome == 0)
        return 0;
    reap(child->pid, fb_now_ns() + TERM_WAIT_NS, &status);
    return fb_error_set(err, m.outcome, "%s", m.error.text);
}

static int wait_for_daemon(const struct child *child, const struct fb_daemon_options *options,
                           int signals, int64_t until_ns, struct fb_error *err)
{
    for (;;) {
        struct pollfd polls[] = {{.fd = child->pipe, .events = POLLIN},
                                 {.fd = signals, .events = POLLIN}};
        int n = poll(polls, FB_ARRAY_SIZE(polls), fb_wire_poll_ms(until_ns));

        if (n > 0 && polls[0].revents)
            return take_message(child, options->config, err);
        if (n > 0) {
            take_signal(signals);
            end_daemon(child->pid, options);
            return fb_error_set(err, START_INTERRUPTED, "interrupted");
        }
        if (fb_now_ns() >= until_ns) {
            end_daemon(child->pid, options);
            return fb_error_set(err, -ETIMEDOUT,
                                "the daemon was not ready in time and was given up; does the "
                                "source answer?");
        }
    }
}

/* Forks, with a pipe from the child. In the child, pid is 0 and *ret_fd the pipe's write end. */
static int fork_child(struct child *ret_child, int *ret_fd, struct fb_error *err)
{
    int pipes[2];
    int rc;

    if (pipe2(pipes, O_CLOEXEC) != 0) {
        rc = fb_last_error();
        return fb_error_set(err, rc, "cannot make a pipe: %s", fb_strerror(rc));
    }
    fflush(NULL);
    *ret_child = (struct child){.pid = fork(), .pipe = -1};
    rc = ret_child->pid < 0 ? fb_last_error() : 0;
    if (ret_child->pid == 0) {
        close(pipes[0]);
        *ret_fd = pipes[1];
        return 0;
    }
    close(pipes[1]);
    if (rc) {
        close(pipes[0]);
        return fb_error_set(err, rc, "cannot start a process: %s", fb_strerror(rc));
    }
    ret_child->pipe = pipes[0];
    return 0;
}

/* START_CHILD: it is the daemon that returns. */
static int start_and_wait(const struct fb_daemon_options *options, char **others, int signals,
                          int64_t until_ns, struct fb_error *err)
{
    struct child child = {.pid = -1, .pipe = -1};
    int fd = -1;
    int rc = fork_child(&child, &fd, err);

    if (rc)
        return rc;
    if (child.pid == 0) {
        run_daemon(options, others, fd);
        return START_CHILD;
    }
    rc = wait_for_daemon(&child, options, signals, until_ns, err);
    close(child.pipe);
    return rc;
}

/* ---- in the caller ---- */

/* A signal is the starter's to heed: it knows the daemon. */
static int wait_for_starter(const struct child *child, int signals, int64_t until_ns,
                            struct fb_error *err)
{
    struct message m;
    int status;

    for (;;) {
        struct pollfd polls[] = {{.fd = child->pipe, .events = POLLIN},
                                 {.fd = signals, .events = POLLIN}};
        int n = poll(polls, FB_ARRAY_SIZE(polls), fb_wire_poll_ms(until_ns));

        if (n > 0 && polls[0].revents)
            break;
        if (n > 0)
            take_signal(signals);
        if (n > 0)
            kill(child->pid, SIGTERM);
        if (fb_now_ns() < until_ns)
            continue;
        kill(child->pid, SIGKILL);
        reap(child->pid, fb_now_ns() + KILL_WAIT_NS, &status);
        return fb_error_set(err, -ETIMEDOUT, "the daemon was not ready in time");
    }
    if (!hear(child, &m))
        m = (struct message){.outcome = -ECHILD, .error = {"the daemon could not be started"}};
    reap(child->pid, fb_now_ns() + KILL_WAIT_NS, &status);
    return m.outcome ? fb_error_set(err, m.outcome, "%s", m.error.text) : 0;
}

int cli_start_daemon(const struct fb_daemon_options *options, char **others, int64_t until_ns,
                     struct fb_error *err)
{
    struct child child = {.pid = -1, .pipe = -1};
    sigset_t mask;
    sigset_t before;
    int signals;
    int fd = -1;
    int rc;

    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    rc = fork_child(&child, &fd, err);
    if (rc == 0 && child.pid == 0) {
        struct fb_error error = {""};

        rc = start_and_wait(options, others, signals, until_ns, &error);
        if (rc == START_CHILD)
            return rc;
        tell(fd, rc, &error);
        _exit(CLI_OK);
    }
    if (rc == 0) {
        rc = wait_for_starter(&child, signals, until_ns + STARTER_MORE_NS, err);
        close(child.pipe);
    }
    if (signals >= 0)
        close(signals);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
